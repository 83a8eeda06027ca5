"""A night of a distributed training in small: everything that fails does, at random, again and again.

``NIGHT_MINUTES`` says how long it lasts, ``-s`` shows what happened.
"""

from __future__ import annotations

import json
import os
import random
import re
import resource
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from multiprocessing.process import BaseProcess

import psutil
import pytest

from algorithm.runs.checkpoints.checkpoint import checkpoint_steps
from algorithm.runs.logs.metrics import read_metrics
from tests.ds import networks
from tests.ds.scene import TASK, Made, Scene, whole

MINUTES = float(os.environ.get("NIGHT_MINUTES", "3"))
SEED = int(os.environ.get("NIGHT_SEED", "1"))
EVERY = 500
"""Steps between two checkpoints."""

APART = 1000
"""Episodes between the first ones of two copies in a process."""

NIGHT = TASK
for _old, _new in {
    "pause: 0.003": f"pause: 0.05, apart: {APART}",
    "max_step: -1": "max_step: -1\n    n_envs: 8\n    workers: 2\n    env_restarts: 1000",
    "capacity: 100000": "capacity: 500000",  # nothing is overwritten
    "save_model_per_step: 200": f"save_model_per_step: {EVERY}",
}.items():
    NIGHT = NIGHT.replace(_old, _new)
