"""Which adapter serves which ``env_type``. A new simulator is one file and one line here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from algorithm.env.base import EpisodeSeed, VecEnv
from algorithm.env.gym import GymVecEnv, make_env
from algorithm.errors import EnvError


def _make_gym(
    env_name: str,
    *,
    env_args: Mapping[str, Any],
    n: int,
    seed_of: EpisodeSeed,
    options: Mapping[str, Any] | None,
    render: bool,
) -> VecEnv:
    return GymVecEnv(
        lambda index: make_env(env_name, env_args, render=render and index == 0),
        n,
        seed_of=seed_of,
        options=options,
    )


_ADAPTERS: dict[str, Callable[..., VecEnv]] = {"GYM": _make_gym}


def make_vec_env(
    env_type: str,
    env_name: str,
    *,
    env_args: Mapping[str, Any] | None = None,
    n: int = 1,
    seed_of: EpisodeSeed,
    options: Mapping[str, Any] | None = None,
    render: bool = False,
) -> VecEnv:
    """N environments of a kind, ready to reset.

    env_args: keyword arguments of the environment; options: given to every reset; render: show copy 0.
    Raises :class:`EnvError` if there is no adapter for ``env_type`` or the environment cannot be made.
    """
    adapter = _ADAPTERS.get(env_type)
    if adapter is None:
        raise EnvError(
            f"env_type {env_type} is not available in this version",
            where="base_config.env_type",
            fix=f"set it to one of {', '.join(_ADAPTERS)}",
        )
    return adapter(env_name, env_args=env_args or {}, n=n, seed_of=seed_of, options=options, render=render)
