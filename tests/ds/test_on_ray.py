"""Trainings on a real Ray, with stand-ins for learner and actors: on one machine, and on two that are played.

What needs no Ray is tested in the files beside.
"""

import contextlib
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

pytestmark = pytest.mark.slow
pytest.importorskip("ray")

MAIN = Path(__file__).with_name("cluster_main.py")
LIMIT = 240.0  # seconds until something is wrong; Ray starts its workers slowly where cores are few
MANIFESTS = "models/task/one/checkpoints/*/manifest.json"
HEAD, OTHER = "10.199.77.1", "10.199.77.2"
SPACES = {HEAD: "sac-test-a", OTHER: "sac-test-b"}
"""Namespaces of the network, by the address of the node in them."""


class Command:
    """A ``cluster`` command in a folder of its own. prefix: in front of it."""

    def __init__(self, folder: Path, *arguments: str, prefix: tuple[str, ...] = ()) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self._said = folder / "said.txt"
        with self._said.open("a") as file:
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

    def wait_for(self, pattern: str, count: int = 1) -> list[int]:
        """The process ids of at least ``count`` matching events."""
        self.wait(lambda: len(self.events(pattern)) >= count)
        return [int(line.split()[1]) for line in self.events(pattern)]

    def save(self) -> None:
        """Let the learner save, and the command hear of it, which it does twice a second."""
        (self.folder / "save").touch()
        self.wait(lambda: list(self.folder.glob(MANIFESTS)))
        time.sleep(1.5)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Command]]:
    """Starts commands, and ends them with the test."""
    with contextlib.ExitStack() as stack:

        def begin(name: str, *arguments: str, prefix: tuple[str, ...] = ()) -> Command:
            command = Command(tmp_path / name, "-n", "one", *arguments, prefix=prefix)
            stack.callback(command.close)
            return command

        yield begin


@pytest.mark.parametrize(("how", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)])
def test_a_training_on_ray(start: Callable[..., Command], how: signal.Signals, code: int) -> None:
    """Killed processes are restarted; the end of the command ends all of them."""
    first = start("first", "--num_actors", "2")
    actors = first.wait_for(r"actor \d+ connected", 2)
    os.kill(actors[0], signal.SIGKILL)
    first.wait_for(r"actor \d+ connected", 3)
    assert "killed by SIGKILL; restarts" in first.said

    first.save()
    os.kill(first.wait_for("learner .* fresh")[0], signal.SIGKILL)
    first.wait_for("learner .* resumed")
    first.wait_for(r"actor \d+ connected", 5)

    os.kill(first.process.pid, how)
    assert first.process.wait(LIMIT) == code
    if how is signal.SIGINT:
        assert [line.split()[-1] for line in first.events(".* (saved|bye)$")][-2:] == ["saved", "bye"]
    pids = [int(line.split()[1]) for line in first.events(r"(learner|actor) \d+ \d+")]
    left = [psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)]
    assert not psutil.wait_procs(left, timeout=LIMIT)[1]


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def kill_all(space: str) -> None:
    """Everything in a namespace, as if the machine had lost power."""
    for _ in range(3):  # some start others
        pids = subprocess.run(["ip", "netns", "pids", space], capture_output=True, text=True, check=False)
        for pid in pids.stdout.split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Two namespaces with a cable between them."""
    monkeypatch.setenv("RAY_AUTH_MODE", "token")  # ray start --address does not switch it on by itself
    monkeypatch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    folder = tempfile.mkdtemp(prefix="ray")  # short: sockets in it have names of at most 107 bytes
    monkeypatch.setenv("RAY_TMPDIR", folder)
    links = dict(zip(SPACES.values(), ("sac-va", "sac-vb"), strict=True))
    try:
        for space in SPACES.values():
            ip("netns", "add", space)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no network namespaces here: {error}")
    try:
        ip("link", "add", "sac-va", "type", "veth", "peer", "name", "sac-vb")
        for address, space in SPACES.items():
            ip("link", "set", links[space], "netns", space)
            ip("-n", space, "addr", "add", f"{address}/24", "dev", links[space])
            for link in (links[space], "lo"):
                ip("-n", space, "link", "set", link, "up")
        yield
    finally:
        for space in SPACES.values():
            kill_all(space)
            subprocess.run(["ip", "netns", "del", space], check=False)
        shutil.rmtree(folder, ignore_errors=True)


def node(address: str, *arguments: str) -> None:
    """``ray start`` on a node."""
    enter = ["ip", "netns", "exec", SPACES[address], sys.executable, "-m", "ray.scripts.scripts", "start"]
    words = [f"--node-ip-address={address}", "--num-cpus=6", "--object-store-memory=100000000", *arguments]
    subprocess.run([*enter, *words], stdin=subprocess.DEVNULL, timeout=LIMIT, check=True)


def test_what_was_on_a_dead_node_comes_back_on_another(network: None, start: Callable[..., Command]) -> None:
    node(HEAD, "--head", "--port=6399", "--include-dashboard=false")
    node(OTHER, f"--address={HEAD}:6399")
    flags = ("--num_actors", "4", "--ray", f"{HEAD}:6399", "--fence", "0")
    command = start("w", *flags, prefix=("ip", "netns", "exec", SPACES[HEAD]))

    def there() -> set[str]:
        """Names of those whose last start was on the other node."""
        last = dict(re.findall(r"(learner|actor \d+): process \d+ on (\S+)", command.said))
        return {name for name, where in last.items() if where == OTHER}

    command.wait_for(r"actor \d+ connected", 4)
    before = there()
    assert before - {"learner"}
    assert all("net_config.secrets=" in line for line in command.events(r"(learner|actor) \d+ \d+"))
    command.save()
    kill_all(SPACES[OTHER])
    command.wait(lambda: not there())
    command.wait(lambda: "4 of 4 actors run" in command.said.split("died; restarts")[-1])
    assert bool(command.events("learner .* resumed")) == ("learner" in before)
    (command.folder / "finish").touch()
    assert command.process.wait(LIMIT) == 0, command.said
