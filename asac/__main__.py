"""``python -m asac`` is the command ``asac``."""

from algorithm.app.command import run

run()
