"""The program as it was started: a script of a checkout, a command of an installation, or a module."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

VERSION = "1.0.0"

_SCRIPTS = {"main.py": ("asac", "asac"), "main_ds.py": ("asac-ds", "ds")}
"""Script of a checkout -> the command and the package that an installation has instead."""

_COMMANDS, _MODULES = map(set, zip(*_SCRIPTS.values(), strict=True))

_CHECKOUT = Path(__file__).resolve().parents[2]


def program(script: str = "main.py") -> list[str]:
    """Return the first words of a command: ``python main.py``, or with the path that leads there.

    Where the package is installed: ``asac``, or ``python -m asac`` if that was typed. A program or a notebook
    that imports the package gets ``asac`` if there is such a command, and the checkout's script otherwise.
    """
    typed, (command, module) = Path(sys.argv[0]), _SCRIPTS[script]
    if _is_module(typed):
        return ["python", "-m", module]
    if typed.stem in _COMMANDS or not (_CHECKOUT / script).is_file():
        return [command]
    of_checkout = _is_script(typed)
    if not of_checkout and shutil.which(command):
        return [command]
    folder = typed.parent if of_checkout else _CHECKOUT
    return ["python", script if folder.resolve() == Path.cwd() else str(folder / script)]


def python_arguments(script: str = "main.py") -> tuple[str, ...]:
    """Return Python's arguments for a program: a checkout's script, or ``-m`` and an installed module."""
    file = _CHECKOUT / script
    return (str(file),) if file.is_file() else ("-m", _SCRIPTS[script][1])


def _is_module(typed: Path) -> bool:
    """Return whether the program was started as ``python -m``."""
    return typed.name == "__main__.py" and typed.parent.name in _MODULES


def _is_script(typed: Path) -> bool:
    """Return whether the script that was typed is the checkout's, and not another file of that name."""
    ours = _CHECKOUT / typed.name
    return typed.name in _SCRIPTS and ours.is_file() and (not typed.is_file() or typed.samefile(ours))


def flag_or_argument(flag: str, argument: str) -> str:
    """Return ``flag`` if a command was typed, and ``argument`` if a Python program imported the package."""
    typed = Path(sys.argv[0])
    return flag if _is_module(typed) or typed.stem in _COMMANDS or _is_script(typed) else argument


def as_typed(text: str) -> str:
    """Replace ``python main.py`` in a text by the command that started this program, such as ``asac``."""
    for script in _SCRIPTS:
        words = program(script)
        if Path(words[-1]).name != script:
            text = text.replace(f"python {script}", " ".join(words))
    return text
