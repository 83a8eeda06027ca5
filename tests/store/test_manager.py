"""Which checkpoints stay, with which replays, and which one is meant."""

import errno
import json
import math
import os
import re
import shutil
from pathlib import Path

import pytest
import torch

from algorithm.core.errors import StorageError
from algorithm.replay.buffer import ReplayBuffer
from algorithm.store.checkpoints.checkpoint import Snapshot, check_replay, load_checkpoint, load_replay
from algorithm.store.checkpoints.folders import checkpoint_of, checkpoint_steps
from algorithm.store.checkpoints.manager import CheckpointManager, find_checkpoint
from algorithm.store.checkpoints.manifest import read_manifest
from tests.lib.oracles_replay import digest
from tests.store.kills import deaths, failures
from tests.store.snapshots import files_of, grow, make_replay, never, restore


def manager(run: Path, *, keep=2, best=True, warn=never, **kwargs) -> CheckpointManager:
    return CheckpointManager(run / "checkpoints", run / "replay", keep=keep, best=best, warn=warn, **kwargs)


def save(
    kept: CheckpointManager, step: int, score: float | None = None, replay: ReplayBuffer | None = None
) -> None:
    """As the trainer does it: a better evaluation is followed by a checkpoint of that very step."""
    if score is None:
        replays = {} if replay is None else {"": replay}
        kept.save(
            Snapshot(step=step, tensors={"model": {"step": torch.tensor(step)}}, state={}, replays=replays)
        )
    elif kept.is_best(score):
        save(kept, step, replay=replay)
        kept.mark_best(score)


def steps(run: Path) -> list[int]:
    return checkpoint_steps(run / "checkpoints")


def find(run: Path, which=None, warn=never, replays: bool = True) -> Path:
    """The folder of a checkpoint, with the replay intact if it matters."""
    path = find_checkpoint(run / "checkpoints", which, warn=warn).path
    if replays:
        check_replay(path, run / "replay")
    return path


def loaded(run: Path, step: int) -> ReplayBuffer | None:
    """The replay of a checkpoint, all files of which are intact; None if it has none."""
    replay = make_replay()
    return replay if load_replay(find(run, step), run / "replay", "", replay) else None


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_newest_stay(tmp_path):
    kept = manager(tmp_path, keep=2)
    for step in (10, 20, 30, 40, 40):
        save(kept, step)
        assert kept.has(step) and kept.latest == checkpoint_of(tmp_path / "checkpoints", step)
    assert names(tmp_path / "checkpoints") == ["latest.json", "step_000000030", "step_000000040_2"]
    (tmp_path / "checkpoints/latest.json").write_text('{"step": 30, "folder": "step_000000030"}')
    assert find(tmp_path, "latest").name == "step_000000030"
    assert find(tmp_path).name == "step_000000040_2"


def test_the_best_stays_as_well_until_a_better_one_comes(tmp_path):
    kept = manager(tmp_path, keep=1)
    for step, score in ((10, -5.0), (20, None), (30, -6.0), (40, None), (50, math.nan)):
        save(kept, step, score)
    assert steps(tmp_path) == [10, 40]
    assert json.loads((tmp_path / "checkpoints/best.json").read_text()) == {
        "step": 10,
        "folder": "step_000000010",
        "mean": -5.0,
    }
    save(kept, 60, -4.0)
    assert steps(tmp_path) == [60]
    assert find(tmp_path, "best").name == "step_000000060"


def test_milestones_stay_for_ever(tmp_path):
    """The first checkpoint at or after 25 and after 60, also if it was the newest for a while."""
    for again in range(2):
        kept = manager(tmp_path, keep=1, best=False, milestones=(60, 25, 1000))
        kept.resume(90 * again)
        for step in range(90 * again + 10, 90 * again + 91, 20):
            save(kept, step)
    assert steps(tmp_path) == [30, 70, 180]


