"""Packages whose names are imported when they are first used: torch takes seconds."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Mapping
from typing import Any


def lazy(package: str, places: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a package that offers these names.

    package: its ``__name__``
    places:  name -> module with it, or ``module:attribute`` where it has another name there
    """

    def find(name: str) -> Any:  # noqa: ANN401 - whatever it is
        """Import and return an attribute of the package, and store it there."""
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, _, attribute = places[name].partition(":")
        value = _readable(getattr(importlib.import_module(module), attribute or name))
        setattr(sys.modules[package], name, value)
        return value

    return find, lambda: sorted(places)


_Annotation = type("_Annotation", (str,), {"__repr__": str.__str__})
"""A text that ``help`` shows without quotes."""


def _readable(value: Any) -> Any:  # noqa: ANN401 - whatever it is
    """Make ``help`` show the annotations of a function or class without quotes; return the value."""
    for member in vars(value).values() if isinstance(value, type) else [value]:
        if inspect.isfunction(function := inspect.unwrap(getattr(member, "__func__", member))):
            texts = {name: text for name, text in function.__annotations__.items() if isinstance(text, str)}
            function.__annotations__ |= {name: _Annotation(text) for name, text in texts.items()}
    return value


def of_modules(modules: Mapping[str, str]) -> dict[str, str]:
    """Return name -> module, from module -> its names, separated by spaces."""
    return {name: module for module, names in modules.items() for name in names.split()}
