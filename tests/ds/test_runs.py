"""Learners and actors as processes over real sockets: what fails takes nothing from the others."""

from __future__ import annotations

import json
import random
import re
import shutil
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from socket import AF_INET

import psutil
import pytest

from algorithm.store.checkpoints.folders import checkpoint_steps
from ds import certificates
from ds.net.security import is_loopback
from tests.ds import processes
from tests.ds.processes import Line, Scene, finish, missing
from tests.lib.agreement import what_must_agree
from tests.lib.episodes import record
from tests.lib.processes import Program
from tests.scenarios.test_kills import TASK as ONE_PROCESS

LENGTH = 20
"""Steps of an episode."""

EVERY = 200
"""Steps between two checkpoints."""

TASK = f"""\
default:
  base_config:
    preset: plain
    env_type: GYM
    env_name: "tests.ds.marked:Marked-v0"
    env_args: {{length: {LENGTH}, pause: 0.02}}
    n_envs: 2
    workers: 2
    env_restarts: 1000
    env_timeout: 3
    max_step: -1
    max_episode_length: 100
    reset_on_iteration: false
  net_config: {{heartbeat: 0.5, spool_size: 8}}
  nn_config: {{q: {{dense_n: 16}}, policy: {{dense_n: 16}}}}
  replay_config: {{capacity: 500000}} # nothing is overwritten
  sac_config:
    batch_size: 16
    start_step: 40
    write_summary_per_step: 40
    save_model_per_step: {EVERY}
    replay_ratio: 0.05
    compile: off # a minute, of which these tests learn nothing
  eval_config: {{per_step: 1000, episodes: 1}}
"""

SIGINT, SIGTERM, SIGKILL = signal.SIGINT, signal.SIGTERM, signal.SIGKILL
ENDED = {0, 6, -SIGKILL, 128 + SIGTERM, 128 + SIGINT}
"""Exit codes that the faults here may end with."""


class Training(Scene):
    """A learner and two actors; whatever a fault ends is begun anew, the learner with ``--resume``."""

    def __init__(self, folder: Path, rng: random.Random) -> None:
        super().__init__(folder, TASK)
        self.rng, self.diary = rng, list[str]()
        self.line = Line(self.learner("learner_0"))
        self.learner_now, self.actors = "learner_0", [self._act(0), self._act(1)]

    def strike(self, fault: Callable[[Training], None]) -> None:
        """Let it happen, see to it that all run again, and that more of each actor is stored."""
        self.diary.append(fault.__name__)
        fault(self)
        if not self.begun[self.learner_now].is_alive():
            self._resume()
        for number, actor in enumerate(self.actors):
            if not self.begun[actor].is_alive():
                assert self.begun[actor].exitcode in ENDED, self.diary
                self.actors[number] = self._act(number)
        self.until_all_work()

    def until_all_work(self) -> None:
        before = {pid: len(made) for pid, made in self.stored().items()}

        def more() -> bool:
            stored = self.stored()
            pids = [[child.pid for child in self.workers(actor)] for actor in self.actors]
            return all(
                any(len(stored.get(pid, ())) > before.get(pid, 0) for pid in of_actor) for of_actor in pids
            )

        self.until(more, f"nothing is stored any more: {self.diary}")

    def workers(self, actor: str) -> list[psutil.Process]:
        """Processes of its environments that run now."""
        found = []
        for child in psutil.process_iter():
            with suppress(psutil.Error):  # it has just ended
                if child.ppid() == self.begun[actor].pid and "spawn_main" in " ".join(child.cmdline()):
                    found.append(child)
        return found

    def _act(self, number: int) -> str:
        name = f"actor_{len(self.begun)}"
        self.begin(name, "actor", f"--learner_port={self.line.port}")
        return name

    def _resume(self) -> None:
        """Resume at the newest checkpoint."""
        before = self.learner_now
        assert self.begun[before].exitcode in ENDED, self.diary
        reached, saved = self.metric("step"), checkpoint_steps(self.run / "checkpoints")[-1]
        self.learner_now = f"learner_{len(self.begun)}"
        self.learner(self.learner_now, "--resume", port=self.line.learner)
        resumed = json.loads((self.run / "manifest.json").read_text())["resumed"][-1]["step"]
        assert resumed == saved and reached - resumed <= 2 * EVERY, self.diary


