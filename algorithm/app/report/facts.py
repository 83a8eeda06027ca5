"""Facts about a run from the files of its folder, some of which may be missing or damaged. Loads no torch."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from algorithm.config.errors import ConfigError
from algorithm.config.loader import LoadedConfig, load_config_file
from algorithm.core.errors import StorageError
from algorithm.core.reading import read_bytes, read_json
from algorithm.core.spec import DEFAULT_BEHAVIOUR, AgentSpec
from algorithm.core.wording import Rows, plus_minus
from algorithm.env.config import opponents
from algorithm.env.pool.repetition import specs_from_json
from algorithm.store.lock import Holder
from algorithm.store.logs.metrics import read_metrics
from algorithm.store.logs.registry import EVAL_INFOS, LESSONS, METRICS, RECORDED, ROLLOUT_INFOS
from algorithm.store.rundir import RunDir

_Content = TypeVar("_Content")
_Else = TypeVar("_Else")

FINISHED = "finished"
"""State of a run that reached its limit."""

_CHARTED = (LESSONS, ROLLOUT_INFOS, EVAL_INFOS)
_COLUMN = re.compile(r"(?:(.+?)/)??((?:rollout|eval)/info/.+|[^/]+/[^/]+)")
"""A behaviour, if it has a name, and a metric."""

Columns = Mapping[str, Sequence[float]]
"""Metrics by name, ``step`` among them; NaN where a summary has none."""


def space_rows(specs: Mapping[str, AgentSpec]) -> list[tuple[str, str]]:
    """Return observations and actions of each behaviour as rows, in words."""
    rows = []
    for name, spec in specs.items():
        prefix = "" if name == DEFAULT_BEHAVIOUR else f"{name}: "
        rows += [("observation", f"{prefix}{spec.obs}"), ("action", f"{prefix}{spec.action}")]
    return [*rows, *(("teams", line) for line in opponents(specs))]


@dataclass(frozen=True)
class Score:
    """One evaluation: mean return, half width of its 95 % interval (NaN: unknown), step."""

    mean: float
    half_width: float
    step: int


@dataclass(frozen=True)
class Facts:
    """A run as its files describe it; a file that cannot be read is empty, and named in ``problems``.

    metrics:  behaviour -> columns; empty without a readable ``metrics.jsonl``
    manifest, result: the contents of those files
    problems: one line each
    """

    run: RunDir
    config: LoadedConfig | None
    manifest: Mapping[str, object]
    result: Mapping[str, object]
    metrics: Mapping[str, Columns]
    problems: tuple[str, ...]

    @classmethod
    def gather(cls, run: RunDir) -> Facts:
        """Read the files of a run. A missing or damaged file raises nothing."""
        problems, empty = list[str](), dict[str, object]()
        no_metrics: Columns = {}
        config = _read(run.config, load_config_file, None, problems)
        manifest = _read(run.manifest, read_json, empty, problems)
        result = _read(run.result, read_json, empty, problems) if run.result.exists() else empty
        columns = _read(run.metrics_jsonl, read_metrics, no_metrics, problems)
        return cls(run, config, manifest, result, _by_behaviour(columns), tuple(problems))

    @property
    def render_modes(self) -> list[str]:
        """Render modes of the environment; none if the manifest has none."""
        modes = self.manifest.get("render_modes")
        return [mode for mode in modes if isinstance(mode, str)] if isinstance(modes, list) else []

    @property
    def specs(self) -> dict[str, AgentSpec]:
        """Observations and actions by behaviour; empty if the manifest has none, or damaged ones."""
        with suppress(ValueError):
            return specs_from_json(self.manifest.get("spaces"))
        return {}

    @cached_property
    def behaviours(self) -> list[str]:
        """Names of the behaviours with metrics; without any, of those in the manifest."""
        return list(self.metrics) or list(self.specs) or [DEFAULT_BEHAVIOUR]

    @cached_property
    def last_step(self) -> int:
        """Environment steps of the last summary, 0 before the first."""
        steps = [columns["step"][-1] for columns in self.metrics.values() if len(columns["step"])]
        return int(max(steps, default=0))

    @cached_property
    def holder(self) -> Holder | None:
        """Another process that trains in this folder, or was killed while training; None without one."""
        return holder_of(self.run.lock)

    @cached_property
    def ended(self) -> bool:
        """Whether the run wrote its result and was not resumed since."""
        return bool(self.result) and (self.steps or 0) >= self.last_step and self.holder is None

    @property
    def state(self) -> str:
        """State of the run in words."""
        if self.holder is not None:
            return f"still running, {self.holder}" if self.holder.is_running else "killed"
        if not self.ended:
            return "ended without a result"
        limit, steps = self.config.config.base_config.max_step if self.config else -1, self.steps or 0
        is_done = 0 < limit <= steps or number(self.result, "last_eval", "step") == steps
        return FINISHED if is_done else "stopped before its end"

    @property
    def seed(self) -> str:
        """Seed of the run."""
        seed = number(self.manifest, "seeds", "run")
        if seed is None and self.config:
            seed = self.config.config.run.seed
        return "unknown" if seed is None else f"{seed:.0f}"

    @property
    def steps(self) -> int | None:
        """Environment steps by the result, else by the metrics."""
        steps = number(self.result, "steps")
        return int(steps) if steps is not None else self.last_step or None

    @property
    def seconds(self) -> float | None:
        """Seconds of training, without evaluation; None before the run has ended."""
        return number(self.result, "seconds") if self.ended else None

    @property
    def updates(self) -> float | None:
        """Gradient updates; None before the run has ended."""
        return number(self.result, "updates") if self.ended else None

    @property
    def faults(self) -> dict[str, float]:
        """Faults survived, by kind."""
        latest = {
            name.removeprefix("fault/"): self.latest(name) for name in METRICS if name.startswith("fault/")
        }
        return {kind: value for kind, value in latest.items() if value is not None}

    def latest(self, name: str, behaviour: str | None = None) -> float | None:
        """Return the last finite value of a metric; None if there is none."""
        values = self.metrics.get(behaviour or self.behaviours[0], {}).get(name, ())
        return next((value for value in reversed(values) if math.isfinite(value)), None)

    def infos(self, behaviour: str) -> dict[str, float]:
        """Return the numbers from the environment's infos in the last evaluation."""
        names = [name for name in self.metrics.get(behaviour, {}) if name.startswith(EVAL_INFOS)]
        latest = {name.removeprefix(EVAL_INFOS): self.latest(name, behaviour) for name in names}
        return {key: value for key, value in latest.items() if value is not None}

    def last_evaluation(self, behaviour: str) -> Score | None:
        """Return the last evaluation; None without one."""
        return next(reversed(self.evaluations(behaviour)), None)

    def best_evaluation(self, behaviour: str) -> Score | None:
        """Return the evaluation with the largest mean, the first of equals; None without one."""
        return max(self.evaluations(behaviour), key=lambda score: score.mean, default=None)

    def evaluations(self, behaviour: str) -> list[Score]:
        """Return all evaluations in the metrics, in their order."""
        columns = self.metrics.get(behaviour, {"step": ()})
        unknown = [math.nan] * len(columns["step"])
        means = columns.get("eval/return_mean", unknown)
        halves = columns.get("eval/return_ci95", unknown)
        rows = zip(columns["step"], means, halves, strict=True)
        return [Score(mean, half, int(step)) for step, mean, half in rows if math.isfinite(mean)]

    @property
    def rows(self) -> Rows:
        """Task, algorithm, steps so far, last and best mean return of the run."""
        rows = [("task", self.run.env), ("steps", f"{self.steps or 0:,}")]
        if self.config:
            rows.insert(1, ("algorithm", self.config.config.algorithm))
        behaviour = self.behaviours[0]
        scores = {"last": self.last_evaluation(behaviour), "best": self.best_evaluation(behaviour)}
        return [
            *rows,
            *((name, plus_minus(score.mean, score.half_width)) for name, score in scores.items() if score),
        ]


