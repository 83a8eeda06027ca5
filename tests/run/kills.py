"""A process that dies between any two changes of the disk."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest


class Killed(BaseException):
    """Stands for SIGKILL: no handler for OSError sees it, nothing is cleaned up."""


def calls_on_the_way(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object], fatal: int) -> bool:
    """Run ``act`` and die before the ``fatal``-th system call that changes the disk. True: it got through."""
    seen = 0

    def counted(original):
        def call(*args, **kwargs):
            nonlocal seen
            seen += 1
            if seen == fatal:
                raise Killed
            return original(*args, **kwargs)

        return call

    with monkeypatch.context() as patch:
        for name in ("fsync", "unlink", "rmdir"):
            patch.setattr(os, name, counted(getattr(os, name)))
        for name in ("rename", "replace", "mkdir", "open"):
            patch.setattr(Path, name, counted(getattr(Path, name)))
        try:
            act()
        except Killed:
            return False
    return True
