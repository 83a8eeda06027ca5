"""What happens to a training on a cluster, with real processes and a Ray that is played."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from algorithm.app.cli.ds import DistributedOptions
from algorithm.app.cli.train import TrainOptions
from ds.cluster import process
from ds.cluster.cluster import train_together
from ds.cluster.group import LearnerProcess
from ds.cluster.member import Order, ProcessReport
from ds.cluster.process import Crew, ManagedProcess, RestartRule
from tests.ds import standin
from tests.ds.cluster_main import stand_ins
from tests.ds.fake_ray import FakeRay

LIMIT = 60.0  # seconds until something is wrong


class Stop:
    """A :class:`StopRequest` without signals."""

    text, exit_code = "stopping", 130

    def __init__(self) -> None:
        self.asked = False

    def __bool__(self) -> bool:
        return self.asked


class Life:
    """A cluster that runs in a thread, in a folder."""

    def __init__(self, folder: Path, actors: int = 1, ray: FakeRay | None = None) -> None:
        self.folder, self.ray, self.stop = folder, ray or FakeRay(), Stop()
        self.said: list[str] = []
        self.code: int | None = None
        plan = stand_ins(folder, num_actors=actors, ray="auto")
        rule = RestartRule(first=0.01, longest=0.05, budget=3)
        crew = Crew(self.ray, log=self.said.append, rule=rule)  # type: ignore[arg-type]
        self._training = train_together(crew, plan, self.stop)  # type: ignore[arg-type]
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        self.code = asyncio.run(self._training)

    def kill(self, number: int) -> None:
        """Kill -9 a process; 0: the learner's, then those of actors."""
        self.ray.placed[number][0].process.kill()

    def events(self, word: str) -> list[str]:
        file = self.folder / "events.txt"
        return [line for line in file.read_text().splitlines() if word in line] if file.exists() else []

    def wait(self, what: Callable[[], object]) -> None:
        deadline = time.monotonic() + LIMIT
        while not what():
            assert time.monotonic() < deadline, self.said
            time.sleep(0.02)

    def end(self) -> int | None:
        self._thread.join(LIMIT)
        assert not self._thread.is_alive(), self.said
        return self.code

    def close(self) -> None:
        """End it whatever has happened."""
        self.stop.asked = True
        self._thread.join(LIMIT)
        self.ray.close()


@pytest.fixture
def begin(cwd: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Life]]:
    monkeypatch.setattr(process, "REPORT_S", 0.02)
    with contextlib.ExitStack() as stack:

        def make(**more: object) -> Life:
            life = Life(cwd, **more)  # type: ignore[arg-type]
            stack.callback(life.close)
            return life

        yield make


@pytest.mark.parametrize(
    ("file", "text", "code", "said", "learners"),
    [
        ("finish", "", 0, "the training is over; its run is models/task/one on 127.0.0.1", 1),
        ("refuse", "5", 5, "error: the configuration is wrong", 1),
        ("refuse", "1", 1, "exit code 1; 3 restarts did not help", 4),
    ],
)
def test_how_the_learner_ends_is_how_the_training_does(
    begin: Callable[..., Life], file: str, text: str, code: int, said: str, learners: int
) -> None:
    life = begin(ray=FakeRay(gpus=2))
    life.wait(lambda: life.events("connected"))
    assert [options["num_gpus"] for _, options in life.ray.placed] == [1.0, 0.0], "the learner's"
    assert life.ray.placed[0][1]["scheduling_strategy"] == [{"CPU": 1.0, "GPU": 1.0}], "its place is kept"
    (life.folder / file).write_text(text)
    assert life.end() == code
    assert any(said in line for line in life.said)
    assert len(life.events("learner")) == learners
    assert len(life.events("finished") + life.events("bye")) == 1


def test_actors_come_back_until_a_stop(begin: Callable[..., Life]) -> None:
    life = begin()
    life.wait(lambda: life.events("connected"))
    life.kill(1)
    life.wait(lambda: len(life.events("connected")) == 2)
    assert "actor 0: 127.0.0.1: killed by SIGKILL; restarts in 0.01 s" in life.said
    life.stop.asked = True
    assert life.end() == 130
    assert [line.split()[-1] for line in life.events("")[-2:]] == ["saved", "bye"]
    assert len(life.events("learner")) == 2, "it was started once, and saved once"


