"""A checkpoint that cannot be written does not end a run at once."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from algorithm.core.errors import NumericalError, StorageError
from algorithm.run.checkpointer import FAILURES, Checkpointer
from algorithm.store.checkpoints.checkpoint import SaveCost, Snapshot
from algorithm.store.checkpoints.manager import CheckpointManager

FULL = StorageError("the checkpoint cannot be written", where="here", why="the disk is full", fix="make room")


class Disk:
    """A manager that fails at the attempts it is told to."""

    def __init__(self, *failing: int) -> None:
        self.failing, self.attempts, self.saved, self.best = failing, 0, [], []
        self.latest: Path | None = None

    def has(self, step: int) -> bool:
        return step in self.saved

    def save(self, snapshot: Snapshot) -> SaveCost:
        self.attempts += 1
        if self.attempts in self.failing:
            raise FULL
        self.saved.append(snapshot.step)
        self.latest = Path(f"step_{snapshot.step}")
        return SaveCost(0.5, 3 * 2**20, 2**20)

    def is_best(self, score: float) -> bool:
        return score > 0

    def mark_best(self, score: float) -> None:
        self.best.append(self.saved[-1])


class Said(SimpleNamespace):
    """A console that remembers."""

    def __init__(self) -> None:
        warnings, messages = list[str](), list[str]()
        super().__init__(warnings=warnings, messages=messages, warn=warnings.append, message=messages.append)


class TrainState:
    """Nothing but steps and a weight."""

    def __init__(self) -> None:
        self.counters, self.weight = SimpleNamespace(step=0, last_eval=None), torch.zeros(2)

    def snapshot(self, metrics) -> Snapshot:
        tensors = {"model": {"w": self.weight}, "run": {"seen": np.array([np.inf])}}
        return Snapshot(step=self.counters.step, tensors=tensors, state={"metrics": metrics})


@pytest.fixture
def parts():
    def make(*failing):
        disk, training, said = Disk(*failing), TrainState(), Said()
        return Checkpointer(disk, training, said, metrics=dict, check=lambda: None), disk, training, said

    return make


@pytest.mark.fault("F08")
def test_failing_again_and_again_ends_the_run_with_the_last_good_one(parts):
    """A failure is told and tried again at the next save; a good one begins the count anew."""
    saver, disk, training, said = parts(2, 3, 5, 6, 7)
    outcomes = []
    for training.counters.step in range(1, 7):
        outcomes.append(saver.save())
    assert outcomes == [True, False, False, True, False, False] and disk.saved == [1, 4]
    assert said.warnings == [f"{FULL.line} · training continues and tries again at the next save"] * 4
    training.counters.step = 7
    with pytest.raises(StorageError, match="the last good one is step_4"):
        saver.save()
    assert disk.attempts == FAILURES + 4


@pytest.mark.fault("F08")
def test_the_last_one_has_to_be_written(parts):
    saver, _, _, _ = parts(1)
    with pytest.raises(StorageError, match="none was written before"):
        saver.save_finally()


def test_the_best_is_marked_only_once_it_is_there(parts):
    saver, disk, training, _ = parts(1)
    saver.save_best(1.0)
    assert disk.best == []
    training.counters.step = 10
    saver.save_best(0.0)
    assert disk.attempts == 1
    saver.save_best(1.0)
    saver.save_best(2.0)
    assert disk.best == [10, 10] and disk.attempts == 2


def test_nothing_is_written_twice_and_all_is_summed_up(parts):
    saver, disk, training, said = parts()
    saver.save()
    saver.save_finally()
    training.counters.step = 1
    saver.save_finally()
    training.counters.last_eval = object()  # what has become known since
    saver.save_finally()
    saver.save()
    assert disk.saved == [0, 1, 1]
    assert said.messages == ["checkpoint of step 0: 3.0 MB, 1.0 MB of them replay, 0.50 s"]  # the first one
    assert saver.summary == "3 written, 9.0 MB in 1.50 s"


@pytest.mark.fault("F11")
@pytest.mark.parametrize(
    ("weights", "written"), [((0, float("nan")), 0), ((float("inf"), float("-inf")), 0), ((3e38,) * 2, 1)]
)
def test_networks_that_are_not_finite_are_never_written(parts, weights, written):
    saver, disk, training, _ = parts()
    training.weight[:2] = torch.tensor(weights)  # the sum of the last ones is infinite
    with nullcontext() if written else pytest.raises(NumericalError, match="w holds NaN"):
        saver.save()
    assert disk.attempts == written


@contextmanager
def no_descriptors() -> Iterator[None]:
    """All that this process may have are taken, really."""
    limits, taken = resource.getrlimit(resource.RLIMIT_NOFILE), []
    highest = max(int(one.name) for one in Path("/dev/fd").iterdir())
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 8, limits[1]))
    try:
        with suppress(OSError):
            while True:
                taken.append(os.dup(1))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for descriptor in taken:
            os.close(descriptor)


@pytest.mark.fault("F30")
def test_without_descriptors_a_checkpoint_is_tried_again(tmp_path):
    training, said = TrainState(), Said()
    manager = CheckpointManager(
        tmp_path / "checkpoints", tmp_path / "replay", keep=1, best=True, warn=said.warn
    )
    saver = Checkpointer(manager, training, said, metrics=dict, check=lambda: None)
    assert saver.save()
    for training.counters.step in (1, 2):
        with no_descriptors():
            assert not saver.save()
    assert ["Too many open files" in line and "tries again" in line for line in said.warnings] == [True] * 2
    training.counters.step = 3
    assert saver.save()
