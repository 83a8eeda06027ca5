"""Measurements of this project, alone and beside others; see ``README.md``."""
