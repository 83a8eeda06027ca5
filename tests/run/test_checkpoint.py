"""Checkpoints survive what kills a process, and notice what damages a disk."""

import hashlib
import json
import os
import re
import shutil

import pytest
import torch

from algorithm.errors import StorageError
from algorithm.run.checkpoint import checkpoint_steps, load_checkpoint, remove_drafts, save_checkpoint
from algorithm.run.keeper import find_checkpoint
from tests.run.kills import calls_on_the_way


def never(text):
    raise AssertionError(f"unexpected warning: {text}")


def content(value=1.0):
    return {"model": {"w": torch.full((2, 3), value), "n": torch.tensor(7)}, "optim": {"m": torch.zeros(0)}}


def test_what_was_saved_is_loaded(tmp_path):
    state = {"updates": 3, "best": None, "rng": {"state": 2**127 + 1}, "alpha": 0.1, "list": (1, 2)}
    path = save_checkpoint(tmp_path, 40_000, content(), state)
    assert path == tmp_path / "step_000040000"
    assert sorted(entry.name for entry in path.iterdir()) == [
        "manifest.json",
        "model.safetensors",
        "optim.safetensors",
        "state.json",
    ]
    loaded = load_checkpoint(path)
    assert loaded.step == 40_000
    assert loaded.state == {**state, "list": [1, 2]}
    for stem, named in content().items():
        assert loaded.tensors[stem].keys() == named.keys()
        for name, tensor in named.items():
            assert loaded.tensors[stem][name].dtype == tensor.dtype
            assert torch.equal(loaded.tensors[stem][name], tensor)
    assert json.loads((tmp_path / "latest.json").read_text()) == {"step": 40_000, "folder": path.name}


def test_behaviours_have_a_level_of_their_own(tmp_path):
    path = save_checkpoint(tmp_path, 1, {"a/model": {"w": torch.ones(1)}, "b/model": {}}, {})
    assert (path / "a/model.safetensors").is_file()
    assert load_checkpoint(path).tensors["a/model"]["w"].tolist() == [1.0]
    assert load_checkpoint(path).tensors["b/model"] == {}


def test_views_strides_and_shared_memory_are_fine(tmp_path):
    flat = torch.arange(6.0, requires_grad=True)
    tensors = {"whole": flat, "part": flat[2:], "twisted": flat.view(2, 3).t(), "again": flat}
    loaded = load_checkpoint(save_checkpoint(tmp_path, 1, {"model": tensors}, {})).tensors["model"]
    for name, tensor in tensors.items():
        assert torch.equal(loaded[name], tensor.detach())


def test_what_json_would_change_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(TypeError, match=r"state\.a\[0\]: the key 1 is not a string"):
        save_checkpoint(tmp_path, 1, {}, {"a": [{1: 2}]})
    with pytest.raises(ValueError, match="not JSON compliant"):
        save_checkpoint(tmp_path, 1, {}, {"a": float("inf")})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.fault("F01")
def test_killed_anywhere_the_newest_complete_checkpoint_loads(tmp_path, monkeypatch):
    finished = []
    for fatal in range(1, 100):
        root = tmp_path / str(fatal)
        save_checkpoint(root, 1, content(1.0), {})
        through = calls_on_the_way(
            monkeypatch, lambda root=root: save_checkpoint(root, 2, content(2.0), {}), fatal
        )
        loaded = load_checkpoint(find_checkpoint(root, warn=never))
        assert loaded.tensors["model"]["w"][0, 0] == loaded.step
        finished.append(loaded.step)
        remove_drafts(root)
        assert not list(root.glob(".draft*"))
        save_checkpoint(root, 2, content(2.0), {})  # the next run is not in the way of the litter
        if through:
            break
    assert finished[0] == 1
    assert finished[-1] == 2
    assert len(finished) > 10, "the kills did not cover the writing"
    assert finished == sorted(finished), "once it is there it stays there"


@pytest.mark.fault("F01")
def test_a_half_written_draft_is_ignored(tmp_path):
    path = save_checkpoint(tmp_path, 1, content(), {})
    draft = tmp_path / ".draft_step_000000002"
    shutil.copytree(path, draft)
    (draft / "manifest.json").unlink()
    assert checkpoint_steps(tmp_path) == [1]
    assert find_checkpoint(tmp_path, warn=never) == path


def test_the_same_step_again_replaces(tmp_path):
    save_checkpoint(tmp_path, 1, content(1.0), {})
    path = save_checkpoint(tmp_path, 1, {"model": content(5.0)["model"]}, {})
    assert load_checkpoint(path).tensors["model"]["w"][0, 0] == 5.0
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["latest.json", path.name]
    assert "optim" not in load_checkpoint(path).tensors


