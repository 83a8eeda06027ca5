"""A player and its process, its end and its failures, with the scripted player as the build."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
import weakref
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest

from algorithm.core.errors import EnvError, UsageError
from algorithm.env.config import BuildPath, UnityArgs
from algorithm.env.pool import worker
from algorithm.env.request import EnvRequest
from algorithm.extras.unity import build
from algorithm.extras.unity import player as player_module
from algorithm.extras.unity.build import build_arguments, find_build
from algorithm.extras.unity.player import EDITOR_PORT, Player, PlayerError
from algorithm.extras.unity.testing import ROOT, make_build
from tests.env.pool.test_faults import gone
from tests.extras.unity.test_link import free_port
from tests.lib.processes import comes_true

OPEN_S = 20.0  # for a Python interpreter on a loaded machine to start and to import gRPC


def paths(path: object) -> BuildPath:
    return BuildPath(linux=str(path))


def player_of(args: UnityArgs, folder: Path | None = None, **options: Any) -> Player:
    """Start a player; options of its request and the player itself."""
    own = {"index": 0, "seed": 3, "no_graphics": True}
    own |= {key: options.pop(key) for key in list(options) if key in own}
    name, asked = options.pop("env_name", "continuous"), {"timeout": OPEN_S, **options}
    request = EnvRequest("UNITY", name, seed_of=lambda i, e: 1, folder=folder, unity=args, **asked)
    return Player(request, side_channels=[], **own)


def opened(folder: Path, *words: str, port: int = 0, **options: Any) -> Player:
    """Open a player of a build in a folder, whose output lies there, too."""
    args = UnityArgs(build_path=paths(make_build(folder, *words)), port=port or free_port())
    return player_of(args, log=folder / "players", **options)


def failure_of(folder: Path, *words: str, patience: float = OPEN_S, **options: Any) -> tuple[EnvError, float]:
    """Step until the player fails; return the error, and the seconds that its last call took.

    patience: seconds that a step may take
    """
    since = time.monotonic()
    with pytest.raises(EnvError) as error, closing(opened(folder, *words, **options)) as player:
        since = time.monotonic()
        player.env.reset()
        player._link._timeout = patience
        for _ in range(20):
            since = time.monotonic()
            player.env.step()
    took = time.monotonic() - since
    children = psutil.Process().children(recursive=True)
    assert not [child for child in children if "unity.testing" in " ".join(child.cmdline())]
    return error.value, took


def test_a_build_is_started_stepped_and_ended_and_leaves_nothing_behind(tmp_path, monkeypatch):
    """The package registers each of its environments with atexit, which would keep it for ever."""
    monkeypatch.setattr(worker, "LOG_BYTES", 1000)
    monkeypatch.setattr(worker, "_KEPT_BYTES", 100)
    killed: list[int] = []
    monkeypatch.setattr(build, "kill_group", killed.append)
    player = opened(tmp_path, env_args={"agents": 2, "offsets": True})
    pid = player.pid
    player.env.reset()
    (name,) = player.env.behavior_specs
    assert len(player.env.get_steps(name)[0]) == 2
    player._process.output.write_text("word " * 1000)
    player.env.step()
    assert player._process.output.stat().st_size <= 1000
    log = tmp_path / "players" / "player-0.log"
    arguments = f"-nographics -batchmode --mlagents-port {player.port} -logFile {log} --scene continuous"
    assert f"{arguments} --agents 2 --offsets" in player.describe()
    assert os.getpgid(pid) == pid, "Ctrl-C at the terminal is not for it"
    kept = weakref.ref(player.env)
    player.close()
    player.close()
    assert gone([pid], 1) and killed == [pid]
    del player
    assert comes_true(lambda: gc.collect() < 0 or kept() is None, 10.0), "threads of the link end later"


@pytest.mark.parametrize(
    ("fault", "kind", "cause", "timeout"),
    [
        ("crash@start", "ended", "SIGSEGV", OPEN_S),
        ("exit@reset", "ended", "exit code 1", OPEN_S),
        ("crash@step:5", "ended", "SIGSEGV", OPEN_S),
        ("quit@step:5", "goodbye", "it closed the connection, with status", OPEN_S),
        ("short@step:5", "garbled", "cannot reshape", OPEN_S),
        ("hang@step:3", "hangs", "no message for 3 s", OPEN_S),
        ("hang@start", "absent", "(the player hangs)", 5.0),  # in which the interpreter has to start
    ],
)
def test_each_failure_is_named_with_the_end_of_the_log(fault, kind, cause, timeout, tmp_path):
    error, took = failure_of(tmp_path, "--fault", fault, timeout=timeout, patience=3.0)
    assert isinstance(error, PlayerError) and error.kind == kind
    assert all(text in str(error) for text in (cause, "end of player-0.log:", "arguments: -nographics"))
    if kind == "hangs":
        assert 3.0 <= took < 6.0
    elif "step" in fault:
        assert took < 3


@pytest.mark.parametrize(("no_graphics", "advised"), [(True, True), (False, False)])
def test_a_camera_that_fails_without_graphics_gets_the_right_advice(tmp_path, no_graphics, advised):
    error, _ = failure_of(tmp_path, "--fault", "crash@step:2", env_name="camera", no_graphics=no_graphics)
    assert ("no_graphics: false" in error.fix) is advised


def test_another_version_is_refused_with_both(tmp_path):
    error, _ = failure_of(tmp_path, "--api", "2.0.0", "--package", "5.1.0")
    assert not isinstance(error, PlayerError)
    assert "protocol 2.0.0, from com.unity.ml-agents 5.1.0; this program uses 1.5.0" in error.why


def test_a_file_that_is_no_program_says_so(tmp_path):
    file = tmp_path / "Player.x86_64"
    file.write_bytes(b"\x7fELF of another processor")
    file.chmod(0o755)
    with pytest.raises(PlayerError, match="Exec format error"):
        player_of(UnityArgs(build_path=paths(file), port=free_port()))


def test_a_player_that_ignores_everything_is_gone_within_five_seconds(tmp_path):
    player = opened(tmp_path, "--stubborn")
    pid, since = player.pid, time.monotonic()
    player.close()
    assert time.monotonic() - since < 5
    assert gone([pid], 0.5)


def test_the_log_of_the_player_before_is_kept(tmp_path):
    for seed in (1, 2):
        opened(tmp_path, seed=seed).close()
    players = tmp_path / "players"
    assert "seed 2" in (players / "player-0.log").read_text()
    assert "seed 1" in (players / "player-0.before.log").read_text()


TRAINER = """
import sys, threading
from pathlib import Path
from tests.extras.unity.test_player import *
file, port = Path(sys.argv[1]), int(sys.argv[2])
found = []
# Opened by a thread that is gone afterwards, as after a restart.
args = UnityArgs(build_path=paths(file), port=port)
opener = threading.Thread(target=lambda: found.append(player_of(args, log=file.parent / "players")))
opener.start(); opener.join()
(player,) = found
player.env.reset()
print(player.pid, player.port, flush=True)
while True:
    player.env.step()
