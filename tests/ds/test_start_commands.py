"""Decisions of the cluster: what to start where, when again, and what is said."""

import asyncio
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest

from algorithm.app.cli.ds import ClusterOptions, DistributedOptions, parse_distributed
from algorithm.app.cli.train import TrainOptions
from algorithm.config.locate import find_env
from algorithm.core.errors import StorageError, UsageError
from ds.cluster import command, process
from ds.cluster.command import ClusterAway, init_ray
from ds.cluster.group import LearnerProcess
from ds.cluster.member import Order, ProcessReport
from ds.cluster.plan import ClusterPlan, plan_from_args
from ds.cluster.process import ManagedProcess
from ds.evolver.generations import MemberStart
from ds.evolver.members import GenerationPart, MemberPlan
from tests.ds.fake_ray import FakeRay

HERE, THERE = "10.0.0.1", "10.0.0.2"
NOTHING = ProcessReport(address=HERE)
SAVED = replace(NOTHING, step=3)


def plan(*, resume: bool = False) -> ClusterPlan:
    train, flags = TrainOptions(env="task", resume=resume), ClusterOptions(num_actors=1, ray="auto")
    options = DistributedOptions(role="cluster", train=train, cluster=flags)
    return ClusterPlan(options=options, label="task", name="one", folder=Path("/w"))


def learner_of(*, resume: bool = False) -> LearnerProcess:
    """A learner that has not been started."""
    ray: Any = FakeRay()
    return LearnerProcess(ray, plan(resume=resume))


def order(learner: LearnerProcess, report: ProcessReport) -> Order:
    return asyncio.run(learner.make_order(report))


def port_of(order: Order) -> int:
    return int(order.options.learner_port)


LISTENS = replace(NOTHING, endpoint=(HERE, 4000))


@pytest.mark.parametrize(
    ("restart", "asked", "status", "resume", "aside"),
    [
        (False, False, NOTHING, False, False),  # a name that is taken is refused by the run
        (False, True, SAVED, True, False),
        (True, False, NOTHING, False, True),
        (True, False, SAVED, True, False),
        (True, True, NOTHING, False, True),
    ],
)
def test_a_learner_goes_on_with_what_there_is(
    restart: bool, asked: bool, status: ProcessReport, resume: bool, aside: bool
) -> None:
    learner = learner_of(resume=asked)
    if restart:
        order(learner, NOTHING)
    command = order(learner, status)
    assert (command.options.train.resume, command.aside) == (resume, aside)


def test_a_run_that_is_lost_with_its_node() -> None:
    learner = learner_of()
    order(learner, NOTHING)
    learner.on_report(replace(LISTENS, step=3))
    with pytest.raises(StorageError, match=r"(?s)/w/models/task/one on 10.0.0.2.*file system that all"):
        order(learner, replace(NOTHING, address=THERE))


def test_the_lock_of_a_lost_node_is_taken_over_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind a broken network its learner might still write."""
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    learner = learner_of()
    order(learner, NOTHING)
    monkeypatch.setattr(time, "monotonic", lambda: 100.0)
    learner.on_report(replace(LISTENS, step=3))
    monkeypatch.setattr(time, "monotonic", lambda: 130.0)
    monkeypatch.setattr(asyncio, "sleep", sleep)
    lost = replace(SAVED, locked=True, address=THERE)
    monkeypatch.setattr(learner, "fetch_report", AsyncMock(return_value=lost))
    assert order(learner, lost).unlock
    assert slept == [60.0]


def test_secrets_are_made_anew_for_another_address_and_not_on_the_loopback() -> None:
    made = plan()
    assert made.secrets_at("127.0.0.1") == made.secrets_at("::1", "token") == {}
    here = made.secrets_at(HERE)
    assert here.keys() >= {"token", "ca.pem", "learner.pem", "learner.key"}
    assert made.secrets_at(HERE, "token") == {"token": here["token"]}
    assert made.secrets_at(THERE, "token")["token"] != here["token"]


class Failing(ManagedProcess):
    """A process whose lives fail after so many seconds each."""

    def __init__(self, lives: list[float], now: list[float], code: int = 1) -> None:
        ray: Any = FakeRay()
        super().__init__(ray, plan(), "a", {})
        self._lives, self._now, self._code = lives, now, code

    async def _live(self) -> tuple[int, str]:
        self._began = self._now[0]
        self._now[0] += self._lives.pop(0)
        return self._code, f"exit code {self._code}"


@pytest.mark.parametrize("code", [2, 3, 4, 5, 6])
def test_what_a_restart_cannot_help_is_given_up_at_once(
    code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    process = Failing([1.0], [0.0], code)
    assert asyncio.run(process._keep_running()) == code and learner_of().is_final(code)
    assert (process.state, process.restarts, capsys.readouterr().out) == ("given up", 0, "")


def test_restarts_wait_longer_and_longer_until_the_budget_is_spent(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now, pauses = [1000.0], list[float]()

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(asyncio, "sleep", sleep)
    process = Failing([*[1.0] * 8, 300.0, *[1.0] * 8], now)
    assert asyncio.run(process._keep_running()) == 1
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60] * 2
    assert capsys.readouterr().out.endswith("a: exit code 1; given up after 16 restarts\n")
    assert "exit code 1; 16 restarts did not help" in process.explain_end()
    assert (process.state, process.restarts) == ("given up", 16)


class TaskError(Exception):
    """Ray's error for a method that raised ``cause``."""

    def __init__(self, cause: str) -> None:
        super().__init__(cause)
        self.cause = cause


