"""The command line of ``main_ds.py``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from algorithm.app.cli.flag_types import natural, positive
from algorithm.app.cli.flags import EVERY_ROLE, Parser, Role, cannot, flag, flags_of, leave
from algorithm.app.cli.parsing import ENV_HELP, add_version, refuse_mixed
from algorithm.app.cli.train import TrainOptions
from algorithm.app.cli.train_flags import config_flags
from algorithm.config.loader import LoadedConfig, load_config
from algorithm.config.schema import DISTRIBUTED_DEFAULTS
from algorithm.core.program import as_typed

_EXAMPLES = """\
examples:
  # a learner and any number of actors, each in its own terminal, in any order
  python main_ds.py gym/pendulum learner
  python main_ds.py gym/pendulum actor
  # actors on another machine: needs secrets, see docs/distributed.md
  python main_ds.py gym/pendulum learner --learner_host 10.0.0.1
  python main_ds.py gym/pendulum actor --learner_host 10.0.0.1
  # resume a learner that was stopped or killed; its actors reconnect by themselves
  python main_ds.py gym/pendulum learner -n NAME --resume
  # let Ray start, watch and restart learner and actors, here or on a cluster
  python main_ds.py gym/pendulum cluster --num_actors 4
  # the same for a population of four that tunes the random_params of the configuration
  python main_ds.py gym/pendulum evolver --num_learners 4
"""

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
_OTHERS_WORK: Mapping[Role, str] = {
    "learner": "only these roles start actors",
    "actor": "an actor gets this from the learner",
    "cluster": "a cluster always trains, and finds the learner's address itself",
    "evolver": "a population always trains, and finds the learners' addresses itself",
}
"""Role -> reason for refusing the flags of other roles."""


_meet = partial(flag, group="connection")
_ray = partial(flag, group="on a Ray cluster")
_ON_RAY: tuple[Role, ...] = ("cluster", "evolver")


@dataclass(frozen=True, kw_only=True)
class ClusterOptions:
    """Options for the placement of learners and actors by Ray; None: the flag was not given."""

    num_learners: int = _ray(
        "--num_learners",
        roles=("evolver",),
        default=1,
        type=positive,
        metavar="N",
        help="members of the population",
    )
    num_actors: int = _ray(
        "--num_actors",
        roles=_ON_RAY,
        default=0,
        type=natural,
        metavar="M",
        help="actors to start for each learner",
    )
    ray: str | None = _ray(
        "--ray",
        roles=_ON_RAY,
        metavar="ADDRESS",
        help="address of a Ray cluster; default: start Ray on this machine",
    )
    learner_cpus: float = _ray(
        "--learner_cpus", roles=_ON_RAY, default=1.0, type=float, help="CPUs that Ray reserves per learner"
    )
    actor_cpus: float = _ray(
        "--actor_cpus",
        roles=_ON_RAY,
        default=1.0,
        type=float,
        help="CPUs that Ray reserves per actor; may be a fraction",
    )


@dataclass(frozen=True, kw_only=True)
class DistributedOptions:
    """Options of ``main_ds.py``. None and false: the flag was not given.

    train: options in common with ``main.py``
    cluster: options for a role that Ray places, else at their defaults
    """

    role: Role
    train: TrainOptions
    learner_host: str | None = _meet(
        "--learner_host", roles=("learner", "actor"), help="address of the learner"
    )
    learner_port: int | None = _meet(
        "--learner_port", roles=EVERY_ROLE, type=natural, help="port of the learner; 0: any free one"
    )
    insecure: bool = _meet(
        "--insecure", roles=EVERY_ROLE, default=False, help="no encryption between machines"
    )
    cluster: ClusterOptions = ClusterOptions()

    @property
    def flags(self) -> dict[str, object]:
        """The flags that set a key of the configuration, as arguments of `load_config`."""
        keys = {
            "net_config.learner_host": self.learner_host,
            "net_config.learner_port": self.learner_port,
            "net_config.insecure": self.insecure or None,
        }
        return config_flags(self.train) | {path: value for path, value in keys.items() if value is not None}

    def load(self, seed: int | None) -> LoadedConfig:
        """Load the configuration of a learner or an actor. Raises ConfigError with every fault."""
        train = self.train
        return load_config(
            train.env,
            train.config,
            train.overrides,
            self.flags,
            seed,
            defaults=DISTRIBUTED_DEFAULTS,
            require_runnable=True,
        )

    def of_role(self, role: Role, host: str, port: int, fields: Sequence[str]) -> DistributedOptions:
        """Return options for a learner or an actor: the given ``fields``, and the learner's address."""
        train = TrainOptions(env=self.train.env, **{name: getattr(self.train, name) for name in fields})
        return DistributedOptions(
            role=role, train=train, learner_host=host, learner_port=port, insecure=self.insecure
        )


_KINDS = (TrainOptions, DistributedOptions, ClusterOptions)


def parse_distributed(argv: Sequence[str] | None = None) -> DistributedOptions:
    """Parse the command line of ``main_ds.py``; None: that of this process. Exits as :func:`parse_args`."""
    parser = distributed_parser()
    values = parser.read(argv)
    role = _ROLES[values.pop("role")]
    _refuse_for_role(parser, values, role)
    distributed, cluster = (
        {field.name: values.pop(field.name) for field, _ in flags_of(kind)} for kind in _KINDS[1:]
    )
    train = TrainOptions(**values)
    refuse_mixed(train)
    return DistributedOptions(role=role, train=train, **distributed, cluster=ClusterOptions(**cluster))


def distributed_parser() -> Parser:
    """Return the parser of ``main_ds.py``."""
    text = (
        "Train one agent with a learner and any number of actors, each in its own process, or "
        "a\npopulation of agents.\n[ROLE, ROLE] after a flag: only these roles have it.\n--agents has no "
        "effect on a learner that trains."
    )
    parser = Parser("main_ds.py", text, _EXAMPLES)
    parser.add_argument("env", help=ENV_HELP)
    parser.add_argument("role", choices=tuple(_ROLES), help="role of this process")
    for kind in _KINDS:
        parser.add_flags(kind, with_roles=True)
    add_version(parser)
    return parser


def _refuse_for_role(parser: Parser, values: Mapping[str, object], role: Role) -> None:
    """Exit if flags of another role were given. values: of all flags, missing ones at their defaults."""
    problems = []
    for kind in _KINDS:
        for field, declared in flags_of(kind):
            is_given = declared.roles and values[field.name] != field.default
            if is_given and role not in declared.roles:
                who = " and ".join(_NAMES[other] for other in declared.roles)
                what = f"{declared.names[0]} is for {who}"
                problems.append(cannot(what, _OTHERS_WORK[role], "leave it out"))
    if problems:
        leave(*problems)
    if role == "evolver" and values["num_learners"] == 1:
        leave(
            cannot(
                "evolver needs --num_learners N, at least 2",
                "the best members of a population make its next generation",
                as_typed("add --num_learners 4, or train alone: python main.py"),
            )
        )
    if role == "cluster" and not values["num_actors"]:
        leave(
            cannot(
                "cluster needs --num_actors N",
                "it starts a learner and N actors",
                "add --num_actors N",
            )
        )
