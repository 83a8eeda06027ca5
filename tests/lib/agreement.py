"""All of a run that must be the same whatever happened to it on the way."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from algorithm.core.data import State
from algorithm.store.logs.metrics import read_metrics


def what_must_agree(run: Path) -> dict[str, object]:
    """All of a finished run that two runs with the same seed share."""
    last = max(run.glob("checkpoints/step_*"))
    manifest = json.loads((last / "manifest.json").read_text())
    files = manifest["files"]
    state = json.loads((last / "state.json").read_text())
    del state["seconds"]
    state["metrics"] = without_times(state["metrics"])
    metrics = {name: column for name, column in read_metrics(run / "metrics.jsonl").items() if timeless(name)}
    return {
        "weights": {name: entry["sha256"] for name, entry in files.items() if name.endswith(".safetensors")},
        "replay": manifest["replay"],  # every segment with its SHA-256, priorities among them
        "state": state,
        "metrics": json.dumps(metrics),  # NaN is not equal to itself
    }


def stored(state: State) -> State:
    """A state as it comes back from the disk: nobody else's arrays, and not to be written to."""
    arrays = {name: np.frombuffer(v.tobytes(), v.dtype).reshape(v.shape) for name, v in state.arrays.items()}
    return State(arrays, json.loads(json.dumps(state.meta, allow_nan=False)))


def timeless(name: str) -> bool:
    """Return whether a metric has nothing to do with clock and machine."""
    return not any(part in name for part in ("time/", "sys/"))


def without_times(value: object) -> object:
    """``value`` without what only the clock and the machine decide."""
    if isinstance(value, dict):
        return {key: without_times(item) for key, item in value.items() if timeless(key)}
    if isinstance(value, list):
        return [without_times(item) for item in value if not (isinstance(item, list) and _timed(item))]
    return value


def _timed(item: list) -> bool:
    return any(isinstance(part, str) and not timeless(part) for part in item)
