"""Weights that depend on the row: one smooth gate, fitted and judged out of bag."""
