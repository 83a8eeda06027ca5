"""The program as it was started: a script of a checkout, a command of an installation, or a module."""

from __future__ import annotations

import sys
from pathlib import Path

VERSION = "0.1.0"

_SCRIPTS = {"main.py": ("asac", "asac"), "main_ds.py": ("asac-ds", "ds")}
"""Script of a checkout -> the command and the package that an installation has instead."""


def program(script: str = "main.py") -> list[str]:
    """Return the first words of a command: ``python main.py``, or with the path that leads there.

    Where the package is installed: ``asac``, or ``python -m asac`` if that was typed.
    """
    typed, (command, module) = Path(sys.argv[0]), _SCRIPTS[script]
    if typed.stem in {each for each, _ in _SCRIPTS.values()}:
        return [command]
    if typed.name == "__main__.py" and typed.parent.name in {each for _, each in _SCRIPTS.values()}:
        return ["python", "-m", module]
    if typed.name not in _SCRIPTS and not (Path(__file__).parents[2] / script).is_file():
        return [command]  # a program or a notebook that imports the installed package
    here = typed.name not in _SCRIPTS or typed.parent.resolve() == Path.cwd()
    return ["python", script if here else str(typed.parent / script)]


def as_typed(text: str) -> str:
    """Return a text with its commands as this program is started; those of a checkout stay as they are."""
    for script in _SCRIPTS:
        words = program(script)
        if Path(words[-1]).name != script:
            text = text.replace(f"python {script}", " ".join(words))
    return text
