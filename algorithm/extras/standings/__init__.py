"""``--report`` of several names: runs beside one another."""
