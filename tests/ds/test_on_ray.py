"""Trainings on a real Ray: on one machine, and on two that are played.

What needs no Ray is tested in the files beside.
"""

import contextlib
import json
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

from tests.house.test_presets import shrunk

pytestmark = [pytest.mark.slow, pytest.mark.timeout(0)]
pytest.importorskip("ray")

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 600.0  # seconds until something is wrong; imports take a minute where others use the cores
ACTOR = r"actor \d+"
HEAD, OTHER = "10.199.77.1", "10.199.77.2"
SPACES = {HEAD: "sac-test-a", OTHER: "sac-test-b"}
"""Namespaces of the network, by the address of the node in them."""

TASK = """\
default:
  base_config:
    preset: plain
    env_type: GYM
    env_name: "tests.ds.marked:Marked-v0"
    env_args: {pause: 0.02}
    max_step: -1
  nn_config: {q: {dense_n: 8}, policy: {dense_n: 8}}
  sac_config:
    {batch_size: 8, start_step: 20, replay_ratio: 0.05, save_model_per_step: 100, compile: off}
  eval_config: {per_step: -1, episodes: 1}
"""


class Command:
    """A ``cluster`` command in a folder of its own. prefix: in front of it."""

    def __init__(self, folder: Path, *arguments: str, prefix: tuple[str, ...] = ()) -> None:
        (folder / "task").mkdir(parents=True)
        (folder / "task" / "config.yaml").write_text(TASK)
        self.run = folder / "models" / "task" / "one"
        self._said = folder / "said.txt"
        words = [ROOT / "main_ds.py", "./task", "cluster", "-n", "one", "--device=cpu", "--seed=1"]
        with self._said.open("w") as file:
            self.process = subprocess.Popen(
                [*prefix, sys.executable, *words, *arguments],
                cwd=folder,
                stdout=file,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    @property
    def said(self) -> str:
        return self._said.read_text()

    def begun(self, who: str) -> list[int]:
        """The processes of the learner or the actors so far."""
        return [int(pid) for pid in re.findall(rf"  {who}: process (\d+) on ", self.said)]

    def wait(self, what: Callable[[], object]) -> None:
        deadline = time.monotonic() + LIMIT
        while not what():
            assert time.monotonic() < deadline, self.said
            assert self.process.poll() is None, self.said
            time.sleep(0.05)

    def wait_until_saved(self) -> None:
        """With an actor's data; and the command has heard of it, which it does twice a second."""
        self.wait(lambda: list(self.run.glob("checkpoints/*/manifest.json")))
        time.sleep(1.5)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Command]]:
    """Starts commands, and ends them with the test."""
    with contextlib.ExitStack() as stack:

        def begin(*arguments: str, prefix: tuple[str, ...] = ()) -> Command:
            command = Command(tmp_path, *arguments, prefix=prefix)
            stack.callback(command.close)
            return command

        yield begin


def test_a_training_ends_by_itself(start: Callable[..., Command]) -> None:
    command = start("--num_actors=1", "--max_step=60")
    assert command.process.wait(LIMIT) == 0, command.said
    assert "the training is over; its run is models/task/one on 127.0.0.1" in command.said


def test_a_population_trains(tmp_path: Path) -> None:
    command = [
        sys.executable,
        ROOT / "main_ds.py",
        "gym/pendulum",
        "evolver",
        "--num_learners=2",
        "-n",
        "first",
    ]
    done = subprocess.run([*command, *shrunk()], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert list(tmp_path.glob("models/gym/pendulum/**/result.json"))


@pytest.mark.parametrize(("how", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)])
def test_a_training_on_ray(start: Callable[..., Command], how: signal.Signals, code: int) -> None:
    """Killed processes are restarted; the end of the command ends all of them."""
    command = start("--num_actors=2")
    command.wait_until_saved()
    command.wait(lambda: len(command.begun(ACTOR)) == 2)
    os.kill(command.begun(ACTOR)[0], signal.SIGKILL)
    command.wait(lambda: len(command.begun(ACTOR)) == 3)
    assert "killed by SIGKILL; restarts" in command.said

    os.kill(command.begun("learner")[0], signal.SIGKILL)
    command.wait(lambda: json.loads((command.run / "manifest.json").read_text()).get("resumed"))
    command.wait(lambda: len(command.begun(ACTOR)) == 5)

    os.kill(command.process.pid, how)
    assert command.process.wait(LIMIT) == code
    assert (command.run / "result.json").exists() == (how is signal.SIGINT), command.said
    pids = command.begun("learner") + command.begun(ACTOR)
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
    prefix = ("ip", "netns", "exec", SPACES[HEAD])
    command = start("--num_actors=2", "--ray", f"{HEAD}:6399", prefix=prefix)

    def there() -> set[str]:
        """Names of those whose last start was on the other node."""
        last = dict(re.findall(r"(learner|actor \d+): process \d+ on (\S+)", command.said))
        return {name for name, where in last.items() if where == OTHER}

    command.wait(lambda: "2 of 2 actors run" in command.said)
    before = there()
    assert before - {"learner"}
    command.wait_until_saved()
    kill_all(SPACES[OTHER])
    command.wait(lambda: not there())
    command.wait(lambda: "2 of 2 actors run" in command.said.split("died; restarts")[-1])
    manifest = command.run / "manifest.json"  # written again long after an actor may have come back
    command.wait(lambda: bool(json.loads(manifest.read_text()).get("resumed")) == ("learner" in before))
    os.kill(command.process.pid, signal.SIGINT)
    assert command.process.wait(LIMIT) == 130, command.said