@pytest.mark.parametrize(
    ("replay", "have"),
    [
        ("always", {10: True, 30: True, 40: True}),
        ("last", {10: False, 30: False, 40: True}),
        ("never", {10: False, 30: False, 40: False}),
    ],
)
def test_which_checkpoints_keep_the_replay(tmp_path, replay, have):
    """10 is the best one, 30 and 40 the newest. All can be played with."""
    kept, rows = manager(tmp_path, replay=replay), make_replay()
    digests = {}
    for step, score in ((10, 1.0), (20, None), (30, None), (40, None)):
        grow(rows, 3)
        digests[step] = digest(rows)
        save(kept, step, score, rows)
    for step, has in have.items():
        found = loaded(tmp_path, step)
        assert (found is not None) == has
        assert found is None or digest(found) == digests[step]
        assert load_checkpoint(find(tmp_path, step, replays=False)).step == step
    own = {f"seg_{step:09d}_priority.npy" for step, has in have.items() if has}
    assert {path.name for path in (tmp_path / "replay").glob("*_priority.npy")} == own


@pytest.mark.fault("F01")
@pytest.mark.parametrize("replay", ["always", pytest.param("last", marks=pytest.mark.slow)])
def test_killed_anywhere_what_the_files_name_is_there(tmp_path, replay):
    """A new best one with one to keep: it is written, named twice, and two others are removed."""
    run, rows, digests = tmp_path / "run", make_replay(), {}
    kept = manager(run, keep=1, replay=replay)
    for step, score in ((1, 1.0), (2, None)):
        grow(rows, 3)
        digests[step] = digest(rows)
        save(kept, step, score, rows)
    shutil.copytree(run, base := tmp_path / "base")
    grow(rows, 3)
    digests[3] = digest(rows)
    found: list[tuple[int, ...]] = []
    for _ in deaths(lambda: save(kept, 3, 2.0, rows), lambda: restore(base, run)):
        newest = load_checkpoint(find(run)).step
        named = [load_checkpoint(find(run, which)).step for which in ("latest", "best")]
        found.append((*named, *steps(run)))
        for step in steps(run):
            has = loaded(run, step)  # what is left is whole
            assert has is not None or (replay == "last" and step != newest)
            assert has is None or digest(has) == digests[step]
        warnings: list[str] = []
        again = manager(run, keep=1, replay=replay, warn=warnings.append)
        again.resume(newest)
        assert again.has(newest) and warnings == []
        assert no_litter(run)
    # What latest.json and best.json name, then the checkpoints there are: every state was met, in this order.
    assert list(dict.fromkeys(found)) == [
        (2, 1, 1, 2),
        (2, 1, 1, 2, 3),
        (3, 1, 1, 2, 3),
        (3, 1, 1, 3),
        (3, 3, 1, 3),
        (3, 3, 3),
    ]


def no_litter(run: Path) -> bool:
    """Whether nothing is there but checkpoints, what names them, and segments that one of them names."""
    paths = [checkpoint_of(run / "checkpoints", step) for step in steps(run)]
    listed = {name for path in paths for name in read_manifest(path).segments}
    named = {"latest.json", "best.json", *(path.name for path in paths)}
    return set(names(run / "checkpoints")) <= named and set(names(run / "replay")) == listed


def test_what_cannot_be_removed_is_a_warning(tmp_path, monkeypatch):
    warnings: list[str] = []
    kept, rename = manager(tmp_path, keep=1, warn=warnings.append), Path.rename
    save(kept, 1)

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
    assert steps(tmp_path) == [3], "it is tried again"


@pytest.mark.fault("F08")
def test_a_save_that_fails_leaves_all_as_it_was_and_the_next_one_makes_good(tmp_path):
    """Whichever change of the disk fails. One behind the renaming is only told: the checkpoint is there."""
    run, rows, warnings = tmp_path / "run", make_replay(), []
    kept = manager(run, keep=1, warn=warnings.append)
    for step, score in ((1, 1.0), (2, None)):
        grow(rows, 3)
        save(kept, step, score, rows)
    before, unsaved = files_of(run), rows.unsaved().shape
    shutil.copytree(run, base := tmp_path / "base")
    grow(rows, 3)
    outcomes = (tmp_path / "outcomes").open("ab", buffering=0)

    def attempt() -> None:
        try:
            save(kept, 3, replay=rows)
        except StorageError as error:
            assert "No space left on device" in str(error) and "free some disk space" in str(error)
            assert kept.has(2) and files_of(run) == before and rows.unsaved().shape > unsaved
            outcomes.write(b"f")
        else:
            outcomes.write(b"w" if warnings else b"s")
            assert find(run, "latest") and find(run, "best"), "what they name stays"

    def then() -> None:
        if not kept.has(3):
            save(kept, 3, replay=rows)
        assert digest(loaded(run, 3)) == digest(rows)
        grow(rows, 1)
        save(kept, 4, replay=rows)
        assert digest(loaded(run, 4)) == digest(rows) and no_litter(run)

    for _ in failures(attempt, lambda: restore(base, run), then):
        pass
    found = (tmp_path / "outcomes").read_text()
    assert re.fullmatch("f{20,}w{8,}s", found), found


