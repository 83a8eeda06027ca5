"""Replays on disk: little is written at a time, all of it comes back, and nothing else does."""

import json
import os
import re
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch

from algorithm.core.errors import StorageError
from algorithm.replay.buffer import ReplayBuffer
from algorithm.replay.samplers import FifoSampler, PrioritizedSampler, UniformSampler
from algorithm.store.checkpoints import segments
from algorithm.store.checkpoints.checkpoint import (
    Snapshot,
    check_replay,
    load_replay,
    save_checkpoint,
)
from algorithm.store.checkpoints.manager import find_checkpoint
from algorithm.store.checkpoints.manifest import DamagedError, Entry, read_manifest
from tests.lib.buffers import result
from tests.lib.malice import Trap, flip_a_byte, pickled, sign
from tests.lib.oracles_replay import digest
from tests.store.snapshots import files_of, grow, make_replay, never, save


def sizes(run: Path) -> dict[str, int]:
    return {name: len(data) for name, data in files_of(run / "replay").items()}


def loaded(run: Path, step: int, replay: ReplayBuffer | None = None, level: str = "") -> ReplayBuffer:
    """A fresh replay that goes on from a checkpoint."""
    replay = make_replay() if replay is None else replay
    path = find_checkpoint(run / "checkpoints", step, warn=never).path
    assert load_replay(path, run / "replay", level, replay)
    return replay


@pytest.mark.parametrize(
    ("sampler", "chunk"),
    [(PrioritizedSampler, 64), (UniformSampler, segments.CHUNK_BYTES), (FifoSampler, segments.CHUNK_BYTES)],
)
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
    grow(replay, 3, streams=1, episode=1100)
    assert replay.unsaved().shape[0] == 3 + 1, "three rows, and the head they began with"
    for step in (2, 3):
        save(tmp_path, step, replay=replay)
        assert sizes(tmp_path).keys() - first.keys() == {"seg_000000002.npy"}, "then nothing is new"
    assert sum(first.values()) > 200 * sizes(tmp_path)["seg_000000002.npy"]


def test_rows_and_their_files_leave_together(tmp_path):
    """Forty rows of capacity and more than twelve new ones a save: the last few segments are needed."""
    replay, last_ids = make_replay(UniformSampler()), {}
    for step in range(1, 10):
        grow(replay, 6)
        path = save(tmp_path, step, replay=replay)
        last_ids[f"seg_00000000{step}.npy"] = replay.next_id - 1
        listed = read_manifest(path).segments
        assert list(listed) == [name for name, id_ in last_ids.items() if id_ >= replay.next_id - 40]
    assert 3 <= len(listed) <= 4


def test_refreshed_carries_come_back(tmp_path):
    replay = make_replay()
    grow(replay, 10)
    save(tmp_path, 1, replay=replay)
    assert sizes(tmp_path).keys() == {"seg_000000001.npy", "seg_000000001_priority.npy"}
    replay.refresh_carry(result(torch.tensor([[1, 3, 5]]), [0.0], carry=torch.rand(1, 3, 2)))
    grow(replay, 2)
    save(tmp_path, 2, replay=replay)
    assert digest(loaded(tmp_path, 2)) == digest(replay)
    save(tmp_path, 3, replay=loaded(tmp_path, 2))
    assert "seg_000000003_carry.npy" in sizes(tmp_path), "the segments still hold the old ones"


def test_a_replay_is_written_anew_where_its_files_are_not(tmp_path):
    replay = make_replay(UniformSampler())
    grow(replay, 5)
    for folder, step, lost in (("one", 1, None), ("two", 2, None), ("two", 3, "seg_000000002.npy")):
        if lost:
            (tmp_path / folder / "replay" / lost).unlink()
        grow(replay, 1)
        save(tmp_path / folder, step, replay=replay)
        assert digest(loaded(tmp_path / folder, step, make_replay(UniformSampler()))) == digest(replay)


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


def test_writing_and_reading_take_little_memory_of_their_own(tmp_path):
    chunk = np.ones((1000, 64), np.float32)
    content = segments.ArrayChunks(chunk.dtype, (100_000, 64), (chunk for _ in range(100)))
    tracemalloc.start()
    entry = segments.write_array(tmp_path / "a.npy", content)
    read = segments.read_array(tmp_path, "a.npy", entry, chunk.dtype, content.shape)
    assert all((part == 1).all() for part in read.chunks)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10 * 2**20 < entry.nbytes


NEW, OLD, PRIORITY = "seg_000000002.npy", "seg_000000001.npy", "seg_000000002_priority.npy"
DAMAGE = {
    rf"{NEW}.*SHA-256": lambda run: flip_a_byte(run / "replay" / NEW),
    rf"{PRIORITY}.*SHA-256": lambda run: flip_a_byte(run / "replay" / PRIORITY),
    rf"{NEW}.*70 bytes": lambda run: os.truncate(run / "replay" / NEW, 70),
    rf"{NEW}.* 0 bytes": lambda run: os.truncate(run / "replay" / NEW, 0),
    rf"{PRIORITY}.*No such file": lambda run: (run / "replay" / PRIORITY).unlink(),
    r"replay\.json.*SHA-256": lambda run: flip_a_byte(run / "checkpoints/step_000000002/replay.json", 5),
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
    with pytest.raises(DamagedError) as caught:
        load_replay(damaged, tmp_path / "replay", "", make_replay())
    assert re.search(reason, caught.value.line)
    assert digest(loaded(tmp_path, 1)) == before
    assert find_checkpoint(tmp_path / "checkpoints", warn=never).path == damaged, "good enough to play with"


def relist(path: Path, replays: Path, *, index: dict | None = None) -> None:
    """Make the manifest agree with whatever stands in the files, as somebody would who has forged them."""
    if index is not None:
        (path / "replay.json").write_text(json.dumps({"": index}))
    manifest = json.loads((path / "manifest.json").read_text())
    names = {*manifest["replay"]["segments"], *(row["file"] for row in (index or {}).get("rows", ()))}

    def entry(file: Path) -> dict[str, object]:
        return Entry.of(file.read_bytes() if file.is_file() else b"").listed

    segments = {name: entry(replays / name) for name in names}
    sign(path, {**manifest, "replay": {"index": entry(path / "replay.json"), "segments": segments}})


def as_object_array(trap: Trap, file: Path) -> None:
    np.save(file, np.array([trap], object), allow_pickle=True)


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
@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("seg_000000001.npy", as_object_array),
        ("seg_000000001.npy", giant_header),
        ("seg_000000001.npy", same_length),
        ("seg_000000001_priority.npy", as_object_array),
    ],
)
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
    "it is not an index": {"rows": [{"file": "seg_000000001.npy"}]},
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
    index = json.loads((path / "replay.json").read_text())[""]
    relist(path, tmp_path / "replay", index={**index, **FORGED[why]})
    with pytest.raises((StorageError, ValueError), match=re.escape(why)):
        load_replay(path, tmp_path / "replay", "", make_replay())


@pytest.mark.fault("F26")
@pytest.mark.parametrize("what", ["level/seg_000000001.npy", "level"])
def test_a_link_in_the_place_of_a_segment_or_a_level_is_not_followed(tmp_path, what):
    replay, replays = make_replay(), tmp_path / "replay"
    grow(replay, 5)
    snapshot = Snapshot(step=1, tensors={}, state={}, replays={"level": replay})
    path = save_checkpoint(tmp_path / "checkpoints", replays, snapshot).path
    (replays / what).rename(tmp_path / "elsewhere")
    (replays / what).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StorageError, match="symbolic link"):
        check_replay(path, replays)