def flip_a_byte(path):
    data = bytearray((path / "model.safetensors").read_bytes())
    data[-1] ^= 1
    (path / "model.safetensors").write_bytes(data)


def list_also(path, name, data=b""):
    listed = json.loads((path / "manifest.json").read_text())["files"]
    listed[name] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    edit_manifest(path, files=listed)


def rewrite(path, name, data):
    """A file that is not what it should be, although its hash is right."""
    (path / name).write_bytes(data)
    list_also(path, name, data)


def edit_manifest(path, **changes):
    manifest = json.loads((path / "manifest.json").read_text())
    (path / "manifest.json").write_text(json.dumps({**manifest, **changes}))


DAMAGE = {
    "model.safetensors.*SHA-256": flip_a_byte,
    "model.safetensors.*bytes": lambda path: os.truncate(path / "model.safetensors", 10),
    "state.json.*0 bytes": lambda path: (path / "state.json").write_bytes(b""),
    "optim.safetensors.*No such file": lambda path: (path / "optim.safetensors").unlink(),
    "manifest.json.*No such file": lambda path: (path / "manifest.json").unlink(),
    "manifest.json.*not a manifest": lambda path: (path / "manifest.json").write_text("{}"),
    "manifest.json.*JSON": lambda path: (path / "manifest.json").write_bytes(b"\xff\x00"),
    "manifest.json.*not a manifest .*list": lambda path: (path / "manifest.json").write_text("[]"),
    "schema 99": lambda path: edit_manifest(path, schema=99),
    r"manifest.json.*outside.*\.\./x": lambda path: list_also(path, "../x"),
    "manifest.json.*points outside": lambda path: list_also(path, "/etc/hosts"),
    "not list state.json": lambda path: edit_manifest(path, files={}),
    "content cannot be read": lambda path: rewrite(path, "model.safetensors", b"\xff" * 20),
}


@pytest.mark.fault("F07")
@pytest.mark.parametrize("reason", DAMAGE)
def test_damage_is_noticed_and_the_one_before_is_used(tmp_path, reason):
    good = save_checkpoint(tmp_path, 1, content(), {})
    damaged = save_checkpoint(tmp_path, 2, content(), {})
    DAMAGE[reason](damaged)
    with pytest.raises(StorageError) as caught:
        load_checkpoint(damaged)
    assert caught.value.exit_code == 6
    assert re.search(reason, caught.value.line)
    warnings = []
    assert find_checkpoint(tmp_path, warn=warnings.append) == good
    assert len(warnings) == 1
    assert "step_000000002" in warnings[0]
    with pytest.raises(StorageError, match="damaged"):  # asked for by its step: no other will do
        find_checkpoint(tmp_path, 2, warn=never)


@pytest.mark.fault("F07")
def test_nothing_intact_is_an_error(tmp_path):
    flip_a_byte(save_checkpoint(tmp_path, 1, content(), {}))
    warnings = []
    with pytest.raises(StorageError, match="no complete checkpoint"):
        find_checkpoint(tmp_path, warn=warnings.append)
    assert warnings


@pytest.mark.fault("F26")
def test_a_symbolic_link_is_not_followed(tmp_path):
    path = save_checkpoint(tmp_path, 1, content(), {})
    secret = tmp_path / "elsewhere"
    (path / "state.json").rename(secret)
    (path / "state.json").symlink_to(secret)
    with pytest.raises(StorageError, match="outside"):
        load_checkpoint(path)


def test_no_checkpoint_is_a_storage_failure(tmp_path):
    with pytest.raises(StorageError, match="there is no checkpoint") as caught:
        find_checkpoint(tmp_path / "absent", warn=never)
    assert caught.value.exit_code == 6


def test_an_unknown_step_lists_those_there_are(tmp_path):
    for step in (100, 2000, 30_000):
        save_checkpoint(tmp_path, step, {}, {})
    with pytest.raises(StorageError, match="steps there: 100, 2000, 30000"):
        find_checkpoint(tmp_path, 5, warn=never)
    assert find_checkpoint(tmp_path, 2000, warn=never).name == "step_000002000"


def test_newest_is_by_number_beyond_nine_digits(tmp_path):
    for step in (9, 999_999_999, 1_000_000_000):
        save_checkpoint(tmp_path, step, {}, {})
    assert find_checkpoint(tmp_path, warn=never).name == "step_1000000000"


def test_a_full_disk_changes_nothing(tmp_path, monkeypatch):
    good = save_checkpoint(tmp_path, 1, content(), {})

    def full(_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(StorageError, match="free some disk space"):
            save_checkpoint(tmp_path, 2, content(), {})
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["latest.json", good.name]
