"""A player and its process, its end and its failures, with the scripted player as the build."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from algorithm.core.errors import EnvError, UsageError
from algorithm.env.config import BuildPath, UnityArgs
from algorithm.env.pool import worker
from algorithm.env.request import EnvRequest, PoolOptions, UnityOptions
from algorithm.env.unity import build
from algorithm.env.unity import player as player_module
from algorithm.env.unity.build import build_arguments, find_build
from algorithm.env.unity.player import (
    EDITOR_PORT,
    EditorStoppedError,
    Player,
    PlayerError,
)
from tests.env.unity.test_link import free_port
from tests.unity_player import ROOT, make_build

SEEDS = lambda index, start: 1  # noqa: E731
OPEN_S = 20.0  # for a Python interpreter on a loaded machine to start and to import gRPC


def opened(folder, *words, env_args=None, env_name="continuous", timeout=OPEN_S, **options):
    """Open a player of a build in a folder, whose output lies there, too."""
    args = UnityArgs(build_path=paths(make_build(folder, *words)), port=options.pop("port", free_port()))
    pool = PoolOptions(timeout=timeout, log=folder / "players", unity=UnityOptions(args=args))
    request = EnvRequest(env_name=env_name, env_args=env_args or {}, seed_of=SEEDS, pool=pool)
    return player_of(request, **options)


def player_of(request, index=0, seed=3, no_graphics=True):
    return Player(request, index=index, no_graphics=no_graphics, seed=seed, side_channels=[])


def editor_request(port, timeout=OPEN_S):
    unity = UnityOptions(args=UnityArgs(editor=True, fixed_port=True, port=port))
    return EnvRequest(env_name="x", seed_of=SEEDS, pool=PoolOptions(timeout=timeout, unity=unity))


def gone_within(pids, seconds):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not any(is_alive(pid) for pid in pids):
            return True
        time.sleep(0.05)
    return False


def is_alive(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_build_is_started_stepped_and_ended(tmp_path):
    player = opened(tmp_path, env_args={"agents": 2, "offsets": True})
    pid = player.pid
    try:
        player.env.reset()
        (name,) = player.env.behavior_specs
        decisions, _ = player.env.get_steps(name)
        assert len(decisions) == 2
        for _ in range(20):
            player.env.step()
        arguments = f"-nographics -batchmode --mlagents-port {player.port} -logFile"
        log = tmp_path / "players" / "player-0.log"
        assert f"{arguments} {log} --scene continuous --agents 2 --offsets" in player.describe()
        assert f"process {pid}, port {player.port}" in player.describe()
        assert os.getpgid(pid) == pid  # Ctrl-C at the terminal is not for it
        assert "seed 3" in log.read_text()
    finally:
        player.close()
        player.close()
    assert gone_within([pid], 1)


@pytest.mark.parametrize(
    "fault, kind, what",
    [
        ("crash@start", "ended", "has ended before it connected"),
        ("exit@reset", "ended", "has ended in a reset"),
        ("crash@step:5", "ended", "has ended in a step"),
        ("quit@step:5", "goodbye", "has ended by itself"),
        ("short@step:5", "garbled", "a message that is not understood in a step"),
    ],
)
def test_each_failure_is_named_with_the_end_of_the_log(fault, kind, what, tmp_path):
    player, since = None, 0.0
    with pytest.raises(PlayerError, match=what) as error:
        player = opened(tmp_path, "--fault", fault)
        since = time.monotonic()
        player.env.reset()
        for _ in range(20):
            since = time.monotonic()
            player.env.step()
    took = time.monotonic() - since
    message = str(error.value)
    if player is not None:
        assert took < 1.5  # 0.2 s on an idle machine
        player.close()
    assert error.value.kind == kind
    assert error.value.exit_code == 4
    assert "end of player-0.log:" in message and "--fault" in message
    cause = {"crash": "SIGSEGV", "exit": "exit code 1", "quit": "goodbye", "short": "cannot reshape"}
    assert cause[fault.partition("@")[0]] in message
    children = psutil.Process().children(recursive=True)
    assert not [child for child in children if "unity_player" in " ".join(child.cmdline())]


@pytest.mark.parametrize("place", [pytest.param("handshake", marks=pytest.mark.slow), "step:3"])
def test_a_hang_is_noticed_within_the_time_out(place, tmp_path):
    player, since = None, time.monotonic()
    with pytest.raises(PlayerError, match="hangs in") as error:
        # The interpreter has to start in that time as well.
        player = opened(tmp_path, "--fault", f"hang@{place}", timeout=4)
        player.env.reset()
        for _ in range(5):
            since = time.monotonic()
            player.env.step()
    took = time.monotonic() - since
    if player is not None:
        player.close()
        assert 4 <= took < 6
    assert took < 14  # the start, the hang, and the end of who hangs
    assert error.value.kind == "hangs"
    assert "raise base_config.env_timeout" in error.value.fix


def test_a_build_that_never_connects_is_shown_with_path_arguments_and_log(tmp_path):
    with pytest.raises(EnvError, match="has not connected") as error:
        opened(tmp_path, "--fault", "hang@start", timeout=3)
    message = str(error.value)
    assert isinstance(error.value, PlayerError) and error.value.kind == "absent"
    assert str(tmp_path / "Player.x86_64") in message
    assert "arguments: -nographics" in message
    assert "(the player hangs)" in message


def test_another_version_is_refused_with_both(tmp_path):
    with pytest.raises(EnvError, match="another version") as error:
        opened(tmp_path, "--api", "2.0.0", "--package", "5.1.0")
    assert "protocol 2.0.0, from com.unity.ml-agents 5.1.0; this program speaks 1.5.0" in error.value.why
    assert not isinstance(error.value, PlayerError)


def test_a_file_that_is_no_program_says_so(tmp_path):
    file = tmp_path / "Player.x86_64"
    file.write_bytes(b"\x7fELF of another processor")
    file.chmod(0o755)
    with pytest.raises(PlayerError, match="ended before it connected") as error:
        unity = UnityOptions(args=UnityArgs(build_path=paths(file), port=free_port()))
        player_of(EnvRequest(env_name="x", seed_of=SEEDS, pool=PoolOptions(unity=unity)))
    assert "cannot be started: Exec format error" in error.value.why


def test_a_camera_that_fails_without_graphics_gets_the_right_advice(tmp_path):
    with pytest.raises(PlayerError) as error:
        player = opened(tmp_path, "--fault", "crash@step:2", env_name="camera")
        try:
            for _ in range(9):
                player.env.step()
        finally:
            player.close()
    assert "no_graphics: false" in error.value.fix
    with pytest.raises(PlayerError) as error:
        player = opened(tmp_path, "--fault", "crash@step:2", env_name="camera", no_graphics=False)
        try:
            for _ in range(9):
                player.env.step()
        finally:
            player.close()
    assert "no_graphics" not in str(error.value)
    assert "-batchmode" not in str(error.value)


def test_a_player_that_ignores_everything_is_gone_within_five_seconds(tmp_path):
    player = opened(tmp_path, "--stubborn")
    pid, since = player.pid, time.monotonic()
    player.close()
    assert time.monotonic() - since < 5
    assert gone_within([pid], 0.5)


def test_much_output_is_cut_and_a_player_is_ended_once(tmp_path, monkeypatch):
    """Also where it answers at once, so that nothing ever waits for it."""
    monkeypatch.setattr(worker, "LOG_BYTES", 1000)
    monkeypatch.setattr(worker, "_KEPT_BYTES", 100)
    player = opened(tmp_path)
    player.env.reset()
    player._process.output.write_text("word " * 1000)
    player.env.step()
    assert player._process.output.stat().st_size <= 1000
    killed = []
    monkeypatch.setattr(build, "kill_group", killed.append)
    player.close()
    player.close()
    assert killed == [player.pid]


def test_logs_of_the_start_before_are_kept(tmp_path):
    port = free_port()
    for seed in (1, 2, 3):
        opened(tmp_path, port=port, seed=seed).close()
    players = tmp_path / "players"
    assert "seed 3" in (players / "player-0.log").read_text()
    assert "seed 2" in (players / "player-0.before.log").read_text()
    assert len(list(players.iterdir())) == 4


def test_two_players_get_two_ports_and_step_side_by_side(tmp_path):
    port = free_port()
    players = [opened(tmp_path, port=port, index=index) for index in range(2)]
    try:
        assert players[0].port < players[1].port
        for player in players:
            player.env.reset()
            player.env.step()
    finally:
        for player in players:
            player.close()


TRAINER = """
import os, sys, threading
from pathlib import Path
from tests.env.unity import test_player
from tests.env.unity.test_player import *
file, log, port = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
args = UnityArgs(build_path=paths(file), port=port)
pool = PoolOptions(timeout=30, log=log, unity=UnityOptions(args=args))
request = EnvRequest(env_name="continuous", seed_of=SEEDS, pool=pool)
found = []
# Opened by a thread that is gone afterwards, as after a restart.
opener = threading.Thread(target=lambda: found.append(player_of(request)))
opener.start(); opener.join()
(player,) = found
player.env.reset()
print(player.pid, player.port, flush=True)
while True:
    player.env.step()
