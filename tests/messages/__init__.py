"""Every message for a person, rendered once and compared with one golden file, whose diff is reviewed.

An area is a module of this folder with a function ``messages()`` that yields (name, text). After a message
was changed on purpose, ``python -m tests.messages`` writes the file anew. No other test asserts sentences.
"""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from textwrap import indent

from algorithm.config.errors import ConfigError
from algorithm.core.errors import UserError

GOLDEN = Path(__file__).with_name("golden.txt")


def refusal(call: Callable[[], object], *, coded: bool = False) -> str:
    """The text of the error that a call ends with; ``coded``: below its kind and exit code."""
    try:
        call()
    except (ConfigError, UserError) as error:
        return f"{type(error).__name__}, exit code {error.exit_code}\n{error}" if coded else str(error)
    raise AssertionError("nothing is wrong")


def areas() -> list[str]:
    """Names of the areas, in the order of the file."""
    found = [module.name for module in pkgutil.iter_modules(__path__)]
    return sorted(name for name in found if not name.startswith(("test_", "_")))


def rendered(area: str) -> str:
    """All messages of an area as they are now, under their names."""
    messages: Iterator[tuple[str, str]] = import_module(f"{__name__}.{area}").messages()
    sections = [f"# {area}: {name}\n{indent(text.rstrip(), '  ')}\n" for name, text in messages]
    lines = [line.rstrip() for section in sections for line in section.split("\n")]
    return "".join(f"{line}\n" for line in lines)


def golden(area: str) -> str:
    """The same as the golden file has it."""
    parts = re.split(r"^(?=# )", GOLDEN.read_text("utf-8"), flags=re.M)
    return "".join(part for part in parts if part.startswith(f"# {area}: "))
