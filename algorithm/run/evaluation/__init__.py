"""Evaluation of trained agents: episodes, videos, recordings, and the commands that play."""
