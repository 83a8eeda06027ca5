"""Comparison of several runs, for ``--report`` with several names."""
