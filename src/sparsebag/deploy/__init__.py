"""Predicting with the survivors."""
