"""Uploads of a run's metrics to another machine; the extra ``wandb`` makes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from algorithm.core.extras import extra
from algorithm.keys.checkpoints import WandbConfig
from algorithm.store.logs.rows import Row


class Upload(Protocol):
    """Upload of rows of metrics. A failure causes a warning, and never ends the run."""

    def start(self, state: Mapping[str, Any] | None, rows: Iterable[tuple[int, Row]]) -> None:
        """Begin, or continue from a state; send the rows so far that the other side lacks."""

    def write(self, step: int, row: Row) -> None:
        """Send a row."""

    def state(self) -> dict[str, object]:
        """Return the state from which a later upload can continue."""

    def close(self) -> None:
        """Send the remaining rows, and end the upload."""


def require_upload(config: WandbConfig) -> None:
    """Raise UsageError if the configuration names a project, and W&B is not installed."""
    if config.project is not None:
        extra("require_wandb")(config)
