"""From votes to probabilities that mean what they say."""