"""


def test_trainings_that_start_together_get_their_ports_and_no_player_outlives_them(tmp_path):
    """Killed, all of them; not even a player that hangs and ignores signals stays."""
    port = free_port()
    both = []
    for number, words in enumerate([(), ("--stubborn", "--fault", "hang@step:9")]):
        (tmp_path / str(number)).mkdir()
        file = make_build(tmp_path / str(number), *words)
        command = [sys.executable, "-c", TRAINER, str(file), str(port)]
        both.append(subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE))
    found = [tuple(map(int, process.stdout.readline().split())) for process in both]
    time.sleep(0.3)
    pids = [pid for pid, _ in found]
    assert not gone(pids, 0.0) and len({port for _, port in found}) == 2
    for process in both:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert gone(pids)


def test_an_editor_that_never_connects_is_named(capsys):
    port = free_port()
    with pytest.raises(EnvError, match="the Unity Editor has not connected"):
        player_of(UnityArgs(editor=True, fixed_port=True, port=port), timeout=0.3)
    assert f"connects to port {port}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("keys", "port", "fixed"),
    [
        ({}, 5005, False),
        ({"port": 6000, "fixed_port": True}, 6000, True),
        ({"editor": True}, EDITOR_PORT, True),
        ({"editor": True, "port": 6000, "fixed_port": True}, 6000, True),
    ],
)
def test_the_port_of_a_player(keys, port, fixed, tmp_path, monkeypatch):
    asked = []

    def link(port: int, *, fixed: bool, **_: Any) -> None:
        asked.append((port, fixed))
        raise KeyError

    monkeypatch.setattr(player_module, "PlayerLink", link)
    make_build(tmp_path)
    with pytest.raises(KeyError):
        player_of(UnityArgs(build_path=paths("Player"), **keys), tmp_path)
    assert asked == [(port, fixed)]


def test_arguments_of_a_build():
    words = build_arguments({"speed": 2.5, "fast": True, "slow": False, "no": None, "at": [1, "b"], "-x": 1})
    assert words == ["--speed", "2.5", "--fast", "--at", "1", "b", "-x", "1"]
    with pytest.raises(UsageError, match="is a mapping"):
        build_arguments({"a": {"b": 1}})


def test_the_build_is_found_in_the_task_s_folder_and_where_one_is(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "platform", "linux")
    task, here = tmp_path / "task", tmp_path / "here"
    task.mkdir()
    here.mkdir()
    monkeypatch.chdir(here)
    file = make_build(here)
    assert find_build(paths("Player"), task) == find_build(paths("Player.x86_64"), None) == file
    own = make_build(task)
    assert find_build(paths("Player"), task) == own and find_build(paths(file), task) == file
    plain = own.rename(task / "Player")
    assert find_build(paths("Player"), task) == plain


@pytest.mark.parametrize(
    ("path", "platform", "said"),
    [
        ("", "linux", "no Unity build for this system"),
        ("path_linux", "linux", "no Unity build for this system"),
        ("x", "freebsd14", "no Unity build for this system"),
        ("nowhere", "linux", "there is no Unity build at nowhere"),
        (".", "linux", "is not an executable file"),
        ("Player.x86_64", "linux", "is not an executable file"),
    ],
)
def test_a_build_that_cannot_be_started_is_refused(path, platform, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make_build(tmp_path).chmod(0o644)
    executable = lambda path, mode: bool(Path(path).stat().st_mode & 0o100)  # noqa: E731 - root may all
    monkeypatch.setattr(os, "access", executable)
    monkeypatch.setattr(sys, "platform", platform)
    with pytest.raises((EnvError, UsageError), match=said):
        find_build(paths(path), None)


def test_an_app_of_macos_stands_for_its_executable(tmp_path, monkeypatch):
    inside = tmp_path / "Ball.app" / "Contents" / "MacOS"
    inside.mkdir(parents=True)
    file = make_build(inside, name="x").rename(inside / "Ball")
    monkeypatch.setattr(sys, "platform", "darwin")
    for path in ("Ball", "Ball.app"):
        assert find_build(BuildPath(darwin=path), tmp_path) == file
