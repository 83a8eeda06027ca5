"""A study whose runs are those of ``stub``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event
from sqlalchemy.engine import Engine

from algorithm.config.extras_config import TuneConfig
from algorithm.extras.tune import trial
from algorithm.extras.tune.optimiser import Optimiser
from algorithm.extras.tune.records import DATABASE
from algorithm.extras.tune.space import SearchSpace, read_space
from algorithm.extras.tune.study import Study
from algorithm.extras.tune.trial import RunPlan
from algorithm.run.signals import StopRequest
from algorithm.store.rundir import RunDir

LEARNING_RATE = {"sac_config.learning_rate": {"truncated": [0.01, 1.0]}}
STUB = Path(__file__).with_name("stub.py")


class Made:
    """A study in a folder. said: the lines that it has printed."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.tune = TuneConfig(**{"params": LEARNING_RATE, "startup": 3, "trials": 6, **settings})
        self.space: SearchSpace = read_space(self.tune.params)
        self.run = RunDir("task", "study", folder / "task" / "study", "task")
        self.run.path.mkdir(parents=True, exist_ok=True)
        self.said: list[str] = []
        self.refused: Callable[[Any], str] = lambda values: ""
        self.stop = StopRequest()

    def optimiser(self) -> Optimiser:
        return Optimiser(self.run.path / DATABASE, self.space, self.tune, 1, 100)

    def study(self) -> Study:
        always = ("--directory", str(self.run.models))
        plan = RunPlan(
            study=self.run,
            tune=self.tune,
            begin=(),
            always=always,
            length=300,
            every=100,
            algorithm="SAC",
        )
        return Study(plan, self.optimiser(), 1, refused=lambda v: self.refused(v), inform=self.said.append)

    def search(self) -> list[Any]:
        """Search to the end; returns the trials."""
        self.study().search(self.stop, lambda: None)
        return self.optimiser().trials

    @property
    def begun(self) -> list[str]:
        """Names of the runs that were started, and how."""
        file = self.run.path / "begun.txt"
        return file.read_text().splitlines() if file.exists() else []


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk() -> Iterator[None]:
    """A database is not flushed to the disk: no test takes the power away."""

    def unsafe(connection: Any, _: object) -> None:
        connection.execute("PRAGMA synchronous = OFF")

    event.listen(Engine, "connect", unsafe)
    yield
    event.remove(Engine, "connect", unsafe)


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Made]:
    monkeypatch.setattr(trial, "python_arguments", lambda: (str(STUB),))
    monkeypatch.setattr(trial, "_TICK_S", 0.02)
    return lambda name="a", **settings: Made(tmp_path / name, **settings)
