"""The error of an export, and the import of the libraries that it needs."""

from __future__ import annotations

import importlib
from types import ModuleType

from algorithm.core.errors import UserError
from algorithm.core.extras import needs


class ExportError(UserError):
    """Error of a graph that cannot be made, or that differs from its policy; no file is written."""

    exit_code = 5


def required(library: str) -> ModuleType:
    """Import a library of the extra ``export``. Raises UsageError if it is not installed."""
    with needs("export", "a policy as ONNX"):
        return importlib.import_module(library)
