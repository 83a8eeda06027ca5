"""Metrics and the log, on a disk that may be full for a while."""
