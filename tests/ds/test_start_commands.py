"""Decisions of the cluster: what to start where, when again, and what is said."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from algorithm.app.cli.ds import DistributedOptions, parse_distributed
from algorithm.app.cli.train import TrainOptions
from algorithm.config import ConfigError
from algorithm.config.locate import find_env
from algorithm.core.errors import StorageError, UsageError
from ds.cluster.cluster import rows
from ds.cluster.command import ClusterAway, cluster, join_ray, start_ray
from ds.cluster.group import LearnerGroup
from ds.cluster.member import Order, ProcessReport
from ds.cluster.plan import ClusterPlan, CommandRoles, MakeSecrets, plan_from_args
from ds.cluster.process import ManagedProcess, RestartRule
from ds.evolver.generations import MemberStart
from ds.evolver.members import GenerationPart, MemberRoles
from tests.ds.fake_ray import ActorError, FakeRay

HERE, THERE = "10.0.0.1", "10.0.0.2"
NOTHING = ProcessReport(life="a", address=HERE)
BEGUN = replace(NOTHING, exists=True)
SAVED = replace(BEGUN, step=3)


def plan(*, resume: bool = False, secrets: MakeSecrets | None = None) -> ClusterPlan:
    options = DistributedOptions(role="cluster", train=TrainOptions(env="task", resume=resume))
    roles = CommandRoles(options=options, name="one")
    return ClusterPlan(
        label="task", name="one", folder=Path("/w"), roles=roles, actors=1, resume=resume, secrets=secrets
    )


def group_of(*, resume: bool = False) -> LearnerGroup:
    """A group whose learner has not been placed."""
    learner = SimpleNamespace(report=None, name="learner", code=None)
    crew: Any = SimpleNamespace(ray=FakeRay(), log=print, add=lambda *arguments: learner)
    return LearnerGroup(crew, plan(resume=resume))


def refused(group: LearnerGroup) -> object:
    """Let the learner end with 2; whose end is that of the group."""
    learner: Any = group.learner
    learner.code, learner.over = 2, True
    learner.again = lambda: setattr(learner, "over", False)
    return group.over()


def observe(group: LearnerGroup, report: ProcessReport) -> None:
    group.learner.report = report
    group.step(0)


def port_of(order: Order | None) -> int:
    assert order is not None
    return int(order.options.learner_port)


LISTENS = replace(BEGUN, pid=1, endpoint=(HERE, 4000))


@pytest.mark.parametrize(
    ("restart", "asked", "status", "resume", "aside"),
    [
        (False, False, BEGUN, False, False),  # a name that is taken is refused by the run
        (False, True, SAVED, True, False),
        (True, False, NOTHING, False, False),
        (True, False, BEGUN, False, True),
        (True, False, SAVED, True, False),
        (True, True, BEGUN, False, True),
    ],
)
def test_a_learner_goes_on_with_what_there_is(
    restart: bool, asked: bool, status: ProcessReport, resume: bool, aside: bool
) -> None:
    group = group_of(resume=asked)
    if restart:
        group.learner_order(NOTHING)
    command = group.learner_order(status)
    assert command is not None
    assert (command.options.train.resume, command.aside) == (resume, aside)


def test_a_restart_asks_for_the_former_port_once_and_where_it_was() -> None:
    group = group_of()
    group.learner_order(NOTHING)
    observe(group, LISTENS)
    assert port_of(group.learner_order(SAVED)) == 4000
    assert refused(group) is None, "that port may be taken"
    assert port_of(group.learner_order(SAVED)) == 0
    assert refused(group) is group.learner
    observe(group, LISTENS)
    assert port_of(group.learner_order(replace(SAVED, address=THERE))) == 0


def test_a_run_that_is_lost_with_its_node() -> None:
    group = group_of()
    group.learner_order(NOTHING)
    observe(group, replace(LISTENS, step=3))
    assert group.learner_order(replace(NOTHING, address=THERE)) is None
    assert "/w/models/task/one on 10.0.0.2" in str(group.error)
    assert "file system that all" in str(group.error)


def test_the_lock_of_a_lost_node_is_taken_over_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind a broken network its learner might still write."""
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    group = group_of()
    group.learner_order(NOTHING)
    observe(group, replace(LISTENS, step=3))
    locked = replace(SAVED, locked=True)
    now[0] = 189.9
    assert group.learner_order(replace(locked, address=THERE)) is None
    now[0] = 190.0
    command = group.learner_order(replace(locked, address=THERE))
    assert command is not None
    assert command.unlock


