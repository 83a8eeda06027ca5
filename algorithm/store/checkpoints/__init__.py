"""Checkpoints on the disk: how they are written, which ones stay."""
