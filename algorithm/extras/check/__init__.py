"""``--check``: faults of an environment that prevent learning, one function for each."""
