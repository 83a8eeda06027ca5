"""``--profile``: where the time of a training goes."""
