"""The report of a population, for ``--report``."""