class ActorError(Exception):
    """Ray's error for an actor that has died."""


class ActorUnavailableError(ActorError):
    """Ray's error for an actor that does not answer for a while."""


ERRORS = SimpleNamespace(
    RayTaskError=TaskError, RayActorError=ActorError, ActorUnavailableError=ActorUnavailableError
)


class NodeMember:
    """Stand-in for the Ray actor of a process: it gives these reports, then none."""

    def __init__(self, *reports: ProcessReport | Exception, start: int | Exception = 7) -> None:
        self._reports, self._start = list(reports), start
        self.report = SimpleNamespace(options=lambda max_task_retries: SimpleNamespace(remote=self._next))
        self.start = SimpleNamespace(remote=self._begin)

    async def _next(self) -> ProcessReport:
        if not self._reports:
            await asyncio.sleep(60)
        return _value(self._reports.pop(0))

    async def _begin(self, order: Order) -> int:
        return _value(self._start)


def _value(value: Any) -> Any:
    if isinstance(value, Exception):
        raise value
    return value


class Ordered(ManagedProcess):
    """A process that is ordered at once."""

    def __init__(self, member: NodeMember) -> None:
        ray: Any = FakeRay()
        ray.exceptions = ERRORS
        super().__init__(ray, plan(), "it", {})
        self._member = member

    async def make_order(self, report: ProcessReport) -> Order:
        return Order(module="", options=None)


RUNS = replace(NOTHING, pid=7)


@pytest.mark.parametrize(
    ("member", "code", "why"),
    [
        (NodeMember(NOTHING, RUNS, replace(RUNS, code=5)), 5, "a number is not finite"),
        (
            NodeMember(NOTHING, RUNS, replace(NOTHING, pid=8, code=0)),
            137,
            "the node, or Ray's worker on it, died",
        ),
        (NodeMember(NOTHING, RUNS), 137, "the node, or Ray's worker on it, died"),
        (NodeMember(NOTHING, start=TaskError("no module")), 4, "10.0.0.1 cannot start it: no module"),
        (NodeMember(NOTHING, start=ActorError()), 137, "the node, or Ray's worker on it, died"),
        (NodeMember(ActorError()), 4, "a node cannot start it"),
        (NodeMember(ActorUnavailableError()), 137, "died"),
    ],
)
def test_how_a_process_on_a_node_ends(
    monkeypatch: pytest.MonkeyPatch, member: NodeMember, code: int, why: str
) -> None:
    monkeypatch.setattr(process, "REPORT_S", 0.0)
    monkeypatch.setattr(ManagedProcess.fetch_report, "__defaults__", (0.05,))
    ended, reason = asyncio.run(Ordered(member)._live())
    assert ended == code and why in reason


