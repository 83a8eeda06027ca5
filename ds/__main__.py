"""``python -m ds`` is ``asac-ds``."""

from ds.command import run

run()
