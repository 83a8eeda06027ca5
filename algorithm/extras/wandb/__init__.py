"""Weights & Biases: the rows of a run, sent or kept."""
