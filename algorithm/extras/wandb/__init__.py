"""Logging of a run to Weights & Biases."""
