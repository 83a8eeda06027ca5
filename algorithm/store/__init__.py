"""A run on the disk: its folder, lock, checkpoints, metrics and log."""
