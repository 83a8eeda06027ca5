"""Checkpoints survive what kills a process, and notice what damages a disk."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open

from algorithm.core.errors import StorageError
from algorithm.runs.checkpoints.checkpoint import (
    Snapshot,
    checkpoint_of,
    checkpoint_steps,
    load_checkpoint,
    load_replay,
    remove_drafts,
    remove_replaced,
    remove_segments,
    save_checkpoint,
    set_aside,
)
from algorithm.runs.checkpoints.manager import find_checkpoint
from tests.oracles_replay import digest
from tests.runs.kills import deaths
from tests.runs.malice import Trap, flip_a_byte, pickled, sign
from tests.runs.snapshots import content, files_of, grow, make_replay, never, restore, save


def test_what_was_saved_is_loaded(tmp_path):
    state = {"updates": 3, "best": None, "rng": {"state": 2**127 + 1}, "alpha": 0.1, "list": (1, 2)}
    root = tmp_path / "runs" / "checkpoints"
    saved = save_checkpoint(root, tmp_path / "replay", Snapshot(step=40_000, tensors=content(), state=state))
    assert saved.path == root / "step_000040000"
    assert files_of(saved.path).keys() == {
        "manifest.json",
        "model.safetensors",
        "optim.safetensors",
        "state.json",
    }
    assert saved.bytes_written == sum(map(len, files_of(saved.path).values())) and saved.replay_bytes == 0
    assert not (tmp_path / "replay").exists()
    loaded = load_checkpoint(saved.path)
    assert loaded.step == 40_000
    assert loaded.state == {**state, "list": [1, 2]}
    for stem, named in content().items():
        assert loaded.tensors[stem].keys() == named.keys()
        for name, tensor in named.items():
            assert loaded.tensors[stem][name].dtype == tensor.dtype
            assert torch.equal(loaded.tensors[stem][name], tensor)


def written(root: Path, tensors, state=None) -> Path:
    snapshot = Snapshot(step=1, tensors=tensors, state=state or {})
    return save_checkpoint(root, root / "replay", snapshot).path


def test_a_file_says_what_is_trained_and_the_others_nothing(tmp_path):
    trained = {"a/model": {"w", "b"}, "c/model": ()}
    tensors = {
        "a/model": {"n": torch.ones(1), "w": torch.ones(2), "b": torch.ones(1)},
        "c/model": {},
        "run": {},
    }
    path = save_checkpoint(
        tmp_path, tmp_path / "replay", Snapshot(step=1, tensors=tensors, state={}, trained=trained)
    ).path
    headers = {}
    for stem in tensors:
        with safe_open(path / f"{stem}.safetensors", "pt") as file:
            headers[stem] = file.metadata()
    assert headers == {"a/model": {"trained": '["b", "w"]'}, "c/model": {"trained": "[]"}, "run": None}
    assert load_checkpoint(path).tensors["a/model"].keys() == {"n", "w", "b"}


def test_views_strides_and_shared_memory_are_fine(tmp_path):
    flat = torch.arange(6.0, requires_grad=True)
    tensors = {"whole": flat, "part": flat[2:], "twisted": flat.view(2, 3).t(), "again": flat}
    loaded = load_checkpoint(written(tmp_path, {"model": tensors})).tensors["model"]
    for name, tensor in tensors.items():
        assert torch.equal(loaded[name], tensor.detach())


NUMBERS = ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")


def test_arrays_of_numpy_are_saved_as_tensors_are(tmp_path):
    arrays = {name: np.arange(6).astype(name).reshape(2, 3).T for name in (*NUMBERS, "float32", "float64")}
    arrays |= {
        "big end": np.arange(3, dtype=">i4"),
        "number": np.array(2**63, np.uint64),
        "none": np.empty((0, 2)),
    }
    for array in arrays.values():
        array.flags.writeable = False
    loaded = load_checkpoint(written(tmp_path, {"run": arrays})).tensors["run"]
    for name, array in arrays.items():
        assert np.array_equal(loaded[name].numpy(), array), name
        assert loaded[name].numpy().dtype == array.dtype.newbyteorder("="), name


def test_what_would_come_back_changed_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(TypeError, match=r"state\.a\[0\]: the key 1 is not a string"):
        written(tmp_path, {}, {"a": [{1: 2}]})
    with pytest.raises(ValueError, match="not JSON compliant"):
        written(tmp_path, {}, {"a": float("inf")})
    with pytest.raises(TypeError, match="run, names: <U1 cannot be saved"):
        written(tmp_path, {"run": {"names": np.array(["a"])}})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.fault("F01")
def test_killed_anywhere_the_newest_complete_checkpoint_loads(tmp_path):
    replay = make_replay()
    grow(replay, 5)
    run = tmp_path / "run"
    save(run, 1, 1.0, replay)
    before = digest(replay)
    shutil.copytree(run, base := tmp_path / "base")
    grow(replay, 3)
    root, replays, finished = run / "checkpoints", run / "replay", []
    for _ in deaths(lambda: save(run, 2, 2.0, replay), lambda: restore(base, run)):
        path = find_checkpoint(root, warn=never).path
        loaded, other = load_checkpoint(path), make_replay()
        assert loaded.tensors["model"]["w"][0, 0] == loaded.step
        assert load_replay(path, replays, "", other)
        assert digest(other) == {1: before, 2: digest(replay)}[loaded.step]
        finished.append(loaded.step)
        remove_drafts(root)
        assert remove_segments(root, replays) == []
        if loaded.step == 1:
            assert files_of(run) == files_of(base), "litter"
    assert finished[0] == 1 and finished[-1] == 2
    assert len(finished) > 25, "the kills did not cover the writing"
    assert finished == sorted(finished), "once it is there it stays there"


def test_the_same_step_again_stands_beside_the_one_before_and_counts(tmp_path):
    paths = [save(tmp_path, 1, value) for value in (1.0, 5.0, 6.0)]
    root = paths[0].parent
    names = ["step_000000001", "step_000000001_2", "step_000000001_3"]
    assert [path.name for path in paths] == names
    assert checkpoint_steps(root) == [1] and checkpoint_of(root, 1) == paths[-1]
    assert find_checkpoint(root, 1, warn=never).tensors["model"]["w"][0, 0] == 6.0
    remove_replaced(root)
    assert list(root.iterdir()) == [paths[-1]]


@pytest.mark.fault("F01")
def test_a_step_that_is_saved_again_is_there_at_every_moment(tmp_path):
    replay = make_replay()
    grow(replay, 5)
    run = tmp_path / "run"
    save(run, 1, 1.0, replay)
    shutil.copytree(run, base := tmp_path / "base")
    grow(replay, 2)
    root, replays, found = run / "checkpoints", run / "replay", []

    def again() -> None:
        save(run, 1, 2.0, replay)
        remove_replaced(root)
        remove_segments(root, replays)

    for _ in deaths(again, lambda: restore(base, run)):
        path, loaded = find_checkpoint(root, 1, warn=never).path, make_replay()
        assert load_replay(path, replays, "", loaded)
        value = float(load_checkpoint(path).tensors["model"]["w"][0, 0])
        assert (value == 2.0) == (digest(loaded) == digest(replay))
        found.append(value)
    assert found == sorted(found) and set(found) == {1.0, 2.0}


def list_also(path, name, data=b""):
    listed = json.loads((path / "manifest.json").read_text())["files"]
    listed[name] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    edit_manifest(path, files=listed)


def rewrite(path, name, data):
    """A file that is not what it should be, although its hash is right."""
    (path / name).write_bytes(data)
    list_also(path, name, data)


def edit_manifest(path, **changes):
    sign(path, {**json.loads((path / "manifest.json").read_text()), **changes})


def flip_a_bit(path):
    manifest = (path / "manifest.json").read_text()
    (path / "manifest.json").write_text(manifest.replace('"step": 2', '"step": 3'))


def longer(path):
    with (path / "manifest.json").open("ab") as file:
        file.truncate(65 * 2**20)  # a hole: it takes no room


DAMAGE = {
    "model.safetensors.*SHA-256": lambda path: flip_a_byte(path / "model.safetensors"),
    "model.safetensors.*10 bytes": lambda path: os.truncate(path / "model.safetensors", 10),
    "state.json.*0 bytes": lambda path: (path / "state.json").write_bytes(b""),
    "optim.safetensors.*No such file": lambda path: (path / "optim.safetensors").unlink(),
    "manifest.json.*No such file": lambda path: (path / "manifest.json").unlink(),
    "manifest.json.*not a manifest": lambda path: (path / "manifest.json").write_text("{}"),
    "manifest.json.*no JSON": lambda path: (path / "manifest.json").write_bytes(b"\xff\x00"),
    "manifest.json.*no JSON .*nested too deeply": lambda path: (path / "manifest.json").write_text(
        "[" * 100_000
    ),
    "manifest.json.*not a manifest .*list": lambda path: (path / "manifest.json").write_text("[]"),
    "manifest.json.*far too many": longer,
    "manifest.json.*SHA-256 is not that of its content": flip_a_bit,
    "manifest.json.*of step 3, and its folder is called": lambda path: edit_manifest(path, step=3),
    "manifest.json.*no JSON .*Infinity": lambda path: (path / "manifest.json").write_text(
        '{"schema": 5, "step": Infinity}'
    ),
    "manifest.json.*no JSON .*1e999": lambda path: (path / "manifest.json").write_text('{"step": 1e999}'),
    "manifest.json.*the step is True": lambda path: edit_manifest(path, step=True),
    "manifest.json.*no size": lambda path: edit_manifest(
        path, files={"state.json": {"bytes": 1.5, "sha256": ""}}
    ),
    "state.json.*far too many": lambda path: edit_manifest(
        path, files={"state.json": {"bytes": 2**60, "sha256": ""}}
    ),
    "state.json.*not hold an object": lambda path: rewrite(path, "state.json", b"[]"),
    "state.json.*stands twice": lambda path: rewrite(path, "state.json", b'{"a": 1, "a": 2}'),
    "state.json.*64 levels": lambda path: rewrite(path, "state.json", b'{"a":' * 65 + b"1" + b"}" * 65),
    "schema 99": lambda path: edit_manifest(path, schema=99),
    r"points outside of the folder, to \.\./x": lambda path: list_also(path, "../x.safetensors"),
    "points outside of the folder, to /etc": lambda path: list_also(path, "/etc/x.safetensors"),
    "not list state.json": lambda path: edit_manifest(path, files={}),
    "model.*content cannot be read": lambda path: rewrite(path, "model.safetensors", b"\xff" * 20),
    "state.json.*no JSON": lambda path: rewrite(path, "state.json", b"{"),
}


@pytest.mark.fault("F07")
@pytest.mark.parametrize("reason", DAMAGE)
def test_damage_is_noticed_and_the_one_before_is_used(tmp_path, reason):
    good, damaged = save(tmp_path, 1), save(tmp_path, 2)
    DAMAGE[reason](damaged)
    with pytest.raises(StorageError) as caught:
        load_checkpoint(damaged)
    assert caught.value.exit_code == 6
    assert re.search(reason, caught.value.line)
    warnings = []
    assert find_checkpoint(good.parent, warn=warnings.append).path == good
    (warning,) = warnings
    assert "step_000000002" in warning and "trying the one before" in warning
    with pytest.raises(StorageError, match="damaged"):  # asked for by its step: no other will do
        find_checkpoint(good.parent, 2, warn=never)
    assert set_aside(good).name == "step_000000001.damaged" and checkpoint_steps(good.parent) == [2]
    with pytest.raises(StorageError, match="no complete checkpoint"):
        find_checkpoint(good.parent, warn=warnings.append)


@pytest.mark.fault("F26")
@pytest.mark.parametrize("name", ["state.json", "model.safetensors", "manifest.json", "."])
def test_a_symbolic_link_is_not_followed(tmp_path, name):
    path = save(tmp_path, 1)
    linked = path if name == "." else path / name
    linked.rename(elsewhere := tmp_path / "elsewhere")
    linked.symlink_to(elsewhere)
    with pytest.raises(StorageError, match="symbolic link"):
        load_checkpoint(path)
    if name == "state.json":
        linked.unlink()
        os.mkfifo(linked)  # whoever opened it would wait for ever
        with pytest.raises(StorageError, match="no plain file"):
            load_checkpoint(path)


def as_pt(trap: Trap, file: Path) -> None:
    torch.save({"w": trap}, file)


def as_npz(trap: Trap, file: Path) -> None:
    with file.open("wb") as opened:
        np.savez(opened, w=np.array([trap], object))


def giant_header(trap: Trap, file: Path) -> None:
    file.write_bytes(struct.pack("<Q", 2**62) + b"{" * 100)


@pytest.mark.fault("F26")
@pytest.mark.parametrize("write", [as_pt, as_npz, giant_header, pickled])
def test_a_file_of_another_kind_is_refused_and_nothing_in_it_runs(tmp_path, write):
    """Its hash is right: whoever made it has rewritten the manifest as well."""
    path = save(tmp_path, 1)
    for name in ("model.safetensors", "state.json"):
        trap = Trap(tmp_path / "sprung")
        write(trap, path / name)
        list_also(path, name, (path / name).read_bytes())
        with pytest.raises(StorageError, match="damaged"):
            load_checkpoint(path)
        assert not trap.marker.exists()


def test_an_unknown_step_lists_those_there_are(tmp_path):
    with pytest.raises(StorageError, match="there is no checkpoint") as caught:
        find_checkpoint(tmp_path / "absent", warn=never)
    assert caught.value.exit_code == 6
    for step in (100, 2000, 1_000_000_000):
        path = save(tmp_path, step)
    assert find_checkpoint(path.parent, warn=never).path.name == "step_1000000000"
    with pytest.raises(StorageError, match="steps there: 100, 2000, 1000000000"):
        find_checkpoint(path.parent, 5, warn=never)
    assert find_checkpoint(path.parent, 2000, warn=never).path.name == "step_000002000"


@pytest.mark.fault("F01")
def test_folders_and_files_reach_the_disk_before_the_name_that_counts(tmp_path, monkeypatch):
    """A power cut keeps what has been synced: files, then the folders of their names, then the rename."""
    happened = []
    fsync, rename = os.fsync, Path.rename

    def note_sync(handle):
        happened.append(Path(f"/proc/self/fd/{handle}").readlink().relative_to(tmp_path).as_posix())
        fsync(handle)

    def note_rename(path, target):
        happened.append(f"{path.name} → {target.name}")
        return rename(path, target)

    replay = make_replay()
    grow(replay, 3)
    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr(Path, "rename", note_rename)
    save(tmp_path, 1, replay=replay)
    draft = "checkpoints/.draft_step_000000001"
    moved = happened.index(".draft_step_000000001 → step_000000001")
    before, after = happened[:moved], happened[moved + 1 :]
    names = ("model.safetensors", "optim.safetensors", "state.json", "replay.json", "manifest.json")
    assert before == [
        ".",  # checkpoints/ is made
        ".",  # replay/ is made
        "replay/seg_000000001.npy",
        "replay/seg_000000001_priority.npy",
        "replay",
        *sorted((f"{draft}/{name}" for name in names), key=before.index),
        draft,
    ]
    assert before[-2] == f"{draft}/manifest.json" and after == ["checkpoints"]
