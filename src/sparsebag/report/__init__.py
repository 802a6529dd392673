"""How good the probabilities are, what a compression cost, and how to show it."""
