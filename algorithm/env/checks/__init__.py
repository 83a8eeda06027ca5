"""Checks of an environment for faults that prevent learning: one function for each fault."""
