"""Gymnasium spaces as trees: their leaves, the leaves' names, and the supported kinds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import gymnasium as gym

from algorithm.core.errors import EnvError

Space = gym.Space[Any]

SUPPORTED = (gym.spaces.Box, gym.spaces.Discrete, gym.spaces.MultiDiscrete, gym.spaces.MultiBinary)
"""Supported kinds of leaf."""

_EXAMPLES = {"observation_space": "Box(-1, 1, (3,))", "action_space": "Discrete(2)"}


class Leaf(NamedTuple):
    """A space that is neither a Dict nor a Tuple, with its place in the tree."""

    name: str  # its path joined by "/"; empty for the whole space
    path: tuple[Any, ...]  # key of each Dict and index of each Tuple on the way
    space: Space


def is_game(env: object) -> bool:
    """Return whether an object or class is an environment of PettingZoo."""
    kind = env if isinstance(env, type) else type(env)
    return any(base.__module__.partition(".")[0] == "pettingzoo" for base in kind.__mro__)


def several_agents(env: object) -> str:
    """Return the reason why an object or class is an environment of several agents; empty if it is not."""
    if is_game(env):
        return "it is a PettingZoo environment"
    seen = getattr(env, "observation_space", None)
    if hasattr(env, "possible_agents") and (
        not isinstance(seen, gym.Space) or hasattr(env, "observation_spaces")
    ):
        return "it has possible_agents, as those of PettingZoo and RLlib's MultiAgentEnv"
    parts = seen.values() if isinstance(seen, dict) else seen if isinstance(seen, list | tuple) else ()
    return "it has several observation spaces" if any(isinstance(part, gym.Space) for part in parts) else ""


ONE_AGENT = (
    "if it is PettingZoo's, set base_config.env_type: PETTINGZOO (-o base_config.env_type=PETTINGZOO); else "
    "write it as a pettingzoo.ParallelEnv, or as a kind of your own (docs/parts.md)"
)
"""Remedy for an environment of several agents."""


def check_spaces(env: object, name: str, prefix: str = "") -> None:
    """Raise EnvError for an environment without spaces, or of several agents.

    prefix: put before the names of the attributes, such as ``single_``
    """
    if why := "" if prefix else several_agents(getattr(env, "unwrapped", env)):
        raise EnvError("the environment has several agents", where=name, why=why, fix=ONE_AGENT)
    for attribute, example in _EXAMPLES.items():
        space = getattr(env, f"{prefix}{attribute}", None)
        if not isinstance(space, gym.Space):
            raise EnvError(
                f"the environment has no {prefix}{attribute}",
                where=name,
                why=f"a {type(space).__module__}.{type(space).__qualname__} is not a gymnasium space"
                if space is not None
                else "its class must define both spaces",
                fix=f"set it in the class or in __init__: {prefix}{attribute} = gymnasium.spaces.{example}",
            )


def branches_of(space: Space) -> Iterator[tuple[Any, Space]]:
    """Yield (key, part) of a Dict, (index, part) of a Tuple, nothing of a leaf; in the order of the space."""
    if isinstance(space, gym.spaces.Dict):
        yield from space.spaces.items()
    elif isinstance(space, gym.spaces.Tuple):
        yield from enumerate(space.spaces)


def is_leaf(space: Space) -> bool:
    """Return whether the space has no parts."""
    return not isinstance(space, gym.spaces.Dict | gym.spaces.Tuple)


def leaves(space: Space, kind: str, env: str) -> list[Leaf]:
    """Return all leaves of a space, in the order of its tree.

    kind: "observation" or "action", for messages; env: name of the environment, for messages.
    Raises :class:`EnvError` for an unsupported leaf, for two of one name, and where there is none.
    """
    tree_leaves = list(_walk(space, ()))
    for leaf in tree_leaves:
        if not isinstance(leaf.space, SUPPORTED):
            raise unsupported_error(leaf, kind, env)
    empty = [leaf.space for leaf in tree_leaves if 0 in (leaf.space.shape or ())] if tree_leaves else [space]
    if empty:
        raise EnvError(f"the {kind} space {empty[0]} is empty", where=env, fix=f"an agent needs an {kind}")
    names = [leaf.name for leaf in tree_leaves]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise EnvError(
            f"two parts of the {kind} space are both called {twice!r}",
            where=env,
            why="keys of a Dict and indices of a Tuple are joined by '/'",
            fix="rename one of them with a wrapper (base_config.wrappers)",
        )
    return tree_leaves


def unsupported_error(leaf: Leaf, kind: str, env: str) -> EnvError:
    """Return the error for an unsupported leaf."""
    name = f" {leaf.name!r}" if leaf.name else ""
    return EnvError(
        f"the {kind}{name} is a {type(leaf.space).__name__} space, which is not supported",
        where=f"{env}, {leaf.space}",
        why="supported are Box, Discrete, MultiDiscrete and MultiBinary, and any Dict or Tuple of them",
        fix=f"wrap the environment so that this {kind} becomes one of those (base_config.wrappers)",
    )


def _walk(space: Space, path: tuple[Any, ...]) -> Iterator[Leaf]:
    """Yield the leaves of a space at ``path``, in order."""
    if is_leaf(space):
        yield Leaf("/".join(map(str, path)), path, space)
    for key, part in branches_of(space):
        yield from _walk(part, (*path, key))