def actor_is_killed(training: Training) -> None:
    actor = training.rng.choice(training.actors)
    workers = training.workers(actor)
    assert training.end(actor, SIGKILL) == -SIGKILL
    assert not psutil.wait_procs(workers, timeout=10)[1], "a worker outlives its actor"


def worker_is_killed(training: Training) -> None:
    training.rng.choice(training.workers(training.rng.choice(training.actors))).kill()


def learner_is_killed(training: Training) -> None:
    assert training.end(training.learner_now, SIGKILL) == -SIGKILL


def line_is_cut(training: Training) -> None:
    training.line.cut = True
    time.sleep(training.rng.uniform(2.0, 5.0))
    training.line.cut = False


def actor_stands_still(training: Training) -> None:
    actor = psutil.Process(training.begun[training.actors[0]].pid)
    actor.suspend()
    time.sleep(training.rng.uniform(1.0, 5.0))
    actor.resume()


EVENING = (actor_stands_still, actor_is_killed, worker_is_killed, line_is_cut, learner_is_killed)


@pytest.fixture
def training(tmp_path: Path) -> Iterator[Training]:
    training = Training(tmp_path, random.Random(1))
    yield training
    training.close()
    training.line.close()


@pytest.mark.fault("F03")
@pytest.mark.fault("F04")
@pytest.mark.fault("F05")
@pytest.mark.fault("F22")
@pytest.mark.fault("F23")
@pytest.mark.fault("F27")
@pytest.mark.timeout(400)
def test_what_fails_takes_nothing_from_the_others(training: Training) -> None:
    """One fault of each kind; afterwards each step is stored once, or counted as lost or given up."""
    training.until_all_work()
    for fault in EVENING:
        training.strike(fault)
    check(training)
    gone = training.metric("ds/lost") + training.metric("ds/dropped")
    holes = sum(missing(made, LENGTH) for made in training.stored().values())
    # what an ending actor gives up is no hole: nothing stands behind it; its queue and what it gathers
    assert holes <= gone <= holes + len(training.actors) * (8 + 2) * 2 * LENGTH
    assert "the learner was restarted" in training.said(training.actors[0])


def check(training: Training) -> None:
    """End all; nothing is stored twice, no version falls, and nobody has crashed."""
    workers = [worker for actor in training.actors for worker in training.workers(actor)]
    for name in (*training.actors, training.learner_now):
        assert training.end(name, SIGINT) == 130, training.diary
    assert not psutil.wait_procs(workers, timeout=10)[1], "a worker outlives its actor"
    assert all(len(set(made)) == len(made) for made in training.stored().values()), training.diary
    for name in training.begun:
        text = training.said(name)
        assert "Traceback" not in text and "internal error" not in text and "hangs" not in text, text
        versions = [int(found) for found in re.findall(r"weights (\d+)", text)]
        assert versions == sorted(versions), f"{name} acted with older weights than before"


# ---- what does not fit

REFUSED = [
    # what begins, with which flags, its exit code, and what it says
    ("second", "learner", ("-n", "b", "--learner_port={port}"), 2, "(process {pid}: "),
    ("nobody", "actor", ("--learner_port=1", "-o", "net_config.patience=1"), 3, "nothing listens"),
    ("plain", "actor", ("--insecure", "--learner_port={port}"), 3, "uses TLS, this actor plain text"),
    (
        "other",
        "actor",
        ("--learner_port={port}", "-o", "nn_config.policy={{dense_n: 32}}"),
        3,
        'nn_config.policy: the learner has {{"dense_n": 16}}, the actor {{"dense_n": 32}}',
    ),
    (
        "token",
        "actor",
        ("--learner_port={port}", "-o", "net_config.secrets=others"),
        3,
        "wrong token or none",
    ),
]


