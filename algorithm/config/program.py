"""The program as a user has started it, for commands that can be pasted."""

from __future__ import annotations

import sys
from pathlib import Path

_SCRIPTS = ("main.py", "main_ds.py")


def program(script: str = "main.py") -> list[str]:
    """The first words of a command: ``python main.py``, or with the path that leads to it from here."""
    typed = Path(sys.argv[0])
    here = typed.name not in _SCRIPTS or typed.parent.resolve() == Path.cwd()
    return ["python", script if here else str(typed.parent / script)]
