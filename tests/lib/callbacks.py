"""Callbacks of tests."""

from __future__ import annotations

from collections.abc import Callable

import asac


class EachStep(asac.Callback):
    """A function that is called after each step."""

    def __init__(self, function: Callable[[asac.Training], object]) -> None:
        self.function = function

    def on_step(self, training: asac.Training) -> None:
        self.function(training)