def test_secrets_are_made_anew_for_another_address_and_not_on_the_loopback() -> None:
    made: list[Sequence[str]] = []

    def make(folder: Path, hosts: Sequence[str]) -> None:
        made.append(hosts)
        for name in ("token", "ca.pem", "learner.pem", "learner.key"):
            (folder / name).write_text(f"{name} {len(made)}")

    made_for = plan(secrets=make)
    assert made_for.secrets_at("127.0.0.1") == made_for.secrets_at("::1", "token") == {}
    assert made_for.secrets_at(HERE)["learner.key"] == b"learner.key 1"
    assert made_for.secrets_at(HERE, "token") == {"token": b"token 1"}
    assert made_for.secrets_at(THERE, "token") == {"token": b"token 2"}
    assert made == [[HERE], [THERE]]


def order_for(report: ProcessReport) -> Order:
    return Order(life=report.life, module="", options=None)


class Crew:
    """As much of a crew as one process needs."""

    rule = RestartRule(first=1.0, longest=5.0, budget=5, healthy=100.0)

    def __init__(self) -> None:
        self.said: list[str] = []
        self.log = self.said.append
        self.ray, self.board = FakeRay(), None


def test_restarts_wait_longer_and_longer_until_the_budget_is_spent(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    crew: Any = Crew()
    actor: Any = SimpleNamespace(live=SimpleNamespace(remote=lambda *place: None), kill=lambda restart: None)
    process = ManagedProcess(crew, "a", lambda: actor, ("key", "/w", ""), order_for, lambda line: None)

    def live(seconds: float) -> str:
        """Live so long; what comes of it."""
        now[0] += 60.0  # any pause is over
        process.hear(replace(NOTHING, life=str(now)))
        assert process.runs
        now[0] += seconds
        process.hear(replace(NOTHING, life=process.order.life if process.order else "", pid=1, code=1))
        return str(crew.said[-1]).rpartition("; ")[2]

    pauses = [live(1.0) for _ in range(5)]
    assert pauses == [f"restarts in {pause} s" for pause in (1, 2, 4, 5, 5)]
    assert live(100.0) == "restarts in 1 s"
    pauses = [live(1.0) for _ in range(5)]
    assert pauses[-1] == "given up after 10 restarts"
    assert (process.code, process.restarts) == (1, 10)


def test_the_life_that_was_killed_to_be_moved_gets_no_order() -> None:
    """It may report once more before it is gone."""
    crew: Any = Crew()
    actor: Any = SimpleNamespace(live=SimpleNamespace(remote=lambda *place: None), kill=lambda restart: None)
    process = ManagedProcess(crew, "a", lambda: actor, ("key", "/w", ""), order_for, lambda line: None)
    process.hear(NOTHING)
    process.hear(replace(NOTHING, pid=1))
    assert process.state == "running"
    process.move()
    process.hear(replace(NOTHING, pid=1))
    assert process.order is None
    process.hear(replace(NOTHING, life="b"))
    assert process.state == "running" and not process.restarts


def test_an_actor_that_ray_starts_no_more_is_placed_anew_unless_none_has_ever_reported() -> None:
    crew: Any = Crew()
    placed: list[object] = []

    def place() -> object:
        placed.append(0)
        return SimpleNamespace(live=SimpleNamespace(remote=lambda *place: dead))

    dead: Any = SimpleNamespace()
    crew.ray.get = lambda ref: raise_(ActorError("died"))
    process = ManagedProcess(crew, "a", place, ("key", "/w", ""), order_for, lambda line: None)
    process.hear(NOTHING)
    process.recall()
    assert (len(placed), process.code) == (2, None)
    process.recall()
    assert (len(placed), process.code) == (2, 4)
    assert "at the same path" in process.why


def raise_(error: Exception) -> None:
    raise error


def managed(name: str, node: str, state: str, restarts: int) -> ManagedProcess:
    """As much of a process as a table shows."""
    process: Any = SimpleNamespace(name=name, node=node, state=state, restarts=restarts)
    return cast(ManagedProcess, process)


def test_the_table_has_a_line_for_each_of_few_and_for_each_node_of_many() -> None:
    learner = managed("learner", HERE, "running", 1)
    actors = [
        managed(f"actor {i}", THERE if i else "", "running" if i else "waiting for a free node", i)
        for i in range(30)
    ]
    few = rows(learner, actors[:2], None, 3)
    assert [" ".join(line.split()) for line in few] == [
        "1 of 3 actors run",
        "node role state restarts",
        "10.0.0.1 learner running 1",
        "- actor 0 waiting for a free node 0",
        "10.0.0.2 actor 1 running 1",
    ]
    many = rows(learner, actors, (HERE, 1), 30)
    assert [" ".join(line.split()) for line in many[2:]] == [
        "10.0.0.1 learner listening 1",
        "- 1 actors 1 waiting for a free node 0",
        "10.0.0.2 29 actors 29 running 435",
    ]


def planned(*flags: str) -> ClusterPlan:
    options = parse_distributed(["gym/pendulum", "cluster", "--num_actors", "3", *flags])
    return plan_from_args(options, find_env("gym/pendulum"))


def test_from_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Flags reach everybody they are for, also where a learner is started again, alone or in a population."""
    monkeypatch.chdir(tmp_path)
    flags = ["--seed", "4", "-o", "sac_config.n_step=3", "--device", "cpu", "--directory", "kept"]
    flags += ["--algorithm", "TD3", "--preset", "lean"]
    made = planned("-n", "one", *flags, "--actor_cpus", "0.5")
    assert (made.run, made.actors, made.actor_cpus) == ("kept/gym/pendulum/one", 3, 0.5)
    assert made.folder == tmp_path and made.secrets is not None
    roles = made.roles
    assert isinstance(roles, CommandRoles)
    start = MemberStart(step=-1, evaluations=0)
    part = GenerationPart(overrides=("a=1",), networks=None, start=start, evaluations=1)
    learner = roles.learner("h", 5, resume=False, step=-1)
    again = roles.learner("h", 5, resume=True, step=3)
    actor = roles.actor("h", 5)
    assert (learner.train.name, learner.train.seed, learner.train.device) == ("one", 4, "cpu")
    assert (again.train.resume, again.train.seed, again.train.overrides) == (True, None, ())
    assert (again.train.name, again.train.device, actor.train.name, actor.train.seed) == (
        "one",
        "cpu",
        None,
        None,
    )
    assert (actor.role, actor.learner_host, actor.learner_port) == ("actor", "h", 5)
    assert learner.train.overrides == actor.train.overrides == ("sac_config.n_step=3",)
    assert {(one.train.algorithm, one.train.preset) for one in (learner, actor)} == {("TD3", "lean")}
    assert {one.train.directory for one in (learner, again, actor)} == {Path("kept")}
    resumed = replace(roles.options, train=replace(roles.options.train, resume=True, max_step=9))
    again = CommandRoles(options=resumed, name="one").learner("h", 5, resume=True, step=3)
    assert (again.train.max_step, again.train.overrides, again.train.seed) == (
        9,
        ("sac_config.n_step=3",),
        None,
    )
    alone = MemberRoles(roles, part, alone=True).learner("h", 5, resume=True, step=3)
    assert isinstance(alone, TrainOptions)
    assert (alone.directory, alone.resume, alone.evaluations, alone.overrides) == (Path("kept"), True, 1, ())
    begins = MemberRoles(roles, part, alone=False)
    learner = begins.learner("h", 5, resume=False, step=-1)
    assert learner.train.overrides == begins.actor("h", 5).train.overrides == ("sac_config.n_step=3", "a=1")


def test_what_the_command_line_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="n_stepp"):
        planned("-o", "sac_config.n_stepp=3")
    with pytest.raises(StorageError, match="there is no run 'one'"):
        planned("-n", "one", "--resume")
    Path("models/gym/pendulum/one").mkdir(parents=True)
    with pytest.raises(UsageError, match="something else with the name"):
        planned("-n", "one")
    assert planned("-o", "net_config.secrets=/mine").secrets is None
    words = ["gym/pendulum", "cluster", "--scale", "3", "--unity_port", "5006"]
    with pytest.raises(UsageError, match="add -n NAME"):
        cluster(parse_distributed(words), ["main_ds.py"])
    assert capsys.readouterr().err.startswith("warning: --port has no effect on this command")


def test_ray_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("RAY_USAGE_STATS_ENABLED", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"):
        monkeypatch.setenv(variable, "")
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError, match=r'(?s)needs the extra ray.*pip install -e "\.\[ray\]"'):
        start_ray()


def test_an_address_where_no_ray_answers() -> None:
    for address in ("head", "ray://head:10001", "head:x"):
        with pytest.raises(UsageError, match="HOST:PORT"):
            join_ray(address)
    with pytest.raises(ClusterAway, match="no Ray cluster answers"):  # Ray itself would try for minutes
        join_ray("127.0.0.1:1")
