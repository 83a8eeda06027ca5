"""A checkpoint that cannot be written does not end a run at once."""

import itertools
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
from algorithm.run.checkpointer import Checkpointer
from algorithm.store.checkpoints.checkpoint import Snapshot
from algorithm.store.checkpoints.folders import checkpoint_steps
from algorithm.store.checkpoints.manager import CheckpointManager
from tests.lib.callbacks import watch

FULL = StorageError("the checkpoint cannot be written", where="here", why="the disk is full", fix="make room")


class TrainState:
    """Nothing but steps and a weight."""

    def __init__(self) -> None:
        self.counters, self.weight = SimpleNamespace(step=0, last_eval=None), torch.zeros(2)

    def snapshot(self, metrics) -> Snapshot:
        tensors = {"model": {"w": self.weight}, "run": {"seen": np.array([np.inf])}}
        return Snapshot(step=self.counters.step, tensors=tensors, state={"metrics": metrics})


@pytest.fixture
def parts(tmp_path, monkeypatch):
    """A checkpointer whose attempts of these numbers fail, its manager, training and warnings."""

    def make(*failing):
        training, warnings, number = TrainState(), list[str](), itertools.count(1)
        manager = CheckpointManager(tmp_path, tmp_path / "replay", keep=9, best=True, warn=warnings.append)

        def fail(snapshot):
            if next(number) in failing:
                raise FULL

        watch(monkeypatch, manager, "save", fail)
        console = SimpleNamespace(warn=warnings.append, message=lambda text: None)
        saver = Checkpointer(manager, training, console, metrics=dict, check=lambda: None)
        return saver, manager, training, warnings

    return make


@pytest.mark.fault("F08")
def test_failing_again_and_again_ends_the_run_with_the_last_good_one(parts, tmp_path):
    """A failure is told and tried again at the next save; a good one begins the count anew."""
    saver, _, training, warnings = parts(2, 3, 5, 6, 7)
    outcomes = []
    for training.counters.step in range(1, 7):
        outcomes.append(saver.save())
    assert outcomes == [True, False, False, True, False, False] and checkpoint_steps(tmp_path) == [1, 4]
    assert warnings == [f"{FULL.line} · training continues and tries again at the next save"] * 4
    training.counters.step = 7
    with pytest.raises(StorageError, match=r"the last good one is .*step_000000004"):
        saver.save()


@pytest.mark.fault("F08")
def test_the_last_one_has_to_be_written(parts):
    saver, _, _, _ = parts(1)
    with pytest.raises(StorageError, match="none was written before"):
        saver.save_finally()


@contextmanager
def no_descriptors() -> Iterator[None]:
    """Take all that this process may have."""
    limits, taken = resource.getrlimit(resource.RLIMIT_NOFILE), []
    highest = max(int(entry.name) for entry in Path("/dev/fd").iterdir())
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
def test_without_descriptors_a_checkpoint_is_tried_again(parts, tmp_path):
    saver, _, training, warnings = parts()
    assert saver.save()
    for training.counters.step in (1, 2):
        with no_descriptors():
            assert not saver.save()
    assert ["Too many open files" in line and "tries again" in line for line in warnings] == [True] * 2
    training.counters.step = 3
    assert saver.save() and checkpoint_steps(tmp_path) == [0, 3]


def test_the_best_is_marked_only_once_it_is_there(parts, tmp_path):
    saver, manager, training, _ = parts(1)
    saver.save_best(1.0)
    assert manager.is_best(1.0), "it was not written"
    training.counters.step = 10
    for score in (1.0, 0.5, 2.0):
        saver.save_best(score)
    assert not manager.is_best(2.0)
    assert [path.name for path in tmp_path.glob("step_*")] == ["step_000000010"], "once"


def test_nothing_is_written_twice_and_all_is_summed_up(parts, tmp_path):
    saver, _, training, _ = parts()
    saver.save()
    saver.save_finally()
    training.counters.step = 1
    saver.save_finally()
    training.counters.last_eval = object()  # what has become known since
    saver.save_finally()
    saver.save()
    assert sorted(path.name for path in tmp_path.glob("step_*")) == ["step_000000000", "step_000000001_2"]
    assert saver.summary.startswith("3 written, ")


@pytest.mark.fault("F11")
@pytest.mark.parametrize(
    ("weights", "written"), [((0, float("nan")), 0), ((float("inf"), float("-inf")), 0), ((3e38,) * 2, 1)]
)
def test_networks_that_are_not_finite_are_never_written(parts, tmp_path, weights, written):
    saver, _, training, _ = parts()
    training.weight[:2] = torch.tensor(weights)  # the sum of the last ones is infinite
    with nullcontext() if written else pytest.raises(NumericalError, match="w holds NaN"):
        saver.save()
    assert checkpoint_steps(tmp_path) == [0] * written
