"""Logs of metrics, which survive a disk that is full for a while."""
