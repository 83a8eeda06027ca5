"""Completion of command lines: what a shell offers behind TAB."""
