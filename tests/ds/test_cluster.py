"""Training on Ray, with stand-ins for learner and actors. What needs no Ray is tested in the files beside."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

MAIN = Path(__file__).with_name("cluster_main.py")
LIMIT = 120.0  # seconds until something is wrong

pytest.importorskip("ray")


class Command:
    """A ``cluster`` command in a folder of its own."""

    def __init__(self, folder: Path, *arguments: str, prefix: tuple[str, ...] = ()) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self._said = folder / f"said{len(list(folder.glob('said*')))}.txt"
        with self._said.open("w") as file:
            self.process = subprocess.Popen(
                [*prefix, sys.executable, str(MAIN), *arguments],
                cwd=folder,
                stdout=file,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    @property
    def said(self) -> str:
        return self._said.read_text()

    def events(self, pattern: str) -> list[str]:
        """Lines of what happened that match, from their first word on."""
        file = self.folder / "events.txt"
        lines = file.read_text().splitlines() if file.exists() else []
        return [line for line in lines if re.match(pattern, line)]

    def wait(self, what: Callable[[], object]) -> None:
        deadline = time.monotonic() + LIMIT
        while not what():
            assert time.monotonic() < deadline, self.said
            assert self.process.poll() is None, self.said
            time.sleep(0.05)

    def wait_for(self, pattern: str, count: int = 1) -> list[str]:
        """The process ids of at least ``count`` matching events."""
        self.wait(lambda: len(self.events(pattern)) >= count)
        return [line.split()[1] for line in self.events(pattern)]

    def end(self) -> int:
        """Its exit code."""
        try:
            return self.process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            pytest.fail(self.said)

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Command]]:
    """Starts commands, and ends them with the test."""
    commands: list[Command] = []

    def begin(name: str, *arguments: str, prefix: tuple[str, ...] = ()) -> Command:
        commands.append(Command(tmp_path / name, *arguments, prefix=prefix))
        return commands[-1]

    yield begin
    for command in reversed(commands):
        command.kill()


def test_a_training_on_ray(start: Callable[..., Command]) -> None:
    """One Ray for all of it: starting one takes longer than everything else."""
    first = start("first", "-n", "one", "--num_actors", "2")
    actors = first.wait_for(r"actor \d+ connected", 2)
    ray = re.search(r"--ray (\S+)", first.said)
    assert ray is not None
    assert ray[1].startswith("127.0.0.1:")

    # A killed actor comes back.
    os.kill(int(actors[0]), signal.SIGKILL)
    third = first.wait_for(r"actor \d+ connected", 3)[2]
    assert third not in actors
    assert "killed by SIGKILL; starts again" in first.said

    # A learner that is killed before its first checkpoint begins anew, under the same name.
    os.kill(int(first.wait_for("learner .* fresh")[0]), signal.SIGKILL)
    first.wait_for("learner .* fresh", 2)
    assert (first.folder / "models/task/one_crashed_1").is_dir()

    # One with a checkpoint goes on where it was, at the same port; its actors find it by themselves.
    (first.folder / "save").touch()
    first.wait(lambda: list(first.folder.glob("models/task/one/checkpoints/*/manifest.json")))
    time.sleep(1.5)  # the command hears of it twice a second
    connected = len(first.events(r"actor \d+ connected"))
    os.kill(int(first.wait_for("learner .* fresh", 2)[1]), signal.SIGKILL)
    first.wait_for("learner .* resumed")
    first.wait_for(r"actor \d+ connected", connected + 2)
    ports = {line.split()[2] for line in first.events(r"learner \d+ \d+")}
    assert len(ports) == 1
    assert len(first.events(r"actor \d+ \d+$")) == 3

    # More actors, then fewer: those that leave say goodbye.
    assert start("scale", "-n", "one", "--scale", "3", "--ray", ray[1]).end() == 0
    first.wait_for(r"actor \d+ \d+$", 4)
    first.wait_for(r"actor \d+ connected", connected + 3)
    assert start("scale", "-n", "one", "--scale", "1", "--ray", ray[1]).end() == 0
    first.wait_for(r"actor \d+ bye", 2)

    # Ctrl-C: the learner saves first.
    os.kill(first.process.pid, signal.SIGINT)
    assert first.end() == 130
    last = [line.split()[-1] for line in first.events(".* (saved|bye)$")]
    assert last[-2:] == ["saved", "bye"]
    assert not _left(first)


@pytest.mark.slow
def test_a_killed_command_leaves_no_orphan(start: Callable[..., Command]) -> None:
    command = start("killed", "-n", "one")
    pids = [int(command.wait_for(r"learner \d+")[0]), int(command.wait_for(r"actor \d+ connected")[0])]
    command.kill()
    psutil.wait_procs([psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)], timeout=LIMIT)
    assert not any(psutil.pid_exists(pid) for pid in pids)


def _left(command: Command) -> list[str]:
    pids = [line.split()[1] for line in command.events(r"(learner|actor) \d+ \d+")]
    return [pid for pid in pids if psutil.pid_exists(int(pid))]
