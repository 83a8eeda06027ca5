"""Two Ray nodes in network namespaces of this machine, one of them killed."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.ds.test_cluster import LIMIT, Command, start

pytestmark = pytest.mark.slow

__all__ = ["start"]

HEAD, OTHER = "10.199.77.1", "10.199.77.2"
SPACES = {HEAD: "sac-test-a", OTHER: "sac-test-b"}
LINKS = {HEAD: "sac-va", OTHER: "sac-vb"}


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
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    try:
        for space in SPACES.values():
            ip("netns", "add", space)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no network namespaces here: {error}")
    try:
        ip("link", "add", LINKS[HEAD], "type", "veth", "peer", "name", LINKS[OTHER])
        for address, space in SPACES.items():
            ip("link", "set", LINKS[address], "netns", space)
            ip("-n", space, "addr", "add", f"{address}/24", "dev", LINKS[address])
            ip("-n", space, "link", "set", LINKS[address], "up")
            ip("-n", space, "link", "set", "lo", "up")
        yield
    finally:
        for space in SPACES.values():
            kill_all(space)
            subprocess.run(["ip", "netns", "del", space], check=False)
        shutil.rmtree(folder, ignore_errors=True)


def node(address: str, folder: Path, *arguments: str) -> None:
    """``ray start`` on a node."""
    ray = [
        sys.executable,
        "-m",
        "ray.scripts.scripts",
        "start",
        f"--node-ip-address={address}",
        "--num-cpus=6",
    ]
    with (folder / f"{address}.txt").open("w") as file:
        done = subprocess.run(
            ["ip", "netns", "exec", SPACES[address], *ray, "--object-store-memory=100000000", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            timeout=LIMIT,
            check=False,
        )
    assert done.returncode == 0, (folder / f"{address}.txt").read_text()


def placed(command: Command, address: str) -> set[str]:
    """Names of those whose last start was on that node."""
    last = dict(re.findall(r"(learner|actor \d+): process \d+ on (\S+)", command.said))
    return {name for name, where in last.items() if where == address}


def test_what_was_on_a_dead_node_comes_back_on_another(
    network: None, start: Callable[..., Command], tmp_path: Path
) -> None:
    node(HEAD, tmp_path, "--head", "--port=6399", "--include-dashboard=false")
    node(OTHER, tmp_path, f"--address={HEAD}:6399")
    enter = ("ip", "netns", "exec", SPACES[HEAD])
    flags = ("-n", "one", "--num_actors", "4", "--ray", f"{HEAD}:6399", "--fence", "0")
    command = start("w", *flags, prefix=enter)
    command.wait_for(r"actor \d+ connected", 4)
    there = placed(command, OTHER)
    assert there & {f"actor {number}" for number in range(4)}
    assert all("net_config.secrets=" in line for line in command.events(r"(learner|actor) \d+ \d+"))
    (command.folder / "save").touch()
    command.wait(lambda: list(command.folder.glob("models/task/one/checkpoints/*/manifest.json")))

    kill_all(SPACES[OTHER])
    command.wait(lambda: placed(command, OTHER) == set())
    assert "the node, or Ray's worker on it, died; starts again" in command.said
    command.wait(
        lambda: command.said.rstrip().splitlines() and "4 of 4 actors run" in command.said.split("died;")[-1]
    )
    if "learner" in there:
        assert command.events("learner .* resumed")
    (command.folder / "finish").touch()
    assert command.end() == 0
    print(command.said)
