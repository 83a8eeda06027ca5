"""Decisions of the cluster: what to start where, when again, and what is said."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from algorithm.app.cli.ds import parse_distributed
from algorithm.app.cli.parsing import parse_args
from algorithm.config import ConfigError
from algorithm.config.locate import find_env
from algorithm.core.errors import StorageError, UsageError
from ds.cluster.cluster import rows
from ds.cluster.command import ClusterAway, cluster, join_ray, start_ray
from ds.cluster.group import LearnerCommands
from ds.cluster.host import NodeStatus, ProcessReport, StartCommand
from ds.cluster.plan import ClusterPlan, MainCommands, Secrets, plan_from_args
from ds.cluster.process import ManagedProcess
from ds.cluster.restarts import RestartRule, Restarts
from ds.evolver.generations import MemberStart
from ds.evolver.members import GenerationPart, MemberCommands

NOTHING = NodeStatus(exists=False, step=-1, locked="")
BEGUN = NodeStatus(exists=True, step=-1, locked="")
SAVED = NodeStatus(exists=True, step=3, locked="")
HERE, THERE = "10.0.0.1", "10.0.0.2"

COMMANDS = MainCommands(
    script=("/p/main_ds.py",),
    env="task",
    name="one",
    common=("-c", "section"),
    learner_flags=("--seed", "3"),
    actor_flags=("--agents", "2"),
    kept=("--device", "cpu"),
)


def plan(*, resume: bool = False) -> ClusterPlan:
    return ClusterPlan(
        label="task", name="one", folder=Path("/w"), commands=COMMANDS, actors=1, resume=resume
    )


def orders(now: list[float] | None = None, *, resume: bool = False) -> LearnerCommands:
    clock = [0.0] if now is None else now
    return LearnerCommands(plan(resume=resume), Secrets(None), lambda: clock[0])


def port_of(command: StartCommand | None) -> str:
    assert command is not None
    return command.arguments[command.arguments.index("--learner_port") + 1]


def listening(host: str = HERE, *, saved: bool = False) -> ProcessReport:
    return ProcessReport(pid=1, code=None, lines=(), endpoint=(host, 4000), saved=saved)


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
    restart: bool, asked: bool, status: NodeStatus, resume: bool, aside: bool
) -> None:
    given = orders(resume=asked)
    if restart:
        given.next_command(HERE, NOTHING)
    command = given.next_command(HERE, status)
    assert command is not None and command.run == "models/task/one"
    assert ("--resume" in command.arguments, command.aside) == (resume, aside)


def test_a_restart_asks_for_the_former_port_once_and_where_it_was() -> None:
    given = orders()
    given.next_command(HERE, NOTHING)
    given.observe(listening())
    assert port_of(given.next_command(HERE, SAVED)) == "4000"
    assert given.took_former_port
    assert port_of(given.next_command(HERE, SAVED)) == "0"
    assert not given.took_former_port
    given.observe(listening())
    assert port_of(given.next_command(THERE, SAVED)) == "0"


def test_a_run_that_is_lost_with_its_node() -> None:
    given = orders()
    given.next_command(HERE, NOTHING)
    given.observe(listening(saved=True))
    with pytest.raises(StorageError, match=r"(?s)/w/models/task/one on 10\.0\.0\.2.*file system that all"):
        given.next_command(THERE, NOTHING)


def test_the_lock_of_a_lost_node_is_taken_over_after_a_while() -> None:
    """Behind a broken network its learner might still write."""
    now = [100.0]
    given = orders(now)
    given.next_command(HERE, NOTHING)
    given.observe(listening())
    locked = NodeStatus(exists=True, step=3, locked="elsewhere")
    given.lost()
    now[0] = 189.9
    given.lost()
    assert given.next_command(THERE, locked) is None
    now[0] = 190.0
    command = given.next_command(THERE, locked)
    assert command is not None
    assert command.unlock


def test_secrets_are_made_anew_for_another_address_and_not_on_the_loopback() -> None:
    made: list[Sequence[str]] = []

    def make(folder: Path, hosts: Sequence[str]) -> None:
        made.append(hosts)
        for name in ("token", "ca.pem", "learner.pem", "learner.key"):
            (folder / name).write_text(f"{name} {len(made)}")

    secrets = Secrets(make)
    assert secrets.learner("127.0.0.1") == secrets.actor("::1") == {}
    assert secrets.learner(HERE)["learner.key"] == b"learner.key 1"
    assert secrets.actor(HERE) == {"token": b"token 1", "ca.pem": b"ca.pem 1"}
    assert secrets.actor(THERE)["token"] == b"token 2"
    assert made == [[HERE], [THERE]]


def test_restarts_wait_longer_and_longer_until_the_budget_is_spent() -> None:
    restarts = Restarts(RestartRule(first=1.0, longest=5.0, budget=5, healthy=100.0))
    assert [restarts.after(1.0) for _ in range(6)] == [1.0, 2.0, 4.0, 5.0, 5.0, None]
    assert restarts.after(100.0) == 1.0
    assert restarts.total == 6


def managed(name: str, node: str, state: str, restarts: int) -> ManagedProcess:
    """As much of a process as a table shows."""
    process = ManagedProcess.__new__(ManagedProcess)
    process.name, process.node, process.state = name, node, state  # type: ignore[assignment]
    process._restarts = SimpleNamespace(total=restarts)  # type: ignore[assignment]
    return process


def test_the_table_has_a_line_for_each_of_few_and_for_each_node_of_many() -> None:
    learner = managed("learner", HERE, "running", 1)
    actors = [managed(f"actor {i}", THERE if i else "", "running" if i else "placing", i) for i in range(30)]
    few = rows(learner, actors[:2], None, 3)  # type: ignore[arg-type]
    assert [" ".join(line.split()) for line in few] == [
        "1 of 3 actors run",
        "node role state restarts",
        "10.0.0.1 learner running 1",
        "- actor 0 waiting for a free node 0",
        "10.0.0.2 actor 1 running 1",
    ]
    many = rows(learner, actors, (HERE, 1), 30)  # type: ignore[arg-type]
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
    assert isinstance(made.commands, MainCommands) and Path(made.commands.script[0]).is_file()
    start = MemberStart(step=-1, evaluations=0)
    part = GenerationPart(flags=(), networks=None, start=start, evaluations=1)
    for commands in (made.commands, MemberCommands(made.commands, None, part)):
        learner = parse_distributed(commands.learner("h", 5, resume=False, step=-1)[1:])
        again = parse_distributed(commands.learner("h", 5, resume=True, step=3)[1:])
        actor = parse_distributed(commands.actor("h", 5)[1:])
        assert (learner.train.name, learner.train.seed, learner.train.device) == ("one", 4, "cpu")
        assert (again.train.resume, again.train.seed, again.train.overrides) == (True, None, ())
        assert (actor.learner_host, actor.learner_port) == ("h", 5)
        assert learner.train.overrides == actor.train.overrides == ("sac_config.n_step=3",)
        assert {(one.train.algorithm, one.train.preset) for one in (learner, actor)} == {("TD3", "lean")}
        assert {one.train.directory for one in (learner, again, actor)} == {Path("kept")}
    alone = MemberCommands(made.commands, ("main.py",), part).learner("h", 5, resume=True, step=3)
    assert parse_args(alone[1:]).directory == Path("kept")


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
