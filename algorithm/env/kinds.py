"""Kinds of environments and the features of each, as constants: no simulator is imported for them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from algorithm.core.plugins import Group, Plugin, find


@dataclass(frozen=True, kw_only=True)
class EnvKind:
    """A kind of environments: its name, its maker, and its features.

    maker:      ``module:attribute``: a subclass of :class:`~algorithm.env.gym.GymRecipe`, or a function of an
                :class:`~algorithm.env.request.EnvRequest` that returns a :class:`~algorithm.env.base.VecEnv`;
                empty for a user's own kind, whose name it is, and with ``extra_name``
    extra_name: name of the maker in the table of extras
    gymnasium:  single Gymnasium environments, named by an id: with wrappers, workers and the Python API
    films:      they render images
    registered: their ids are those of Gymnasium's registry, with reward thresholds and vector classes
    player:     each is a program of its own with ports, or an editor, of which there is only one
    lanes:      many step at once, for hardly more time than one
    parameters: ``reset_config`` holds numbers by name, and not the options of ``reset``
    teams:      agents may belong to teams, which can play against their own past policies
    """

    name: str
    maker: str = ""
    extra_name: str = ""
    gymnasium: bool = True
    films: bool = True
    registered: bool = False
    player: bool = False
    lanes: bool = False
    parameters: bool = False
    teams: bool = False


UNITY = EnvKind(
    name="UNITY",
    extra_name="UnityVecEnv",
    gymnasium=False,
    films=False,
    player=True,
    parameters=True,
    teams=True,
)
GYM = EnvKind(name="GYM", maker="algorithm.env.gym:GymRecipe", registered=True)
OBJECT = EnvKind(name="OBJECT", maker="algorithm.env.registry:ObjectRecipe", teams=True)
"""Environments that Python code passed as objects, which cannot be made again from a name."""

DM_CONTROL = EnvKind(name="DM_CONTROL", extra_name="DmControlRecipe")
PETTINGZOO = EnvKind(name="PETTINGZOO", extra_name="PettingZooVecEnv", gymnasium=False, teams=True)

_SUITE = re.compile(
    r"(?P<package>(dm|dmc|dm_control|suite)[./:_])?"
    r"(?P<domain>acrobot|(ball[_-]in[_-])?cup|cartpole|cheetah|dog|finger|fish|hopper|humanoid_CMU|humanoid|lqr|"
    r"manipulator|pendulum|point[_-]mass|quadruped|reacher|stacker|swimmer|walker)"
    r"[./_-](?P<task>(?!v\d)\w+(-[a-z]\w*)*?)(?P<version>-v\d+)?"
)
"""Names of tasks of the DeepMind Control suite, as its users write them."""


def dm_task(name: str) -> tuple[str, str] | None:
    """Return domain and task of ``cartpole/swingup``, ``dm_control/cartpole/swingup``, ``humanoid-walk``.

    None for other names; an id with a version and without a package is Gymnasium's.
    """
    parts = _SUITE.fullmatch(name)
    if parts is None or (parts["version"] and not parts["package"]):
        return None
    domain = parts["domain"].replace("-", "_")
    return "ball_in_cup" if domain == "cup" else domain, parts["task"].replace("-", "_")


def _many(name: str, *, maker: str = "", extra_name: str = "") -> EnvKind:
    """Return a kind whose simulator steps many environments at once."""
    return EnvKind(
        name=name,
        maker=maker,
        extra_name=extra_name,
        gymnasium=False,
        films=False,
        lanes=True,
    )


TENSOR = _many("TENSOR", maker="algorithm.env.lanes.tensor:make_named")
"""Classes of :class:`~algorithm.env.lanes.contract.TensorEnv`."""

ENVPOOL = _many("ENVPOOL", extra_name="make_envpool")
PLAYGROUND = _many("PLAYGROUND", extra_name="make_playground")
BRAX = _many("BRAX", extra_name="make_brax")

OBJECT_RUNS = "object/"
"""Beginning of the folders for runs of such an environment."""

_BUILT_IN = (UNITY, GYM, DM_CONTROL, PETTINGZOO, TENSOR, ENVPOOL, PLAYGROUND, BRAX, OBJECT)
KINDS: Mapping[str, EnvKind] = {kind.name: kind for kind in _BUILT_IN}
"""``base_config.env_type`` → built-in kind; for others see :func:`kind_of`."""

ENVS = Group("kind of environment", "base_config.env_type", built_in=tuple(KINDS))


def kind_of(name: str) -> EnvKind:
    """Return the kind of a name. A user's own is not imported: it has every feature for now."""
    return KINDS.get(name) or EnvKind(name=name, teams=True)


def plugin_of(kind: EnvKind) -> Plugin:
    """Return the part that makes a kind. Raises UsageError for an unknown name."""
    return find(ENVS, kind.name) or Plugin(ENVS, kind.maker)
