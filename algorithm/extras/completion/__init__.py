"""Completion of command lines by TAB in a shell."""
