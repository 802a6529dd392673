"""Predicting with the kept members."""