def test_what_died_with_a_worker_that_ray_replaces_at_once_comes_back(begin: Callable[..., Life]) -> None:
    life = begin()
    life.wait(lambda: life.events("connected"))
    for number in (1, 0):
        life.ray.placed[number][0].replace()
        life.wait(lambda number=number: len(life.events("connected")) == 3 - number)
    assert len(life.events("fresh")) == 2
    for name in ("actor 0", "learner"):
        assert f"{name}: 127.0.0.1: the node, or Ray's worker on it, died; restarts in 0.01 s" in life.said


def test_a_broken_connection_is_no_death_until_it_lasts(
    begin: Callable[..., Life], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "UNREACHABLE_S", 3.0)
    life = begin()
    life.wait(lambda: life.events("connected"))
    actor = life.ray.placed[1][0]
    actor.cut = True
    life.wait(lambda: actor.missed > 3)
    actor.cut = False
    assert not [line for line in life.said if "; restarts in" in line]

    actor.cut = True
    died = "actor 0: 127.0.0.1: the node, or Ray's worker on it, died; restarts in 0.01 s"
    life.wait(lambda: died in life.said)
    actor.cut = False
    life.wait(lambda: len(life.events("connected")) == 2)


def test_all_follow_to_another_node_unless_the_run_is_lost_with_it(begin: Callable[..., Life]) -> None:
    life = begin(actors=2)
    (life.folder / "save").touch()
    life.wait(lambda: len(life.events("connected")) == 2)
    life.wait(lambda: list(life.folder.glob("models/task/one/checkpoints/*/manifest.json")))
    life.ray.address = "127.0.0.2"
    life.ray.placed[0][0].lose()
    life.wait(lambda: life.events("resumed"))
    port = life.events("resumed")[0].split()[2]
    life.wait(lambda: any(line.split()[2] == port for line in life.events("actor")))
    life.wait(lambda: len(life.events("connected")) >= 4)
    (life.folder / "models").rename(life.folder / "elsewhere")
    life.ray.address = "127.0.0.3"
    life.ray.placed[0][0].lose()
    assert life.end() == 6
    assert "file system that all nodes share" in life.said[-1]
    assert "learner: 127.0.0.2: the node, or Ray's worker on it, died; restarts in 0.02 s" in life.said


def test_a_node_without_the_folder(tmp_path: Path) -> None:
    life = Life(tmp_path / "missing")
    assert life.end() == 4
    assert "No such file or directory" in life.said[-1]


def test_a_run_that_another_machine_holds_is_taken_over_as_it_is_after_the_wait(tmp_path: Path) -> None:
    ray: Any = FakeRay()
    crew = Crew(ray, log=print, rule=RestartRule())
    plan = stand_ins(tmp_path, fence=0.5)
    plan.adopt = True  # type: ignore[misc]
    learner = LearnerProcess(crew, plan)
    learner.on_report(ProcessReport(address="127.0.0.1"))

    async def saved_meanwhile() -> Order:
        making = asyncio.create_task(learner.make_order(ProcessReport(address="127.0.0.1", locked=True)))
        await asyncio.sleep(0.01)
        standin.save(tmp_path / plan.run)
        return await making

    order = asyncio.run(saved_meanwhile())
    ray.close()
    assert order.options.train.resume and not order.aside and not order.unlock


def test_a_wait_for_a_place_is_no_time_of_health(cwd: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(process, "time", SimpleNamespace(monotonic=lambda: clock.now))

    class Crashing(ManagedProcess):
        async def make_order(self, report: ProcessReport) -> Order:
            clock.now += 1000.0
            train = TrainOptions(env="", overrides=("raise",))
            return Order(module="tests.ds.performing", options=DistributedOptions(role="actor", train=train))

    ray: Any = FakeRay()
    crew = Crew(ray, log=print, rule=RestartRule(first=0.0, budget=2))

    async def life() -> int:
        crashing = Crashing(crew, "it", {}, (str(cwd), "", ["main_ds.py"]))
        crashing.start()
        deadline = time.monotonic() + LIMIT
        while crashing.code is None and crashing.restarts < 9 and time.monotonic() < deadline:
            await asyncio.sleep(0.02)
        return crashing.restarts

    restarts = asyncio.run(life())
    ray.close()
    assert restarts == 2
