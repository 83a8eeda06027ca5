# PYTHON_ARGCOMPLETE_OK
"""``python -m asac`` is the command ``asac``."""

from algorithm.command import run

run()
