"""From scores to a ranked list with probabilities, and to what is certain of a feature."""
