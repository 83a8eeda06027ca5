"""Modules of the project see what they would see on Windows. Found by PYTHONPATH, so in workers too.

Other packages see the system as it is: they have their own ways there.
"""

from __future__ import annotations

import builtins
import faulthandler
import os
import signal
import sys
from types import ModuleType

from absent_names import ABSENT_MODULES, FAULTHANDLER_ABSENT, OS_ABSENT, SIGNALS_PRESENT

OURS = ("algorithm", "asac", "ds")


class Seen(ModuleType):
    """A module without some of its names; all else is done to the module itself."""

    def __init__(self, module: ModuleType, absent: frozenset[str], **other: object) -> None:
        super().__init__(module.__name__)
        vars(self).update(_module=module, _absent=absent, _other=other)

    def __getattr__(self, name: str) -> object:
        if name in self._absent:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r} on Windows", name=name)
        return self._other[name] if name in self._other else getattr(self._module, name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._module, name, value)


SEEN = {
    "sys": Seen(sys, frozenset(), platform="win32"),
    "os": Seen(os, OS_ABSENT, name="nt"),
    "signal": Seen(signal, frozenset(vars(signal)) - SIGNALS_PRESENT),
    "faulthandler": Seen(faulthandler, FAULTHANDLER_ABSENT),
}
_import = builtins.__import__


def _as_on_windows(name, globals=None, locals=None, fromlist=(), level=0):
    if level == 0 and str((globals or {}).get("__name__")).partition(".")[0] in OURS:
        if name.partition(".")[0] in ABSENT_MODULES:
            raise ModuleNotFoundError(f"No module named {name!r} on Windows", name=name)
        if name in SEEN:
            return SEEN[name]
    return _import(name, globals, locals, fromlist, level)


builtins.__import__ = _as_on_windows