"""


def trainer(folder, log, port, *words):
    file = make_build(folder, *words)
    command = [sys.executable, "-c", TRAINER, str(file), str(log), str(port)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)


@pytest.mark.parametrize("words", [(), ("--stubborn", "--fault", "hang@step:9")])
def test_no_player_outlives_a_trainer_that_is_killed(words, tmp_path):
    process = trainer(tmp_path, tmp_path / "players", free_port(), *words)
    pid, _ = map(int, process.stdout.readline().split())
    time.sleep(0.3)
    assert is_alive(pid)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert gone_within([pid], 5)


def test_two_trainings_that_start_together_get_different_ports(tmp_path):
    port = free_port()
    both = [trainer(tmp_path, tmp_path / str(i), port) for i in range(2)]
    try:
        found = [tuple(map(int, process.stdout.readline().split())) for process in both]
        assert len({port for _, port in found}) == 2
    finally:
        for process in both:
            process.kill()
            process.wait()
    assert gone_within([pid for pid, _ in found], 5)


def editor(port, *words):
    command = [sys.executable, "-m", "tests.unity_player", "--mlagents-port", str(port), *words]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)


def test_an_editor_has_no_process_and_is_left_alone(capsys):
    port = free_port()
    process = editor(port, "--fault", "quit@step:5")
    try:
        player = player_of(editor_request(port))
        assert player.pid is None and player.describe() == f"the Unity Editor, port {port}"
        assert capsys.readouterr().out == f"press Play in the Unity Editor, which connects to port {port}\n"
        with pytest.raises(EditorStoppedError, match="the Unity Editor has stopped playing"):
            for _ in range(20):
                player.env.step()
        player.close()
        assert process.wait(10) == 0
    finally:
        process.kill()
        process.wait()


def test_an_editor_that_is_never_started_is_reported():
    with pytest.raises(EnvError, match="the Unity Editor has not connected") as error:
        player_of(editor_request(free_port(), timeout=0.5))
    assert "press Play" in error.value.fix


def test_a_long_run_keeps_nothing_of_its_former_players(tmp_path):
    """The package registers each of its environments with atexit, which would keep it for ever."""
    import gc
    import weakref

    player = opened(tmp_path)
    player.env.reset()
    kept = weakref.ref(player.env)
    player.close()
    del player
    deadline = time.monotonic() + 10
    while kept() is not None and time.monotonic() < deadline:  # threads of the link end in their own time
        gc.collect()
        time.sleep(0.05)
    assert kept() is None


@pytest.mark.parametrize(
    "keys, port, fixed",
    [
        ({}, 5005, False),
        ({"port": 6000, "fixed_port": True}, 6000, True),
        ({"editor": True}, EDITOR_PORT, True),
        ({"editor": True, "port": 6000, "fixed_port": True}, 6000, True),
    ],
)
def test_the_port_of_a_player(keys, port, fixed, tmp_path, monkeypatch):
    asked = []

    def link(port, *, fixed, **_):
        asked.append((port, fixed))
        raise KeyError

    monkeypatch.setattr(player_module, "PlayerLink", link)
    make_build(tmp_path)
    pool = PoolOptions(unity=UnityOptions(args=UnityArgs(build_path=paths("Player"), **keys)))
    with pytest.raises(KeyError):
        player_of(EnvRequest(env_name="x", seed_of=SEEDS, folder=tmp_path, pool=pool))
    assert asked == [(port, fixed)]


def test_arguments_of_a_build():
    words = build_arguments({"speed": 2.5, "fast": True, "slow": False, "no": None, "at": [1, "b"], "-x": 1})
    assert words == ["--speed", "2.5", "--fast", "--at", "1", "b", "-x", "1"]
    with pytest.raises(UsageError, match="is a mapping"):
        build_arguments({"a": {"b": 1}})


def paths(path):
    return BuildPath(linux=str(path))


@pytest.mark.skipif(sys.platform != "linux", reason="names of files on Linux")
def test_the_build_is_found_in_the_task_s_folder_and_where_one_is(tmp_path, monkeypatch):
    task, here = tmp_path / "task", tmp_path / "here"
    task.mkdir()
    here.mkdir()
    monkeypatch.chdir(here)
    file = make_build(here)
    assert find_build(paths("Player"), task) == file
    assert find_build(paths("Player.x86_64"), None) == file
    assert find_build(paths(file), task) == file
    file = make_build(task)
    assert find_build(paths("Player"), task) == file
    plain = file.rename(task / "Player")
    assert find_build(paths("Player"), task) == plain


@pytest.mark.skipif(sys.platform != "linux", reason="names of files on Linux")
def test_a_build_that_cannot_be_started_is_refused(tmp_path, monkeypatch):
    for path in ("", BuildPath().linux):
        with pytest.raises(UsageError, match="no Unity build for this system") as unset:
            find_build(paths(path), tmp_path)
        assert unset.value.where == "base_config.unity_args.build_path.linux"
    with pytest.raises(EnvError, match="there is no Unity build at nowhere") as missing:
        find_build(paths("nowhere"), tmp_path)
    assert str(tmp_path / "nowhere") in missing.value.why
    file = make_build(tmp_path)
    with pytest.raises(EnvError, match="is a folder") as folder:
        find_build(paths(tmp_path), None)
    assert str(file) in folder.value.fix
    file.chmod(0o644)
    monkeypatch.setattr(
        os, "access", lambda path, mode: bool(Path(path).stat().st_mode & 0o100)
    )  # root may all
    with pytest.raises(EnvError, match="is not executable") as denied:
        find_build(paths(file), None)
    assert denied.value.fix == f"chmod +x {file}"
    monkeypatch.setattr(sys, "platform", "freebsd14")
    with pytest.raises(UsageError, match="no Unity build") as system:
        find_build(paths(file), None)
    assert system.value.why == "freebsd14 has no key"


def test_an_app_of_macos_stands_for_its_executable(tmp_path, monkeypatch):
    inside = tmp_path / "Ball.app" / "Contents" / "MacOS"
    inside.mkdir(parents=True)
    file = make_build(inside, name="x").rename(inside / "Ball")
    monkeypatch.setattr(sys, "platform", "darwin")
    for path in ("Ball", "Ball.app"):
        assert find_build(BuildPath(darwin=path), tmp_path) == file