def test_resume_knows_the_best_and_the_last_one(tmp_path):
    first = manager(tmp_path, keep=1)
    for step, score in ((10, 5.0), (20, None), (30, None)):
        save(first, step, score)
    kept = manager(tmp_path, keep=1)
    kept.resume(30)
    assert kept.has(30) and kept.latest == checkpoint_of(tmp_path / "checkpoints", 30)
    assert not kept.is_best(5.0) and kept.is_best(5.1)
    save(kept, 40)
    assert steps(tmp_path) == [10, 40], "the best one still stays"


@pytest.mark.fault("F07")
def test_resume_before_the_last_one_leaves_what_came_later_behind(tmp_path):
    """What is damaged of it gets another name."""
    rows, first = make_replay(), manager(tmp_path, keep=9)
    for step, score in ((10, 1.0), (20, None), (30, 2.0), (40, None), (50, None)):
        grow(rows, 2)
        save(first, step, score, rows)
    (tmp_path / "checkpoints/step_000000040/state.json").write_text("")
    (tmp_path / "replay/seg_000000050_priority.npy").unlink()
    assert find(tmp_path, replays=False).name == "step_000000050", "its replay is read when it is loaded"
    warnings: list[str] = []
    kept = manager(tmp_path, keep=9, warn=warnings.append)
    kept.resume(20)
    told = ("step_000000040.damaged", "step_000000050.damaged", "steps 30")
    assert [word for word, warning in zip(told, warnings, strict=True) if word in warning] == [*told]
    assert steps(tmp_path) == [10, 20] and find(tmp_path, "latest").name == "step_000000020"
    assert not (tmp_path / "checkpoints/best.json").exists() and kept.is_best(-100.0)


@pytest.mark.fault("F07")
@pytest.mark.parametrize("text", ["", "[]", '{"step": 1, "mean": "NaN"}', '{"step": "../1", "mean": 1.0}'])
def test_resume_finds_the_best_anew_where_its_file_says_nothing(tmp_path, text):
    save(manager(tmp_path), 1, 9.0)
    pointer = tmp_path / "checkpoints/best.json"
    pointer.write_text(text)
    warnings: list[str] = []
    kept = manager(tmp_path, warn=warnings.append)
    kept.resume(1)
    assert kept.is_best(0.0) and not pointer.exists()
    assert all("best.json" in warning for warning in warnings) and len(warnings) == (text in ("", "[]"))


@pytest.mark.fault("F07")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "no checkpoint is recorded as the best one"),
        ('{"step": 7, "folder": "step_000000007"}', "step 7, which does not exist"),
        ('{"step": "../1"}', "does not name a step"),
        ("{", "Expecting"),
    ],
)
def test_a_file_that_names_nothing_is_an_error_that_names_the_file(tmp_path, text, said):
    save(manager(tmp_path), 1)
    if text:
        (tmp_path / "checkpoints/best.json").write_text(text)
    with pytest.raises(StorageError) as caught:
        find(tmp_path, "best")
    assert said in str(caught.value) and caught.value.where.endswith("best.json")


@pytest.mark.fault("F08")
def test_segments_stay_while_a_manifest_cannot_be_read(tmp_path, monkeypatch):
    """A disk that does not answer for a moment: what a checkpoint needs is not known, and all of it stays."""
    replay, said, opened = make_replay(), [], os.open
    kept = manager(tmp_path, keep=3, best=False, warn=said.append)

    def failing(what, *args, **kwargs):
        if Path(what).name == "manifest.json":
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return opened(what, *args, **kwargs)

    for step, patched in ((10, opened), (20, failing)):
        grow(replay, 5)
        with monkeypatch.context() as patch:
            patch.setattr(os, "open", patched)
            save(kept, step, replay=replay)
    assert len(said) == 1 and "no segments of replays are removed" in said[0]
    assert all(find(tmp_path, step) for step in (10, 20))
