"""Uploads of a run's rows, beyond this machine; the extra ``wandb`` makes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from algorithm.core.extras import extra
from algorithm.keys.checkpoints import WandbConfig
from algorithm.store.logs.rows import Row


class Upload(Protocol):
    """Rows on their way to others. What fails costs a warning, never the run."""

    def start(self, state: Mapping[str, Any] | None, rows: Iterable[tuple[int, Row]]) -> None:
        """Begin, or go on from a state; send the rows so far that are missing there."""

    def write(self, step: int, row: Row) -> None:
        """Send a row."""

    def state(self) -> dict[str, object]:
        """State of an upload that goes on."""

    def close(self) -> None:
        """Send what is left."""


def require_upload(config: WandbConfig) -> None:
    """Raise UsageError if the configuration names a project and nothing can send rows to it."""
    if config.project is not None:
        extra("require_wandb")(config)
