"""Metrics, on a disk that may be full for a while."""