def test_a_wait_for_a_place_is_no_time_of_health(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(process, "time", SimpleNamespace(monotonic=lambda: clock.now))
    monkeypatch.setattr(process, "FIRST_PAUSE_S", 0.0)
    monkeypatch.setattr(process, "REPORT_S", 0.0)

    class Waiting(Ordered):
        async def make_order(self, report: ProcessReport) -> Order:
            clock.now += 1000.0
            if self.restarts == 1:
                self._member._start = ActorError()  # from now on no node starts it
            return await super().make_order(report)

    waiting = Waiting(NodeMember(NOTHING, replace(RUNS, code=1), *[NOTHING] * 20))
    assert asyncio.run(waiting._keep_running()) == 1 and waiting.restarts == process.BUDGET


@pytest.mark.parametrize(("code", "line"), [(5, "error: learner has ended with code 5"), (0, "is over")])
def test_a_training_ends_as_its_learner_does(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], code: int, line: str
) -> None:
    ended = SimpleNamespace(code=code, node=HERE, explain_end=lambda: f"learner has ended with code {code}")
    group = SimpleNamespace(start=lambda: None, over=lambda: ended, end=AsyncMock())
    monkeypatch.setattr(command, "LearnerGroup", lambda ray, plan: group)
    ray, stop = SimpleNamespace(), SimpleNamespace()
    assert asyncio.run(command._train(ray, plan(), stop)) == code  # type: ignore[arg-type]
    assert line in capsys.readouterr().out


def test_a_learner_has_a_gpu_if_the_cluster_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    options: dict[str, Any] = {}
    ray: Any = FakeRay()
    ray.cluster_resources = lambda: {"GPU": 2.0}
    ray.remote = lambda kind: SimpleNamespace(
        options=lambda **more: options.update(more) or SimpleNamespace(remote=lambda *arguments: None)
    )
    LearnerProcess(ray, plan())
    assert options["num_gpus"] == 1.0 and options["scheduling_strategy"] == [{"CPU": 1.0, "GPU": 1.0}]


def planned(*flags: str) -> ClusterPlan:
    options = parse_distributed(["gym/pendulum", "cluster", "--num_actors", "3", *flags])
    return plan_from_args(options, find_env("gym/pendulum"))


def test_from_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Flags reach everybody they are for, also where a learner is started again, alone or in a population."""
    monkeypatch.chdir(tmp_path)
    flags = ["--seed", "4", "-o", "sac_config.n_step=3", "--device", "cpu", "--directory", "kept"]
    flags += ["--algorithm", "TD3", "--preset", "lean"]
    made = planned("-n", "one", *flags)
    assert (made.run, made.folder, made.makes_secrets) == ("kept/gym/pendulum/one", tmp_path, True)
    start = MemberStart(step=-1, evaluations=0)
    part = GenerationPart(overrides=("a=1",), networks=None, start=start, evaluations=1)
    learner = made.learner("h", 5, resume=False, step=-1)
    again = made.learner("h", 5, resume=True, step=3)
    actor = made.actor("h", 5)
    assert (learner.train.name, learner.train.seed, learner.train.device) == ("one", 4, "cpu")
    assert (again.train.name, again.train.seed, again.train.overrides) == ("one", None, ())
    assert (actor.train.name, actor.train.seed) == (None, None)
    assert (actor.role, actor.learner_host, actor.learner_port) == ("actor", "h", 5)
    assert learner.train.overrides == actor.train.overrides == ("sac_config.n_step=3",)
    assert {(one.train.algorithm, one.train.preset) for one in (learner, actor)} == {("TD3", "lean")}
    assert {one.train.directory for one in (learner, again, actor)} == {Path("kept")}
    resumed = replace(made.options, train=replace(made.options.train, resume=True, max_step=9))
    again = replace(made, options=resumed).learner("h", 5, resume=True, step=3)
    assert (again.train.max_step, again.train.overrides) == (9, ("sac_config.n_step=3",))
    member = MemberPlan(**vars(made), number=1, first=("b=2",), part=part)
    learner = member.learner("h", 5, resume=False, step=-1)
    assert learner.train.overrides == ("sac_config.n_step=3", "b=2", "a=1")
    assert member.actor("h", 5).train.overrides == ("sac_config.n_step=3", "a=1")


def test_what_the_command_line_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StorageError, match="there is no run 'one'"):
        planned("-n", "one", "--resume")
    Path("models/gym/pendulum/one").mkdir(parents=True)
    with pytest.raises(UsageError, match="something else with the name"):
        planned("-n", "one")
    assert not planned("-o", "net_config.secrets=/mine").makes_secrets


def test_an_address_where_no_ray_answers() -> None:
    for address in ("head", "ray://head:10001", "head:x"):
        with pytest.raises(UsageError, match="HOST:PORT"):
            init_ray(address)
    with pytest.raises(ClusterAway, match="no Ray cluster answers"):  # Ray itself would try for minutes
        init_ray("127.0.0.1:1")
