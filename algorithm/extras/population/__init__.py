"""``--report`` of a population."""
