"""The command line of ``main_ds.py``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from algorithm.app.cli.flag_types import natural, positive
from algorithm.app.cli.flags import (
    Parser,
    add_acting,
    add_common,
    add_model,
    add_talk,
    add_training,
    cannot,
    leave,
    make_parser,
)
from algorithm.app.cli.train import ENV_HELP, TrainOptions, config_flags, refuse_mixed
from algorithm.core.program import as_typed
from algorithm.runs.names import MODELS

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
  # a population of four that tunes what random_params of the configuration names, likewise
  python main_ds.py gym/pendulum evolver --num_learners 4
"""

Role = Literal["learner", "actor", "cluster", "evolver"]
_ROLES: Mapping[str, Role] = {
    "learner": "learner",
    "l": "learner",
    "actor": "actor",
    "a": "actor",
    "cluster": "cluster",
    "evolver": "evolver",
    "e": "evolver",
}


_NAMES: Mapping[Role, str] = {
    "learner": "the learner",
    "actor": "an actor",
    "cluster": "the role cluster",
    "evolver": "the role evolver",
}
_ROLES_OF: Mapping[str, tuple[Role, ...]] = {
    "name": ("learner", "cluster", "evolver"),
    "resume": ("learner", "cluster", "evolver"),
    "max_iter": ("learner", "cluster", "evolver"),
    "max_step": ("learner", "cluster", "evolver"),
    "seed": ("learner", "cluster", "evolver"),
    "evaluations": ("learner",),
    "networks": ("learner",),
    "profile": ("learner",),
    "learner_host": ("learner", "actor"),
    "run": ("learner",),
    "render": ("learner",),
    "ckpt": ("learner",),
    "num_learners": ("evolver",),
    "num_actors": ("cluster", "evolver"),
    "ray": ("cluster", "evolver"),
    "scale": ("cluster",),
    "learner_cpus": ("cluster", "evolver"),
    "actor_cpus": ("cluster", "evolver"),
}
"""Flag -> roles that accept it; a flag that is not listed is accepted by all."""

_OTHERS_WORK: Mapping[Role, str] = {
    "learner": "Ray places and counts",
    "actor": "an actor does what the learner says",
    "cluster": "a cluster trains, and it finds the learner's address by itself",
    "evolver": "a population trains, and it finds the learners' addresses by itself",
}
"""Role -> reason for refusing the flags of other roles."""


@dataclass(frozen=True, kw_only=True)
class DistributedOptions:
    """Options of ``main_ds.py``. None and false: the flag was not given.

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
        """The flags that stand for a key of the configuration, as `load_config` takes them."""
        keys = {
            "net_config.learner_host": self.learner_host,
            "net_config.learner_port": self.learner_port,
            "net_config.insecure": self.insecure or None,
        }
        return config_flags(self.train) | {path: value for path, value in keys.items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class ClusterOptions:
    """Placement of learners and actors by Ray.

    num_learners: how many learners a population has; None for the role cluster
    num_actors: how many actors, of each learner; None where a running cluster is only scaled
    ray:        address of a Ray cluster; None starts one on this machine
    scale:      the number of actors that a running cluster shall have from now on
    learner_cpus, actor_cpus: of which Ray keeps so many for each
    """

    num_learners: int | None = None
    num_actors: int | None = None
    ray: str | None = None
    scale: int | None = None
    learner_cpus: float = 1.0
    actor_cpus: float = 1.0


def parse_distributed(argv: Sequence[str] | None = None) -> DistributedOptions:
    """Read the command line of ``main_ds.py``; None is that of this process. Leaves as :func:`parse_args`."""
    given = distributed_parser().read(argv)
    role = _ROLES[given.pop("role")]
    _refuse_for_role(given, role)
    own = {key: given.pop(key) for key in ("learner_host", "learner_port", "insecure")}
    cluster = ClusterOptions(**{key: given.pop(key) for key in ClusterOptions.__dataclass_fields__})
    overrides = tuple(given.pop("override") or ())
    train = TrainOptions(**given, overrides=overrides)
    options = DistributedOptions(
        role=role, train=train, **own, cluster=cluster if role in ("cluster", "evolver") else None
    )
    refuse_mixed(train)
    return options


def _refuse_for_role(given: Mapping[str, object], role: Role) -> None:
    """Refuse flags of another role. given: all flags, those that were not given at their defaults."""
    parser = distributed_parser()
    problems = [
        cannot(f"--{flag} is for {_listed(_NAMES[r] for r in roles)}", _OTHERS_WORK[role], "leave it out")
        for flag, roles in _ROLES_OF.items()
        if role not in roles and given[flag] != parser.get_default(flag)
    ]
    if problems:
        leave(*problems)
    if role == "evolver" and given["num_learners"] in (None, 1):
        leave(
            cannot(
                "evolver needs --num_learners N, at least 2",
                "the best of a population make its next generation",
                as_typed("add --num_learners 4, or train alone: python main.py"),
            )
        )
    if role == "cluster" and (not given["num_actors"]) == (given["scale"] is None):
        leave(
            cannot(
                "cluster needs --num_actors N, or --scale N for one that is running",
                "it places a learner and N actors",
                "add --num_actors N",
            )
        )


def _listed(words: Iterable[str]) -> str:
    return " and ".join(words)


def distributed_parser() -> Parser:
    """Return the parser of ``main_ds.py``."""
    text = (
        "Train one agent with a learner and any number of actors, each a process of its own, or a\n"
        "population of agents.\n"
        "[ROLE, ROLE] behind a flag: only these roles take it."
    )
    parser = make_parser("main_ds.py", text, _EXAMPLES)
    parser.add_argument("env", help=ENV_HELP)
    parser.add_argument("role", choices=tuple(_ROLES), help="the part that this process plays")
    what = parser.add_argument_group("what to run")
    add_common(what, MODELS)
    add_training(what)
    net = parser.add_argument_group("where they meet")
    net.add_argument("--learner_host", help="address the learner listens on and actors call")
    net.add_argument("--learner_port", type=natural, help="port of the learner; 0: a free one")
    net.add_argument("--insecure", action="store_true", help="plain text beyond this machine")
    add_acting(parser.add_argument_group("how to run"), port="--unity_port")
    add_model(parser.add_argument_group("which networks"))
    add_talk(parser.add_argument_group("what to say"))
    ray = parser.add_argument_group("roles cluster and evolver")
    ray.add_argument("--num_learners", type=positive, metavar="N", help="members of the population")
    ray.add_argument("--num_actors", type=natural, metavar="M", help="actors to place, of each learner")
    ray.add_argument("--ray", metavar="ADDRESS", help="of a Ray cluster; default: start Ray on this machine")
    ray.add_argument("--scale", type=natural, metavar="N", help="give the running cluster -n NAME N actors")
    ray.add_argument("--learner_cpus", type=float, default=1.0, help="CPUs that Ray keeps for a learner")
    ray.add_argument("--actor_cpus", type=float, default=1.0, help="and for each actor; may be a fraction")
    _note_roles(parser)
    return parser


def _note_roles(parser: Parser) -> None:
    """Add to the help which roles take a flag, where not all do."""
    for action in parser._actions:
        if action.dest in _ROLES_OF:
            action.help = f"{action.help} [{', '.join(_ROLES_OF[action.dest])}]"
        if action.dest == "agents":
            action.help = f"{action.help}; no effect on a learner that trains"