@pytest.mark.fault("F16")
@pytest.mark.fault("F18")
@pytest.mark.fault("F19")
@pytest.mark.fault("F20")
def test_whoever_does_not_fit_is_told_why_and_the_learner_goes_on(tmp_path):
    """Beyond loopback, at an address of this machine's own, with TLS and a token."""
    found = [one for many in psutil.net_if_addrs().values() for one in many if one.family == AF_INET]
    host = next((one.address for one in found if not is_loopback(one.address)), None)
    if host is None:
        pytest.skip("this machine has no address beyond loopback")
    certificates.make(tmp_path / ".secrets", [host], days=1)
    shutil.copytree(tmp_path / ".secrets", tmp_path / "others")
    (tmp_path / "others" / "token").write_text("wrong\n")
    scene = Scene(tmp_path, TASK)
    try:
        at = f"--learner_host={host}"
        port = scene.learner("learner", at)
        words = {"port": port, "pid": scene.begun["learner"].pid}
        for name, role, flags, _, _ in REFUSED:
            scene.begin(name, role, at, *(flag.format(**words) for flag in flags))
        for name, _, _, code, said in REFUSED:
            assert finish(scene.begun[name]) == code, scene.said(name)
            assert said.format(**words) in scene.said(name)
        assert not (scene.run.parent / "b").exists()
        with socket.create_connection((host, port)) as plain:
            plain.sendall(random.Random(1).randbytes(10_000))
        scene.begin("actor", "actor", at, f"--learner_port={port}")
        scene.until(scene.stored, "nothing is stored")
        assert scene.metric("ds/rejected") >= 1
        assert [scene.end("learner", SIGINT), scene.end("actor", SIGINT)] == [130, 130]
        told = scene.said("learner")
        assert "Traceback" not in told and "internal error" not in told and "unauthenticated: " in told
    finally:
        scene.close()


# ---- in step with one actor

QUICK = {"hybrid": 300, "lessons": 560, "by_spaces": 260}
"""Section -> environment steps."""

RESETS = """environment_parameters.mass.curriculum=[
    {name: light, value: 1, completion_criteria: {threshold: 2, min_lesson_length: 40, require_reset: true}},
    {name: middle, value: 2, completion_criteria: {measure: progress, threshold: 0.6}},
    {name: heavy, value: {sampler_type: uniform, sampler_parameters: {min_value: 3, max_value: 4}}}]
"""

SLOW = {
    "ppo_memory": 300,
    "a2c": 300,
    "rnn": 260,
    "cross": 260,
    "quantiles": 300,
    "default": 700,
    "images": 400,
    "fresh": 600,
    "own_td_error": 330,
    "extended": 160,
    "td3_demonstrated": 260,
}


def what_agrees(run):
    """As far as a learner has it: what the actors are in the middle of is theirs."""
    found = what_must_agree(run)
    weights = {file: sha for file, sha in found["weights"].items() if not file.endswith("run.safetensors")}
    state = found["state"]["run"]
    metrics = {k: v for k, v in json.loads(found["metrics"]).items() if not k.startswith(("ds/", "param/"))}
    own = {name: chunk["own"] for name, chunk in state["agents"].items()}
    lessons = state.get("curricula")
    return weights, found["replay"], state["counters"], state["health"], own, metrics, lessons


@pytest.mark.parametrize(
    "section, steps",
    [*QUICK.items(), *(pytest.param(*item, marks=pytest.mark.slow) for item in SLOW.items())],
)
def test_it_equals_one_process_bit_for_bit(tmp_path, section, steps):
    (tmp_path / "task").mkdir()
    (tmp_path / "task" / "config.yaml").write_text(ONE_PROCESS)
    if "demonstrated" in section:
        record(tmp_path / "task" / "shown.npz", "Pendulum-v1")
    flags = ["-c", section, "-o", f"base_config.max_step={steps}"]
    flags += ["-o", RESETS] * (section == "lessons")
    one = Program(tmp_path, *flags, "--seed=1", "-n", "one")
    flags += ["-o", "net_config.synchronous=true", "-o", "sac_config.save_model_per_step=70"]
    learner = processes.begin(
        tmp_path, "learner", "learner", *flags, "--seed=1", "-n", "many", "--learner_port=0"
    )
    port = processes.port_of(tmp_path, "many")
    flags += ["-o", "base_config.workers=2"] * (section == "lessons")  # the same draws in other processes
    actor = processes.begin(tmp_path, "actor", "actor", *flags, f"--learner_port={port}")
    assert [processes.finish(each) for each in (actor, learner)] == [0, 0], processes.said(tmp_path)
    assert one.end() == 0, one.said
    models = tmp_path / "models" / "task"
    assert what_agrees(models / "many") == what_agrees(models / "one")
