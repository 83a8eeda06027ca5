"""Replays on disk: little is written at a time, all of it comes back, and nothing else does."""

from __future__ import annotations

import hashlib
import json
import os
import re
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch

from algorithm.core.data import Segment
from algorithm.core.errors import StorageError
from algorithm.core.spec import ActionSpec, AgentSpec, ObsSpec
from algorithm.replay.buffer import FifoSampler, PrioritizedSampler, ReplayBuffer, UniformSampler
from algorithm.runs.checkpoints import segments
from algorithm.runs.checkpoints.checkpoint import (
    Snapshot,
    check_replay,
    give_up_replay,
    load_checkpoint,
    load_replay,
    remove_segments,
    save_checkpoint,
)
from algorithm.runs.checkpoints.manager import find_checkpoint
from algorithm.runs.checkpoints.manifest import DamagedError
from tests.oracles_replay import digest, stored
from tests.replay.buffers import result
from tests.runs.malice import Trap, pickled, sign
from tests.runs.small_disk import fill, on_a_small_disk
from tests.runs.snapshots import files_of, grow, make_replay, never, save


def sizes(run: Path) -> dict[str, int]:
    return {name: len(data) for name, data in files_of(run / "replay").items()}


def loaded(run: Path, step: int, replay: ReplayBuffer | None = None, level: str = "") -> ReplayBuffer:
    """A fresh replay that goes on from a checkpoint."""
    replay = make_replay() if replay is None else replay
    path = find_checkpoint(run / "checkpoints", step, warn=never).path
    assert load_replay(path, run / "replay", level, replay)
    return replay


@pytest.mark.parametrize("sampler", [PrioritizedSampler, UniformSampler, FifoSampler])
@pytest.mark.parametrize("chunk", [64, segments.CHUNK_BYTES])
def test_a_loaded_replay_goes_on_bit_for_bit_through_many_checkpoints(tmp_path, monkeypatch, sampler, chunk):
    """The ring of 40 rows goes round; each time another process could have gone on."""
    monkeypatch.setattr(segments, "CHUNK_BYTES", chunk)
    replay, other = make_replay(sampler()), make_replay(sampler())
    for step in range(1, 8):
        grow(replay, 5)
        save(tmp_path, step, replay=replay)
        assert digest(loaded(tmp_path, step, make_replay(sampler()))) == digest(replay)
        grow(other, 5)
        save(tmp_path / "other", step, replay=other)
        other = loaded(tmp_path / "other", step, make_replay(sampler()))
        assert digest(other) == digest(replay)
    assert files_of(tmp_path / "other" / "replay") == files_of(tmp_path / "replay"), "after loading too"


def test_a_checkpoint_writes_little_more_than_what_is_new(tmp_path):
    replay = make_replay(UniformSampler(), capacity=5000)
    grow(replay, 1000, episode=1100)
    save(tmp_path, 1, replay=replay)
    first = sizes(tmp_path)
    assert first.keys() == {"seg_000000001.npy"}
    grow(replay, 3, streams=1, episode=1100)
    new = replay.unsaved().shape[0]
    assert new == 3 + 1, "three rows, and the head they began with"
    saved = save_checkpoint(
        tmp_path / "checkpoints",
        tmp_path / "replay",
        Snapshot(step=2, tensors={}, state={}, replays={"": replay}),
    )
    assert sizes(tmp_path).keys() - first.keys() == {"seg_000000002.npy"}
    header = len(np.lib.format.magic(1, 0)) + 2
    data = saved.replay_bytes - new * replay.record_type.itemsize
    assert header < data < 1024 and saved.replay_bytes == sizes(tmp_path)["seg_000000002.npy"]
    assert sum(first.values()) > 200 * saved.replay_bytes
    save(tmp_path, 3, replay=replay)
    assert sizes(tmp_path).keys() - first.keys() == {"seg_000000002.npy"}, "nothing is new"
    assert digest(loaded(tmp_path, 3, make_replay(UniformSampler(), capacity=5000))) == digest(replay)


def test_rows_and_their_files_leave_together(tmp_path):
    """Forty rows of capacity and more than twelve new ones a save: the last few segments are needed."""
    replay, last_ids = make_replay(UniformSampler()), {}
    for step in range(1, 10):
        grow(replay, 6)
        path = save(tmp_path, step, replay=replay)
        last_ids[f"seg_00000000{step}.npy"] = replay.next_id - 1
        listed = json.loads((path / "manifest.json").read_text())["replay"]["segments"]
        assert list(listed) == [name for name, id_ in last_ids.items() if id_ >= replay.next_id - 40]
    assert 3 <= len(listed) <= 4
    for step in range(1, 9):
        (tmp_path / f"checkpoints/step_00000000{step}").rename(tmp_path / f"gone{step}")
    assert remove_segments(tmp_path / "checkpoints", tmp_path / "replay") == []
    assert sizes(tmp_path).keys() == listed.keys()
    assert digest(loaded(tmp_path, 9, make_replay(UniformSampler()))) == digest(replay)


