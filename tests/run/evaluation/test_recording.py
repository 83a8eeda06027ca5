"""Recordings: a plain file that holds every finished episode and nothing else."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from algorithm.core.data import Episode
from algorithm.core.errors import EnvError, StorageError
from algorithm.core.spec import DEFAULT_BEHAVIOUR
from algorithm.demos.npz import NpzWriter
from algorithm.run.evaluation.evaluate import evaluate
from algorithm.run.evaluation.recording import Recording
from algorithm.run.evaluation.video import VideoRecorder
from tests.lib.small_disk import child
from tests.lib.toys_agents import Attentive, Both, Guests, allowed, carried, chosen, random_script, see, tale
from tests.run.evaluation.test_video import Noisy

_NEW_MOUNTS, _NEW_USER = 0x00020000, 0x10000000  # CLONE_NEWNS, CLONE_NEWUSER of sched.h


_NO_DISK = 77


def on_a_small_disk(folder: Path, nbytes: int, act: Callable[[], object]) -> bool:
    """Run ``act`` in a process in which ``folder`` is a file system of ``nbytes``; it goes with the process.

    False: this machine lets nobody mount one. Raises AssertionError if ``act`` failed.
    """

    def mounted() -> None:
        if not _mount(folder, nbytes):
            os._exit(_NO_DISK)
        act()

    code = os.waitstatus_to_exitcode(child(mounted))
    assert code in (0, _NO_DISK), "it failed, see what it printed"
    return code == 0


def fill(file: Path, leave: int) -> None:
    """Take all the room of a file system but ``leave`` bytes."""
    room = os.statvfs(file.parent)
    file.write_bytes(bytes(max(0, room.f_bavail * room.f_frsize - leave)))


def _mount(folder: Path, nbytes: int) -> bool:
    libc = ctypes.CDLL(None, use_errno=True)
    owner = os.getuid(), os.getgid()
    if libc.unshare(_NEW_MOUNTS) and not _as_root_of_its_own(libc, *owner):
        return False
    libc.mount(b"none", b"/", None, 0x4000 | 0x40000, None)  # private: nobody else sees it
    if libc.mount(b"tmpfs", os.fsencode(folder), b"tmpfs", 0, f"size={nbytes}".encode()):
        print(f"tmpfs: {os.strerror(ctypes.get_errno())}", file=sys.stderr)
        return False
    return True


def _as_root_of_its_own(libc: ctypes.CDLL, uid: int, gid: int) -> bool:
    if libc.unshare(_NEW_USER | _NEW_MOUNTS):
        return False
    proc = Path("/proc/self")
    (proc / "setgroups").write_text("deny")
    (proc / "uid_map").write_text(f"0 {uid} 1")
    (proc / "gid_map").write_text(f"0 {gid} 1")
    return True


ONE = {DEFAULT_BEHAVIOUR: Attentive()}


def record(path: Path, env, players, episodes: int, **options) -> list[Episode]:
    told: list[Episode] = []
    evaluate(env, players, episodes, on_episode=told.append, callback=Recording(NpzWriter(path)), **options)
    return told


def test_a_recording_holds_what_each_agent_by_itself_brings(tmp_path, rng):
    script = random_script(rng, 80, 5)
    path = tmp_path / "a.npz"
    limit = 6
    expected = tale(script, {0, 1}, limit)
    with pytest.raises(
        (StopIteration, IndexError)
    ):  # the script is over: what was finished until then is there
        record(path, Guests(script, {0, 1}), ONE, 10**6, length_limit=limit)
    with np.load(path, allow_pickle=False) as file:
        told = list(zip(file["agent"].tolist(), file["total"].tolist(), file["length"].tolist(), strict=True))
        assert sorted(told) == sorted(expected[2]) and len(told) > 20
        assert set(file["behaviour"]) == {DEFAULT_BEHAVIOUR}
        numbers = {name.split("/")[0] for name in file.files if "/" in name}
        assert numbers == {str(i) for i in range(len(told))}
        rows = []
        for i, (agent, total, length) in enumerate(told):
            at = {name.partition("/")[2]: file[name] for name in file.files if name.startswith(f"{i}/")}
            moments = [tuple(moment) for moment in at["obs/obs"].astype(int).tolist()]
            episode = moments[0][1]
            assert moments == [(agent, episode, step) for step in range(length + 1)]
            seen = see(moments)
            assert all(np.array_equal(at[f"obs/{name}"], seen[name]) for name in seen)
            assert at["obs/tag"].dtype == np.uint8 and at["action"].dtype == np.float32
            assert np.array_equal(at["action_mask"], allowed(moments))
            assert np.array_equal(at["carry"], [carried(moment) for moment in moments])
            assert np.array_equal(at["action"], chosen(moments[:-1]))
            assert at["reward"].sum() == total and not (at["terminated"] | at["truncated"])[:-1].any()
            ends = at["terminated"].tolist(), at["truncated"].tolist()
            rows += [(*m, float(m[2] + 1), t, u) for m, t, u in zip(moments[:-1], *ends, strict=True)]
    finished = {row[:2] for row in expected[0] if row[4] or row[5]}
    assert sorted(rows) == sorted(row for row in expected[0] if row[:2] in finished)


def test_episodes_stand_in_the_order_in_which_they_ended_and_by_behaviour(tmp_path):
    path = tmp_path / "a.npz"
    env = Both(a=Guests(["T", "T", "."], {0}), b=Guests([".", ".", "T"], {0}))
    record(path, env, {"a": Attentive(), "b": Attentive()}, 1)
    with np.load(path) as file:
        assert file["behaviour"].tolist() == ["a", "a", "b"]
        assert file["length"].tolist() == [1, 1, 3]


def test_the_file_is_replaced_only_by_a_whole_one(tmp_path):
    path = tmp_path / "a.npz"
    path.write_text("old")
    with pytest.raises(EnvError):
        record(path, _Failing([".", "."], {0}), ONE, 1)
    record(path, Guests(["."] * 3, {0}), ONE, 1, stop=iter([False, False, True]).__next__)  # none finished
    assert path.read_text() == "old"
    record(path, Guests(["T"], {0}), ONE, 1)
    with np.load(path) as file:
        assert file["length"].tolist() == [1]
    assert list(tmp_path.iterdir()) == [path]


class _Failing(Guests):
    def step(self, actions):
        raise EnvError("the wheel came off")


@pytest.mark.parametrize(("path", "why"), [("nowhere/a.npz", "No such file"), (".", "it is a folder")])
def test_where_it_cannot_be_written_is_said_before_anything_is_played(tmp_path, path, why):
    with pytest.raises(StorageError, match="the recording cannot be written") as raised:
        record(tmp_path / path, _Failing(["."], {0}), ONE, 1)
    assert why in raised.value.why
    assert not list(tmp_path.iterdir())


@pytest.mark.fault("F08")
def test_a_full_disk_costs_a_film_and_ends_a_recording_and_leaves_half_of_neither(tmp_path):
    """A film is a picture of what happens; a recording was asked for."""
    script = ["." if t % 60 else "T" for t in range(1, 200)]
    alone = evaluate(Noisy(script, {0}), ONE, 2)

    def act() -> None:
        told: list[str] = []
        env = Noisy(script, {0})
        seen = evaluate(env, ONE, 2, callback=VideoRecorder(env, tmp_path / "a.mp4", 30.0, warn=told.append))
        (warning,) = told
        assert warning.startswith("the film cannot be written") and "is the disk full?" in warning
        assert seen == alone is not None and not list(tmp_path.iterdir())
        fill(tmp_path / "ballast", leave=4096)
        for played, episodes in ((script, 2), (["T"] * 3, 3)):  # noticed on the way, or only at the end
            with pytest.raises(StorageError, match="the recording cannot be written") as raised:
                record(tmp_path / "a.npz", Noisy(played, {0}), ONE, episodes)
            assert "free some disk space" in raised.value.fix
            assert list(tmp_path.iterdir()) == [tmp_path / "ballast"]

    if not on_a_small_disk(tmp_path, 64 * 1024, act):
        pytest.skip("this machine lets nobody mount a small disk")
