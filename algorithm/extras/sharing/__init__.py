"""Sharing of a run as one file with networks, configuration and card, whose checksums are verified."""