def test_behaviours_have_replays_of_their_own(tmp_path):
    replays = {"walker": make_replay(), "runner": make_replay(FifoSampler(), capacity=30)}
    for step in (1, 2):
        for number, replay in enumerate(replays.values()):
            grow(replay, 3 + number)
        snapshot = Snapshot(step=step, tensors={}, state={}, replays=replays)
        save_checkpoint(tmp_path / "checkpoints", tmp_path / "replay", snapshot)
    assert {name.split("/")[0] for name in sizes(tmp_path)} == {"walker", "runner"}
    assert digest(loaded(tmp_path, 2, level="walker")) == digest(replays["walker"])
    runner = loaded(tmp_path, 2, make_replay(FifoSampler(), capacity=30), "runner")
    assert digest(runner) == digest(replays["runner"])
    with pytest.raises(StorageError, match="no replay 'flyer', only 'walker', 'runner'"):
        loaded(tmp_path, 2, level="flyer")


def test_refreshed_carries_come_back(tmp_path):
    replay = make_replay()
    grow(replay, 10)
    save(tmp_path, 1, replay=replay)
    assert sizes(tmp_path).keys() == {"seg_000000001.npy", "seg_000000001_priority.npy"}
    replay.refresh_carry(result(torch.tensor([[1, 3, 5]]), [0.0], carry=torch.rand(1, 3, 2)))
    for step in (2, 3):
        grow(replay, 2)
        save(tmp_path, step, replay=replay)
        assert f"seg_00000000{step}_carry.npy" in sizes(tmp_path)
        assert digest(loaded(tmp_path, step)) == digest(replay)
    again = loaded(tmp_path, 3)
    save(tmp_path, 4, replay=again)
    assert "seg_000000004_carry.npy" in sizes(tmp_path), "the segments still hold the old ones"


def test_a_replay_is_written_anew_where_its_files_are_not(tmp_path):
    replay = make_replay(UniformSampler())
    grow(replay, 5)
    save(tmp_path / "one", 1, replay=replay)
    grow(replay, 1)
    save(tmp_path / "two", 2, replay=replay)
    assert digest(loaded(tmp_path / "two", 2, make_replay(UniformSampler()))) == digest(replay)
    (tmp_path / "two/replay/seg_000000002.npy").unlink()
    save(tmp_path / "two", 3, replay=replay)
    assert digest(loaded(tmp_path / "two", 3, make_replay(UniformSampler()))) == digest(replay)


def test_a_replay_is_written_anew_before_it_consists_of_too_many_files(tmp_path, monkeypatch):
    monkeypatch.setattr(segments, "MAX_PARTS", 3)
    replay, parts = make_replay(UniformSampler(), capacity=1000), []
    for step in range(1, 9):
        grow(replay, 2)
        save(tmp_path, step, replay=replay)
        parts.append(len(replay.saved_files))
    assert parts == [1, 2, 3, 1, 2, 3, 1, 2]
    assert digest(loaded(tmp_path, 8, make_replay(UniformSampler(), capacity=1000))) == digest(replay)


@pytest.mark.parametrize(("steps", "files"), [(10, 2), (30, 1)])
def test_a_larger_replay_goes_on_with_the_files_or_has_lost_rows_and_ids(tmp_path, steps, files):
    replay = make_replay(UniformSampler())
    grow(replay, steps)
    save(tmp_path, 1, replay=replay)
    larger = loaded(tmp_path, 1, make_replay(UniformSampler(), capacity=100))
    grow(larger, 3)
    save(tmp_path, 2, replay=larger)
    assert len(larger.saved_files) == files
    assert digest(loaded(tmp_path, 2, make_replay(UniformSampler(), capacity=100))) == digest(larger)


def test_a_replay_that_is_given_up_leaves_a_checkpoint_to_play_with(tmp_path):
    replay = make_replay()
    grow(replay, 5)
    path = save(tmp_path, 1, replay=replay)
    before = files_of(path)
    give_up_replay(path)
    give_up_replay(path)  # once more changes nothing
    assert load_checkpoint(path).step == 1
    assert not load_replay(path, tmp_path / "replay", "", make_replay())
    remove_segments(path.parent, tmp_path / "replay")
    assert sizes(tmp_path) == {}
    assert find_checkpoint(path.parent, warn=never).path == path
    gone = {"replay.json", "manifest.json"}
    assert files_of(path).items() >= {name: data for name, data in before.items() if name not in gone}.items()


