"""Which checkpoints stay, and which one is meant."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import pytest
import torch

from algorithm.errors import StorageError
from algorithm.run.checkpoint import checkpoint_steps, load_checkpoint
from algorithm.run.keeper import Keeper, find_checkpoint
from tests.run.kills import calls_on_the_way


def never(text):
    raise AssertionError(f"unexpected warning: {text}")


def keeper(root, *, keep=2, best=True, warn=never) -> Keeper:
    return Keeper(root, keep=keep, best=best, warn=warn)


def save(kept: Keeper, step: int, score: float | None = None) -> None:
    """As the trainer does it: a better evaluation is followed by a checkpoint of that very step."""
    if score is None:
        kept.save(step, {"model": {"step": torch.tensor(step)}}, {})
    elif kept.is_best(score):
        save(kept, step)
        kept.mark_best(score)


def test_the_newest_stay(tmp_path):
    kept = keeper(tmp_path, keep=2)
    for step in (10, 20, 30, 40):
        save(kept, step)
        assert kept.has(step) and not kept.has(step - 10)
    assert checkpoint_steps(tmp_path) == [30, 40]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["latest.json", "step_000000030", "step_000000040"]


def test_the_best_stays_as_well_until_a_better_one_comes(tmp_path):
    kept = keeper(tmp_path, keep=1)
    for step, score in ((10, -5.0), (20, None), (30, -6.0), (40, None), (50, math.nan)):
        save(kept, step, score)
    assert checkpoint_steps(tmp_path) == [10, 40]
    assert json.loads((tmp_path / "best.json").read_text()) == {
        "step": 10,
        "folder": "step_000000010",
        "mean": -5.0,
    }
    save(kept, 60, -4.0)
    assert checkpoint_steps(tmp_path) == [60]
    assert find_checkpoint(tmp_path, "best", warn=never).name == "step_000000060"


def test_no_best_one_where_none_is_wanted(tmp_path):
    kept = keeper(tmp_path, keep=1, best=False)
    assert not kept.is_best(1e300)
    save(kept, 10, 5.0)
    assert not tmp_path.exists() or list(tmp_path.iterdir()) == []


@pytest.mark.fault("F01")
def test_killed_anywhere_what_the_files_name_is_there(tmp_path, monkeypatch):
    """A new best one with one to keep: it is written, named twice, and two others are removed."""
    found = set()
    for fatal in range(1, 200):
        root = tmp_path / str(fatal)
        kept = keeper(root, keep=1)
        save(kept, 1, 1.0)
        save(kept, 2)
        through = calls_on_the_way(monkeypatch, lambda kept=kept: save(kept, 3, 2.0), fatal)
        named = {name: find_checkpoint(root, name, warn=never) for name in ("latest", "best")}
        steps = [int(load_checkpoint(path).tensors["model"]["step"]) for path in named.values()]
        for step in checkpoint_steps(root):
            find_checkpoint(root, step, warn=never)  # what is left is whole
        found.add((*steps, *checkpoint_steps(root)))
        shutil.rmtree(root)
        if through:
            break
    assert through
    # What latest.json and best.json name, then the checkpoints there are: every state was met.
    assert found == {(2, 1, 1, 2), (2, 1, 1, 2, 3), (3, 1, 1, 2, 3), (3, 1, 1, 3), (3, 3, 1, 3), (3, 3, 3)}


def test_what_cannot_be_removed_is_a_warning(tmp_path, monkeypatch):
    warnings: list[str] = []
    kept = keeper(tmp_path, keep=1, warn=warnings.append)
    save(kept, 1)

    rename = Path.rename

    def busy(path, target):
        if path.name == "step_000000001":
            raise OSError(16, "Device or resource busy")
        return rename(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", busy)
        save(kept, 2)
    (warning,) = warnings
    assert "step_000000001" in warning and "busy" in warning
    save(kept, 3)
    assert checkpoint_steps(tmp_path) == [3], "it is tried again"


def test_latest_is_what_its_file_names_and_by_default_the_newest(tmp_path):
    kept = keeper(tmp_path, keep=3)
    for step in (1, 2):
        save(kept, step)
    (tmp_path / "latest.json").write_text('{"step": 1, "folder": "step_000000001"}')
    assert find_checkpoint(tmp_path, "latest", warn=never).name == "step_000000001"
    assert find_checkpoint(tmp_path, warn=never).name == "step_000000002"


@pytest.mark.fault("F07")
@pytest.mark.parametrize(
    ("text", "what", "why"),
    [
        (None, "no checkpoint is known as the best one", "steps there: 1, 2"),
        ('{"step": 7, "folder": "step_000000007"}', "step 7, which is not there", "steps there: 1, 2"),
        ('{"step": "../1"}', "damaged", "does not name a step"),
        ("{", "damaged", "Expecting"),
        ("[]", "damaged", "does not hold an object"),
    ],
)
def test_a_file_that_names_nothing_is_an_error_that_names_the_file(tmp_path, text, what, why):
    kept = keeper(tmp_path)
    for step in (1, 2):
        save(kept, step)
    if text:
        (tmp_path / "best.json").write_text(text)
    with pytest.raises(StorageError) as caught:
        find_checkpoint(tmp_path, "best", warn=never)
    assert what in caught.value.what and why in caught.value.why
    assert caught.value.where.endswith("best.json") and caught.value.exit_code == 6


@pytest.mark.fault("F07")
def test_a_damaged_best_one_is_not_replaced_by_another(tmp_path):
    kept = keeper(tmp_path)
    save(kept, 1, 1.0)
    save(kept, 2)
    (tmp_path / "step_000000001" / "state.json").write_text("")
    with pytest.raises(StorageError, match="damaged"):
        find_checkpoint(tmp_path, "best", warn=never)
