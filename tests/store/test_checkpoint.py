"""Checkpoints survive what kills a process, and notice what damages a disk."""

import hashlib
import json
import os
import re
import struct
from pathlib import Path

import numpy as np
import pytest
import torch

from algorithm.core.errors import StorageError
from algorithm.store.checkpoints.checkpoint import Snapshot, load_checkpoint, save_checkpoint
from algorithm.store.checkpoints.folders import checkpoint_steps, set_aside
from algorithm.store.checkpoints.manager import find_checkpoint
from tests.lib.callbacks import watch
from tests.lib.malice import Trap, flip_a_byte, pickled, sign
from tests.store.snapshots import files_of, grow, make_replay, never, save


def written(root: Path, tensors, state=None, **more) -> Path:
    snapshot = Snapshot(step=40_000, tensors=tensors, state=state or {}, **more)
    return save_checkpoint(root / "checkpoints", root / "replay", snapshot).path


def test_what_was_saved_is_loaded(tmp_path):
    state = {"updates": 3, "best": None, "rng": {"state": 2**127 + 1}, "alpha": 0.1, "list": (1, 2)}
    path = written(tmp_path, {"a/model": {"w": torch.ones(2), "n": torch.tensor(7)}, "run": {}}, state)
    assert path == tmp_path / "checkpoints" / "step_000040000"
    files = {"manifest.json", "a/model.safetensors", "run.safetensors", "state.json"}
    assert files_of(path).keys() == files and not (tmp_path / "replay").exists()
    loaded = load_checkpoint(path)
    assert (loaded.step, loaded.state) == (40_000, {**state, "list": [1, 2]})
    assert loaded.tensors.keys() == {"a/model", "run"} and loaded.tensors["a/model"].keys() == {"n", "w"}


FLAT = torch.arange(6.0, requires_grad=True)
VALUES = {
    **{"whole": FLAT, "part": FLAT[2:], "twisted": FLAT.view(2, 3).t(), "again": FLAT},
    **{f"uint{bits}": np.arange(6).astype(f"uint{bits}").reshape(2, 3).T for bits in (8, 16, 32, 64)},
    **{"bool": np.array([True, False]), "big end": np.arange(3, dtype=">i4"), "none": np.empty((0, 2))},
    "number": np.array(2**63, np.uint64),
}
"""Views, strides and shared memory, and arrays of numpy."""


def test_values_of_any_layout_and_dtype_are_saved(tmp_path):
    loaded = load_checkpoint(written(tmp_path, {"model": VALUES})).tensors["model"]
    for name, value in VALUES.items():
        expected = value.detach().numpy() if isinstance(value, torch.Tensor) else value
        assert np.array_equal(loaded[name].numpy(), expected), name
        assert loaded[name].numpy().dtype == expected.dtype.newbyteorder("="), name


@pytest.mark.parametrize(
    ("tensors", "state", "error"),
    [
        ({}, {"a": float("inf")}, ValueError),
        ({"run": {"names": np.array(["a"])}}, {}, TypeError),
    ],
)
def test_what_would_come_back_changed_is_refused_before_anything_is_written(tmp_path, tensors, state, error):
    with pytest.raises(error):
        written(tmp_path, tensors, state)
    assert list(tmp_path.iterdir()) == []


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
    "manifest.json.*not JSON": lambda path: (path / "manifest.json").write_bytes(b"\xff\x00"),
    "manifest.json.*not JSON .*nested too deeply": lambda path: (path / "manifest.json").write_text(
        "[" * 100_000
    ),
    "manifest.json.*not a manifest .*list": lambda path: (path / "manifest.json").write_text("[]"),
    "manifest.json.*far too many": longer,
    "manifest.json.*SHA-256 is not that of its content": flip_a_bit,
    "manifest.json.*of step 3, and its folder is called": lambda path: edit_manifest(path, step=3),
    "manifest.json.*not JSON .*Infinity": lambda path: (path / "manifest.json").write_text(
        '{"schema": 5, "step": Infinity}'
    ),
    "manifest.json.*not JSON .*1e999": lambda path: (path / "manifest.json").write_text('{"step": 1e999}'),
    "manifest.json.*the step is True": lambda path: edit_manifest(path, step=True),
    "manifest.json.*not a size": lambda path: edit_manifest(
        path, files={"state.json": {"bytes": 1.5, "sha256": ""}}
    ),
    "state.json.*far too many": lambda path: edit_manifest(
        path, files={"state.json": {"bytes": 2**60, "sha256": ""}}
    ),
    "state.json.*not hold an object": lambda path: rewrite(path, "state.json", b"[]"),
    "schema 99": lambda path: edit_manifest(path, schema=99),
    r"points outside of the folder, to \.\./x": lambda path: list_also(path, "../x.safetensors"),
    "points outside of the folder, to /etc": lambda path: list_also(path, "/etc/x.safetensors"),
    "not list state.json": lambda path: edit_manifest(path, files={}),
    "model.*content cannot be read": lambda path: rewrite(path, "model.safetensors", b"\xff" * 20),
    "state.json.*not JSON": lambda path: rewrite(path, "state.json", b"{"),
}


@pytest.mark.fault("F07")
@pytest.mark.parametrize("reason", DAMAGE)
def test_damage_is_noticed(tmp_path, reason):
    damaged = save(tmp_path, 2)
    DAMAGE[reason](damaged)
    with pytest.raises(StorageError) as caught:
        load_checkpoint(damaged)
    assert caught.value.exit_code == 6
    assert re.search(reason, caught.value.line)


@pytest.mark.fault("F07")
def test_the_one_before_a_damaged_one_is_used_unless_it_was_asked_for(tmp_path):
    good, damaged = save(tmp_path, 1), save(tmp_path, 2)
    (damaged / "state.json").write_bytes(b"")
    warnings = []
    assert find_checkpoint(good.parent, warn=warnings.append).path == good
    (warning,) = warnings
    assert "step_000000002" in warning
    with pytest.raises(StorageError, match="damaged"):
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


@pytest.mark.fault("F01")
def test_folders_and_files_reach_the_disk_before_the_name_that_counts(tmp_path, monkeypatch):
    """A power cut keeps what has been synced: files, then the folders of their names, then the rename."""
    happened = []

    def note_sync(handle):
        happened.append(Path(f"/proc/self/fd/{handle}").readlink().relative_to(tmp_path).as_posix())

    replay = make_replay()
    grow(replay, 3)
    watch(monkeypatch, os, "fsync", note_sync)
    watch(monkeypatch, Path, "rename", lambda path, target: happened.append(f"{path.name} → {target.name}"))
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