class Wide:
    """Thirty megabytes of rows, which are quickly made."""

    rows = 100_000
    spec = AgentSpec(ObsSpec(("obs",), ((3,),), ("float32",)), ActionSpec((), 1))

    def make(self) -> ReplayBuffer:
        return ReplayBuffer(
            self.spec, capacity=self.rows, batch_size=4, carry_shape=(64,), sampler=PrioritizedSampler()
        )

    def segment(self) -> Segment:
        n, rng = self.rows - 1, np.random.default_rng(0)
        action, z, logp = self.spec.action.random(rng, self.spec.action.all_allowed(n))
        return Segment(
            stream=0,
            start_step=0,
            obs={"obs": rng.random((n + 1, 3), np.float32)},
            action_mask=self.spec.action.all_allowed(n + 1),
            carry=rng.random((n + 1, 64), np.float32),
            action=action,
            z=z,
            behaviour_logp=logp,
            reward=rng.random(n, np.float32),
            terminated=np.zeros(n, np.bool_),
            truncated=np.zeros(n, np.bool_),
        )


def test_saving_and_loading_take_little_memory_of_their_own(tmp_path):
    wide = Wide()
    replay, other = wide.make(), wide.make()
    replay.add(wide.segment())

    def peak(act) -> float:
        tracemalloc.start()
        act()
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found / 2**20

    saving = peak(lambda: save(tmp_path, 1, replay=replay))
    assert sum(sizes(tmp_path).values()) > 28 * 2**20
    loading = peak(lambda: loaded(tmp_path, 1, other))
    assert saving < 20 and loading < 20, (saving, loading)
    assert np.array_equal(stored(replay), stored(other))


def edit(file: Path, at: int) -> None:
    data = bytearray(file.read_bytes())
    data[at] ^= 1
    file.write_bytes(data)


NEW, OLD, PRIORITY = "seg_000000002.npy", "seg_000000001.npy", "seg_000000002_priority.npy"
DAMAGE = {
    rf"{NEW}.*SHA-256": lambda run: edit(run / "replay" / NEW, -1),
    rf"{PRIORITY}.*SHA-256": lambda run: edit(run / "replay" / PRIORITY, -1),
    rf"{NEW}.*70 bytes": lambda run: os.truncate(run / "replay" / NEW, 70),
    rf"{NEW}.* 0 bytes": lambda run: os.truncate(run / "replay" / NEW, 0),
    rf"{PRIORITY}.*No such file": lambda run: (run / "replay" / PRIORITY).unlink(),
    r"replay\.json.*SHA-256": lambda run: edit(run / "checkpoints/step_000000002/replay.json", 5),
    r"replay\.json.*No such file": lambda run: (run / "checkpoints/step_000000002/replay.json").unlink(),
}


@pytest.mark.fault("F07")
@pytest.mark.parametrize("reason", DAMAGE)
def test_damage_of_a_replay_is_noticed_while_it_is_loaded(tmp_path, reason):
    replay = make_replay()
    grow(replay, 5)
    save(tmp_path, 1, replay=replay)
    before = digest(replay)
    grow(replay, 2)
    damaged = save(tmp_path, 2, replay=replay)
    DAMAGE[reason](tmp_path)
    for read in (
        lambda: load_replay(damaged, tmp_path / "replay", "", make_replay()),
        lambda: check_replay(damaged, tmp_path / "replay"),
    ):
        with pytest.raises(DamagedError) as caught:
            read()
        assert re.search(reason, caught.value.line) and caught.value.exit_code == 6
    assert digest(loaded(tmp_path, 1)) == before
    assert find_checkpoint(tmp_path / "checkpoints", warn=never).path == damaged, "good enough to play with"


def relist(path: Path, replays: Path, *, index: dict | None = None) -> None:
    """Make the manifest agree with whatever stands in the files, as somebody would who has forged them."""
    if index is not None:
        (path / "replay.json").write_text(json.dumps(index))
    manifest = json.loads((path / "manifest.json").read_text())

    def entry(file: Path) -> dict[str, object]:
        data = file.read_bytes() if file.is_file() else b""
        return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}

    listed = manifest["replay"]
    names = {*listed["segments"]}
    for one in json.loads((path / "replay.json").read_text()).values():
        names |= {row["file"] for row in one["rows"]} | {array["file"] for array in one["arrays"].values()}
    manifest["replay"] = {
        "index": entry(path / "replay.json"),
        "segments": {name: entry(replays / name) for name in names},
    }
    sign(path, manifest)


def as_object_array(trap: Trap, file: Path) -> None:
    np.save(file, np.array([trap], object), allow_pickle=True)


def as_npz(trap: Trap, file: Path) -> None:
    with file.open("wb") as opened:
        np.savez(opened, rows=np.array([trap], object))


def giant_header(trap: Trap, file: Path) -> None:
    """A header of version 2.0 that says it is four gigabytes long, in a file as long as it was."""
    data = b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**32 - 1)
    file.write_bytes(data + bytes(file.stat().st_size - len(data)))