FLAGS = ("-o", "net_config.insecure=true", "-o", "net_config.patience=600", "--learner_host=10.99.7.1")
ENDED = {0, 6, -signal.SIGKILL, 128 + signal.SIGTERM, 128 + signal.SIGINT}
"""Exit codes that the faults here may end with."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(MINUTES * 60 + 600),
    pytest.mark.skipif(not networks.possible(), reason="no network namespaces and tunnels for this user"),
]


class Night:
    """A learner and two actors, and what is done to them.

    Whatever ends is begun anew: the learner with ``--resume``, an actor as another one.
    """

    def __init__(self, scene: Scene, line: networks.Line, rng: random.Random) -> None:
        self._scene, self._line, self._rng = scene, line, rng
        self._begun, self._newest = Counter[str](), dict[str, str]()
        self.said: list[str] = []
        self.done = Counter[str]()
        self.diary: list[str] = []
        self.peak, self.most_lost = 0.0, 0.0
        self._start = time.monotonic()
        self.learner = self._learn()
        self.actors = [self._act() for _ in range(2)]

    @property
    def faults(self) -> dict[str, Callable[[], None]]:
        """What can happen, by name."""
        return {
            "actor killed": self._kill_an_actor,
            "actor stopped for a while": self._stop_an_actor,
            "worker killed": self._kill_a_worker,
            "learner killed": lambda: self._end_the_learner(signal.SIGKILL),
            "learner ended": lambda: self._end_the_learner(signal.SIGTERM),
            "learner stopped for a while": lambda: self._stop(self.learner),
            "disk full": self._fill_the_disk,
            "line cut": self._cut_the_line,
        }

    def strike(self) -> None:
        """Let one of them happen, then see to it that all run again."""
        name = self._rng.choice(list(self.faults))
        self._note(name)
        self.faults[name]()
        self.done[name] += 1
        if not self.learner.is_alive():
            assert self.learner.exitcode in ENDED, self._everything()
            self._resume()
        for number, actor in enumerate(self.actors):
            if not actor.is_alive():
                assert actor.exitcode in ENDED, self._everything()
                self.actors[number] = self._act()
        self.peak = max(self.peak, psutil.Process(self.learner.pid).memory_info().rss / 2**20)

    def until_all_work(self) -> None:
        """Wait until something more of each living actor is stored."""
        pids = {child.pid for actor in self.actors for child in _workers(actor)}
        assert pids, self._everything()
        self._scene.until(lambda: self._scene.stored().keys() & pids, "nothing is stored any more")

    def _learn(self, *flags: str) -> BaseProcess:
        name = self._name("learner")
        return self._scene.learner(*FLAGS, *flags, name=name, namespace=self._line.spaces[0])

    def _resume(self) -> None:
        """Resume at the newest checkpoint. Only what came after it is lost, at most two intervals.

        Each save that failed on a full disk adds one interval.
        """
        reached, saved = self._scene.metric("step"), checkpoint_steps(self._scene.run / "checkpoints")[-1]
        failed = self._scene.said(self._newest["learner"]).count("tries again at the next save")
        self.learner = self._learn("--resume")
        resumed = json.loads((self._scene.run / "manifest.json").read_text())["resumed"][-1]["step"]
        self._note(f"at {reached:.0f}, saved {saved}, {failed} saves failed, resumed at {resumed}")
        assert resumed == saved, self._everything()
        assert reached - resumed <= (failed + 2) * EVERY, self._everything()
        self.most_lost = max(self.most_lost, reached - resumed)

    def _note(self, text: str) -> None:
        minutes, seconds = divmod(time.monotonic() - self._start, 60)
        self.diary.append(f"{minutes:02.0f}:{seconds:04.1f} {text}")

    def _act(self) -> BaseProcess:
        name = self._name("actor")
        actor = self._scene.actor(name, *FLAGS, namespace=self._line.spaces[1])
        self._scene.until(lambda: len(_workers(actor)) >= 2 or not actor.is_alive(), f"no workers of {name}")
        return actor

    def _name(self, role: str) -> str:
        self._begun[role] += 1
        self._newest[role] = f"{role}_{self._begun[role]}"
        self.said.append(self._newest[role])
        return self._newest[role]

    def _kill_an_actor(self) -> None:
        self._scene.end(self._rng.choice(self.actors), signal.SIGKILL)

    def _stop_an_actor(self) -> None:
        self._stop(self._rng.choice(self.actors))

    def _stop(self, process: BaseProcess) -> None:
        assert process.pid is not None
        os.kill(process.pid, signal.SIGSTOP)
        time.sleep(self._rng.uniform(0.5, 8.0))
        os.kill(process.pid, signal.SIGCONT)

    def _kill_a_worker(self) -> None:
        workers = _workers(self._rng.choice(self.actors))
        if workers:
            self._rng.choice(workers).kill()

    def _end_the_learner(self, number: signal.Signals) -> None:
        self._scene.end(self.learner, number)

    def _fill_the_disk(self) -> None:
        """No file of the learner can grow beyond a few bytes, for long enough that a save fails."""
        assert self.learner.pid is not None
        resource.prlimit(self.learner.pid, resource.RLIMIT_FSIZE, (64, resource.RLIM_INFINITY))
        self.learner.join(self._rng.uniform(1.0, 8.0))
        if self.learner.is_alive():
            resource.prlimit(
                self.learner.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
            )

    def _cut_the_line(self) -> None:
        self._line.cut = True
        time.sleep(self._rng.uniform(0.5, 8.0))
        self._line.cut = False

    def _everything(self) -> str:
        said = (f"== {name}\n{self._scene.said(name)}" for name in self.said)
        return "\n".join((*said, "== what happened", *self.diary))


@pytest.fixture
def scene(tmp_path) -> Iterator[Scene]:
    scene = Scene(tmp_path, NIGHT)
    yield scene
    scene.close()


@pytest.mark.fault("F27")
def test_a_night_in_which_everything_fails(scene):
    rng = random.Random(SEED)
    line = networks.Line(delay=0.002, loss=0.0)
    try:
        night = Night(scene, line, rng)
        night.until_all_work()
        until = time.monotonic() + MINUTES * 60
        while time.monotonic() < until:
            night.strike()
            time.sleep(rng.uniform(0.0, 10.0))
            night.until_all_work()
        children = [child for actor in night.actors for child in _workers(actor)]
        for actor in night.actors:
            assert scene.end(actor, signal.SIGINT) == 130
        assert scene.end(night.learner, signal.SIGINT) == 130
        _gone, left = psutil.wait_procs(children, timeout=5)
        assert not left, "a worker outlives its actor"
    finally:
        scene.close()
        line.close()
    stored, steps = scene.stored(), read_metrics(scene.run / "metrics.jsonl")["step"]
    print("\n" + "\n".join(night.diary), f"{dict(night.done)} in {len(night.said)} processes", sep="\n")
    print(
        f"{steps[-1]:.0f} steps, {sum(map(len, stored.values()))} rows, learner at most {night.peak:.0f} MiB"
    )
    print(f"at most {night.most_lost:.0f} steps lost with a learner, as they came after its last checkpoint")
    for name in ("lost", "dropped", "duplicates", "gaps", "rejected", "stale"):
        print(f"ds/{name} {scene.metric(f'ds/{name}'):.0f}")
    assert steps == sorted(set(steps)), "rows of metrics are repeated, or go back"
    for made in stored.values():
        assert len(made) == len(set(made)), "an episode twice"
        cut = _last_of_each_copy(made)
        assert whole([one for one in made if one[0] not in cut]), "half an episode"
        assert all(steps == list(range(len(steps))) for steps in cut.values()), "a hole in an episode"
    for name in night.said:
        text = scene.said(name)
        assert "Traceback" not in text and "internal error" not in text, text
        if name.startswith("actor"):
            versions = [int(found) for found in re.findall(r"weights (\d+)", text)]
            assert versions == sorted(versions), f"{name} acted with older weights than before"


def _last_of_each_copy(made: list[Made]) -> dict[int, list[int]]:
    """Return the last episode of each copy with its steps: the end of its process may have cut it off."""
    last = {number // APART: number for number, _ in sorted(made)}
    return {number: sorted(step for episode, step in made if episode == number) for number in last.values()}


def _workers(actor: BaseProcess) -> list[psutil.Process]:
    """Processes of its environments that run now."""
    try:
        return [child for child in psutil.Process(actor.pid).children() if child.is_running()]
    except psutil.NoSuchProcess:
        return []
