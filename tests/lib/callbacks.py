"""Callbacks of tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import asac


class EachStep(asac.Callback):
    """A function that is called after each step."""

    def __init__(self, function: Callable[[asac.Training], object]) -> None:
        self.function = function

    def on_step(self, training: asac.Training) -> None:
        self.function(training)


def watch(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, see: Callable[..., object]) -> None:
    """Have ``see`` called before each call of ``owner.name``, with its arguments."""
    original = getattr(owner, name)

    def call(*args: Any, **options: Any) -> Any:
        see(*args, **options)
        return original(*args, **options)

    monkeypatch.setattr(owner, name, call)