def _read(
    path: Path, read: Callable[[Path], _Content], otherwise: _Else, problems: list[str]
) -> _Content | _Else:
    """Return ``read(path)``; for a file that is missing or damaged add a problem and return ``otherwise``."""
    if not path.exists():
        problems.append(f"{path.name} is missing")
        return otherwise
    try:
        return read(path)
    except (StorageError, ConfigError) as error:
        reason = error.line if isinstance(error, StorageError) else " ".join(str(error).split())
        problems.append(f"{path.name} cannot be used: {reason}")
        return otherwise


def holder_of(lock: Path) -> Holder | None:
    """Return another process that holds a lock, or held it when it was killed; None without one."""
    try:
        holder = Holder.read(read_bytes(lock))
    except (OSError, ValueError):
        return None
    is_me = holder is not None and holder.pid == os.getpid() and not holder.is_elsewhere
    return None if is_me else holder


def lookup(value: object, *path: str) -> object:
    """Return the value at ``path`` in nested mappings; None if there is none."""
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def number(value: object, *path: str) -> float | None:
    """Return the finite number at ``path``; None if there is none."""
    value_at_path = lookup(value, *path)
    if isinstance(value_at_path, bool) or not isinstance(value_at_path, int | float):
        return None
    return float(value_at_path) if math.isfinite(value_at_path) else None


def _by_behaviour(columns: Columns) -> dict[str, Columns]:
    """Return behaviour -> columns under the plain names of metrics, lessons and infos.

    Other columns are left out.
    """
    by_behaviour: dict[str, dict[str, Sequence[float]]] = {}
    for column, values in columns.items():
        if not (parts := _COLUMN.fullmatch(column)):
            continue
        behaviour, metric = parts[1] or DEFAULT_BEHAVIOUR, parts[2]
        others = any(f"/{part}" in f"/{column}" for part in RECORDED if part not in _CHARTED)
        if (metric in METRICS or metric.startswith(_CHARTED)) and not others:
            by_behaviour.setdefault(behaviour, {"step": columns["step"]})[metric] = values
    return dict(by_behaviour) if columns.get("step") else {}
