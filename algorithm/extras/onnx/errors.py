"""Errors of an export."""

from __future__ import annotations

import importlib
from types import ModuleType

from algorithm.core.errors import UserError
from algorithm.core.extras import needs


class ExportError(UserError):
    """A graph that cannot be made, or that is not what it should be; no file is written."""

    exit_code = 5


def required(library: str) -> ModuleType:
    """Import a library of the extra ``export``. Raises UsageError if it is not installed."""
    with needs("export", "a policy as ONNX"):
        return importlib.import_module(library)
