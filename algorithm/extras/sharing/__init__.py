"""Sharing of a run as one file with networks and configuration, whose checksums are verified."""