def same_length(trap: Trap, file: Path) -> None:
    """A pickle as long as the segment was, so that only its first bytes give it away."""
    length = file.stat().st_size
    pickled(trap, file)
    with file.open("ab") as opened:
        opened.truncate(length)


@pytest.mark.fault("F26")
@pytest.mark.parametrize("write", [as_object_array, as_npz, giant_header, same_length])
@pytest.mark.parametrize("name", ["seg_000000001.npy", "seg_000000001_priority.npy"])
def test_a_forged_segment_is_refused_and_nothing_in_it_runs(tmp_path, write, name):
    replay, trap = make_replay(), Trap(tmp_path / "sprung")
    grow(replay, 5)
    path = save(tmp_path, 1, replay=replay)
    write(trap, tmp_path / "replay" / name)
    relist(path, tmp_path / "replay")
    with pytest.raises(StorageError, match=rf"{name}(.|\n)*(its header is not|do not make)"):
        load_replay(path, tmp_path / "replay", "", make_replay())
    assert not trap.marker.exists()


FORGED = {
    "it points outside of the folder, to ../secret.npy": {
        "rows": [{"file": "../secret.npy", "rows": 0, "last_id": 0}]
    },
    "it points outside of the folder, to /etc/passwd": {
        "rows": [{"file": "/etc/passwd", "rows": 0, "last_id": 0}]
    },
    "the dtype '|O' is not known": {
        "arrays": {"priority": {"file": "seg_000000001_priority.npy", "dtype": "|O", "shape": [10]}}
    },
    "priorities for 12 rows": {
        "arrays": {"priority": {"file": "seg_000000001_priority.npy", "dtype": "<f8", "shape": [2**60]}}
    },
    "it is no index": {"rows": [{"file": "seg_000000001.npy"}]},
    "() priorities for 12 rows": {
        "arrays": {"priority": {"file": "seg_000000001_priority.npy", "dtype": "<f8", "shape": []}}
    },
}


@pytest.mark.fault("F26")
@pytest.mark.parametrize("why", FORGED)
def test_a_forged_index_leads_nowhere(tmp_path, why):
    replay = make_replay()
    grow(replay, 5)
    path = save(tmp_path, 1, replay=replay)
    (tmp_path / "secret.npy").write_bytes(b"secret")
    index = json.loads((path / "replay.json").read_text())
    relist(path, tmp_path / "replay", index={"": {**index[""], **FORGED[why]}})
    with pytest.raises((StorageError, ValueError), match=re.escape(why)):
        load_replay(path, tmp_path / "replay", "", make_replay())


@pytest.mark.fault("F26")
@pytest.mark.parametrize("what", ["seg_000000001.npy", "level"])
def test_a_link_in_the_place_of_a_segment_or_a_level_is_not_followed(tmp_path, what):
    replay = make_replay()
    grow(replay, 5)
    snapshot = Snapshot(step=1, tensors={}, state={}, replays={"level": replay})
    path = save_checkpoint(tmp_path / "checkpoints", tmp_path / "replay", snapshot).path
    linked = tmp_path / "replay" / "level" / what if what != "level" else tmp_path / "replay" / "level"
    linked.rename(tmp_path / "elsewhere")
    linked.symlink_to(tmp_path / "elsewhere")
    for act in (
        lambda: check_replay(path, tmp_path / "replay"),
        lambda: load_replay(path, tmp_path / "replay", "level", make_replay()),
    ):
        with pytest.raises(StorageError, match="symbolic link"):
            act()


@pytest.mark.fault("F08")
def test_a_full_disk_changes_nothing_and_the_next_attempt_makes_good(tmp_path):
    """A real one: a file system of 512 kB, with less and less room; a save needs several blocks."""
    disk, replay = tmp_path / "disk", make_replay(capacity=4000)
    disk.mkdir()

    def act() -> None:
        run, ballast = disk / "run", disk / "ballast"
        grow(replay, 300)
        save(run, 1, replay=replay)
        grow(replay, 700)
        before, unsaved = files_of(run), replay.unsaved().shape
        for room in range(0, 90_000, 12_000):
            fill(ballast, room)
            with pytest.raises(StorageError) as caught:
                save(run, 2, replay=replay)
            assert caught.value.exit_code == 6 and "the checkpoint cannot be written" in caught.value.what
            ballast.unlink()
            assert files_of(run) == before, f"with room for {room} bytes something was left"
            assert find_checkpoint(run / "checkpoints", warn=never).step == 1
            assert replay.unsaved().shape == unsaved
        save(run, 2, replay=replay)
        assert digest(loaded(run, 2, make_replay(capacity=4000))) == digest(replay)

    if not on_a_small_disk(disk, 512 * 1024, act):
        pytest.skip("mounting a file system is not allowed here, not even in a namespace of one's own")
