"""Studies: searches of hyperparameters, whose trials are ordinary runs."""
