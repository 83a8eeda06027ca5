"""The command line of ``main_ds.py``."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from algorithm.config.cli import TrainOptions, config_flags, refuse_mixed
from algorithm.config.errors import unavailable
from algorithm.config.flags import (
    add_acting,
    add_common,
    add_model,
    add_talk,
    add_training,
    cannot,
    leave,
    make_parser,
    natural,
    positive,
)

_EXAMPLES = """\
examples:
  # a learner, and as many actors as you like, each in a terminal of its own, in any order
  python main_ds.py gym/pendulum learner
  python main_ds.py gym/pendulum actor
  # actors on another machine: secrets first, see docs/distributed.md
  python main_ds.py gym/pendulum learner --learner_host 10.0.0.1
  python main_ds.py gym/pendulum actor --learner_host 10.0.0.1
  # go on with a learner that was stopped or killed; its actors come back by themselves
  python main_ds.py gym/pendulum learner -n NAME --resume
  # learner and actors placed, watched and restarted by Ray, here or on a cluster
  python main_ds.py gym/pendulum cluster --num_actors 4
"""

Role = Literal["learner", "actor", "cluster"]
_ROLES: Mapping[str, Role] = {
    "learner": "learner",
    "l": "learner",
    "actor": "actor",
    "a": "actor",
    "cluster": "cluster",
}


@dataclass(frozen=True, kw_only=True)
class DistributedOptions:
    """What the command line of ``main_ds.py`` asks for. None and false: the flag was not given.

    train: what it has in common with ``main.py``
    """

    role: Role
    train: TrainOptions
    learner_host: str | None = None
    learner_port: int | None = None
    insecure: bool = False
    cluster: ClusterOptions | None = None

    @property
    def flags(self) -> dict[str, object]:
        """Those that stand for a key of the configuration, as `load_config` takes them."""
        keys = {
            "net_config.learner_host": self.learner_host,
            "net_config.learner_port": self.learner_port,
            "net_config.insecure": self.insecure or None,
        }
        return config_flags(self.train) | {path: value for path, value in keys.items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class ClusterOptions:
    """How Ray places learner and actors.

    num_actors: how many actors; None where a running cluster is only scaled
    ray:        address of a Ray cluster; None starts one on this machine
    scale:      the number of actors that a running cluster shall have from now on
    learner_cpus, actor_cpus: of which Ray keeps so many for each
    """

    num_actors: int | None = None
    ray: str | None = None
    scale: int | None = None
    learner_cpus: float = 1.0
    actor_cpus: float = 1.0


def parse_distributed(argv: Sequence[str] | None = None) -> DistributedOptions:
    """Read the command line of ``main_ds.py``; None is that of this process. Leaves as :func:`parse_args`."""
    given = vars(_parser().parse_args(argv))
    name = given.pop("role")
    if name not in _ROLES:
        leave(unavailable(f"main_ds.py {name}", "command line", "population training", "start a learner"))
    role = _ROLES[name]
    own = {key: given.pop(key) for key in ("learner_host", "learner_port", "insecure")}
    cluster = ClusterOptions(**{key: given.pop(key) for key in ClusterOptions.__dataclass_fields__})
    notices = [
        f"--{flag} has no effect on GYM: it is for Unity environments"
        for flag in ("unity_port", "editor")
        if given.pop(flag) not in (None, False)
    ]
    overrides = tuple(given.pop("override") or ())
    train = TrainOptions(**given, overrides=overrides, notices=tuple(notices))
    options = DistributedOptions(
        role=role, train=train, **own, cluster=cluster if role == "cluster" else None
    )
    refuse_mixed(train)
    _refuse_for_role(options, cluster)
    return options


def _refuse_for_role(options: DistributedOptions, cluster: ClusterOptions) -> None:
    """Refuse flags that are another role's."""
    train, role = options.train, options.role
    of_learner = {
        "--run": train.run,
        "--render": train.render,
        "--ckpt": train.ckpt is not None,
        "--resume": train.resume,
        "--seed": train.seed is not None,
        "--name": train.name is not None,
        "--max_iter": train.max_iter is not None,
        "--max_step": train.max_step is not None,
    }
    for flag, given in of_learner.items():
        if role == "actor" and given:
            leave(cannot(f"{flag} is for the learner", "an actor does what the learner says", "leave it out"))
    if role != "cluster" and cluster != ClusterOptions():
        leave(cannot("this flag is for the role cluster", "Ray places and counts", "leave it out"))
    if role == "cluster" and (cluster.num_actors is None) == (cluster.scale is None):
        leave(
            cannot(
                "cluster needs --num_actors N, or --scale N for one that is running",
                "it places a learner and N actors",
                "add --num_actors N",
            )
        )


def _parser() -> argparse.ArgumentParser:
    text = "Train one agent with a learner and any number of actors, each a process of its own."
    parser = make_parser("main_ds.py", text, _EXAMPLES)
    parser.add_argument("env", help="a folder below envs/, or the path of a folder with a config.yaml")
    parser.add_argument("role", choices=(*_ROLES, "evolver", "e"), help="the part that this process plays")
    what = parser.add_argument_group("what to run")
    add_common(what)
    add_training(what)
    net = parser.add_argument_group("where they meet")
    net.add_argument("--learner_host", help="address the learner listens on and actors call")
    net.add_argument("--learner_port", type=natural, help="port of the learner; 0: a free one")
    net.add_argument("--insecure", action="store_true", help="plain text beyond this machine")
    add_acting(parser.add_argument_group("how to run"), port="--unity_port")
    add_model(parser.add_argument_group("which networks"))
    add_talk(parser.add_argument_group("what to say"))
    ray = parser.add_argument_group("role cluster")
    ray.add_argument("--num_actors", type=positive, help="actors to place")
    ray.add_argument("--ray", metavar="ADDRESS", help="of a Ray cluster; default: start Ray on this machine")
    ray.add_argument("--scale", type=natural, metavar="N", help="give the running cluster -n NAME N actors")
    ray.add_argument("--learner_cpus", type=float, default=1.0, help="CPUs that Ray keeps for the learner")
    ray.add_argument("--actor_cpus", type=float, default=1.0, help="and for each actor; may be a fraction")
    return parser
