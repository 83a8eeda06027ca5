"""Sharing of a run: one file with networks, configuration and card, read with every byte verified."""
