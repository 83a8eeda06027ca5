"""Means of the last updates' metrics for the log. Adding metrics does not wait for the device."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from algorithm.core.data import SequenceBatch, State, UpdateResult

KEPT = 20
"""Number of updates over which a logged value is averaged."""

_NOTHING = torch.empty(0, dtype=torch.bool)


class MetricsWindow:
    """The metrics of the last updates, and ids, weights and priorities of the last batch."""

    def __init__(self) -> None:
        self._updates: deque[tuple[Mapping[str, Tensor], Tensor]] = deque(maxlen=KEPT)  # metrics, valid
        self._priority = self._weight = self._anchors = torch.empty(0)  # [B] each, of the last one

    def add(self, batch: SequenceBatch, result: UpdateResult, num_own: int | None = None) -> None:
        """Store the metrics of an update made with ``batch``.

        num_own: number of the batch's first windows that are of the replay; None: all
        """
        self._updates.append((result.metrics, _NOTHING if result.valid is None else result.valid))
        self._priority, self._weight = result.priority[:num_own], batch.weight[:num_own]
        self._anchors = result.anchor_ids[:num_own]

    def metrics(self, next_id: int) -> dict[str, float]:
        """Return the mean of each value over the last updates that have it; empty before the first update.

        next_id: id of the replay's next row, for the ages of the sampled rows
        """
        if not self._updates:
            return {}
        means = {name: self._mean(name) for name in self._names()}
        if not len(self._anchors):
            return means
        return {
            **means,
            "replay/priority_mean": float(self._priority.mean()),
            "replay/is_weight_min": float(self._weight.min()),
            "replay/age_mean": float((next_id - self._anchors).float().mean()),
        }

    def _names(self) -> list[str]:
        """Return the names of all values; not every update has those of a policy step."""
        return list(dict.fromkeys(name for metrics, _ in reversed(self._updates) for name in metrics))

    def _mean(self, name: str) -> float:
        """Return the mean of a value; earlier updates of a resumed run are on the CPU, and may lack it."""
        values = [_mean(metrics[name], valid) for metrics, valid in self._updates if name in metrics]
        return float(torch.stack([value.to(values[-1].device) for value in values]).mean())

    def state(self, next_id: int) -> State:
        """Return the values of each update, averaged over its positions; next_id: as in :meth:`metrics`."""
        if not self._updates:
            return State(meta={"names": []})
        names = self._names()
        means = [
            [float(_mean(metrics[name], valid)) if name in metrics else np.nan for name in names]
            for metrics, valid in self._updates
        ]
        some = len(self._anchors) > 0  # else there is no mean
        return State(
            {
                "means": np.array(means, np.float32),
                "known": np.array([[name in metrics for name in names] for metrics, _ in self._updates]),
                "priority": np.array([float(self._priority.float().mean())] * some, np.float32),
                "weight": np.array([float(self._weight.min())] if some else [], np.float32),
                "ages": (next_id - self._anchors).cpu().numpy(),
            },
            {"names": names},
        )

    def load_state(self, state: State, next_id: int) -> None:
        """Continue from what :meth:`state` returned. Raises ValueError for tables of another size.

        next_id: id of the loaded replay's next row, whose ids may begin anew
        """
        names, arrays = state.meta["names"], {name: np.array(a) for name, a in state.arrays.items()}
        self._updates.clear()
        if not names:
            return
        if arrays["means"].shape[1:] != (len(names),) or arrays["known"].shape != arrays["means"].shape:
            raise ValueError(f"recent metrics: {arrays['means'].shape} values for {len(names)} names")
        for means, known in zip(torch.from_numpy(arrays["means"]), arrays["known"], strict=True):
            self._updates.append(({names[i]: means[i] for i in np.flatnonzero(known)}, _NOTHING))
        self._priority, self._weight = (torch.from_numpy(arrays[name]) for name in ("priority", "weight"))
        self._anchors = next_id - torch.from_numpy(arrays["ages"])


def _mean(value: Tensor, valid: Tensor) -> Tensor:
    """Return a scalar as it is, or the mean of values [..., B, T] over the valid positions [B, T]."""
    if not value.dim():
        return value.float()
    each = value.float().masked_fill(~valid, 0.0).sum((-2, -1)) / valid.sum().clamp(min=1)
    return each.mean()
