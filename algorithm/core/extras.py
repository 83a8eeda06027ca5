"""Extras of the package: what only some runs need, imported where it is needed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from algorithm.core.errors import UsageError, described

_PROJECT = "advanced-soft-actor-critic"
_CHECKOUT = Path(__file__).resolve().parents[2] / "pyproject.toml"

_UNTIL = {"dmc": (3, 13)}
"""Extra -> the first Python for which a package of it cannot be had."""


def install_command(extra: str) -> str:
    """Return the command that installs an extra, of a checkout or of the installed package.

    Where there is none for this version of Python, return that instead.
    """
    if extra in _UNTIL and sys.version_info >= _UNTIL[extra]:
        major, minor = _UNTIL[extra]
        older = f"Python {major}.{minor - 1} or an older one"
        return f"use {older}: for {major}.{minor} the extra {extra} has no packages"
    if _CHECKOUT.is_file():
        return f'in the project\'s folder: {sys.executable} -m pip install -e ".[{extra}]"'
    # It is installed, so pip adds what the extra lists, and asks no index for the package itself.
    return f'{sys.executable} -m pip install "{_PROJECT}[{extra}]"'


@contextmanager
def needs(extra: str, what: str, *, where: object = "") -> Iterator[None]:
    """Raise a failed import as a UsageError with the command that installs the extra.

    what: that cannot be done without it; the subject of a sentence with a verb in the singular
    """
    try:
        yield
    except ImportError as error:
        raise UsageError(
            f"{what} needs the extra {extra}, which is not installed",
            where=where,
            why=described(error),
            fix=install_command(extra),
        ) from error
