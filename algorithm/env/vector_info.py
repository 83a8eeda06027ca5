"""One copy's share of what a vector class hands out for all of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Batched = Any
"""Observations or infos of N copies: an array, list or array of objects with a row per copy, or a structure
of such."""


def observation_of(obs: Batched, i: int) -> Any:  # noqa: ANN401 - a space may hold anything
    """What copy i observes; a Dict and a Tuple hold their parts for all copies."""
    if isinstance(obs, Mapping):
        return {key: observation_of(part, i) for key, part in obs.items()}
    if isinstance(obs, tuple):
        return tuple(observation_of(part, i) for part in obs)
    return obs[i]


def info_of(infos: Batched, i: int) -> Any:  # noqa: ANN401 - an info may hold anything
    """The info of copy i. Beside "key", "_key" says which copies have it: ``VectorEnv._add_info``."""
    if not isinstance(infos, Mapping):
        return infos[i]
    return {
        key: info_of(part, i)
        for key, part in infos.items()
        if not _is_flag(infos, key) and (f"_{key}" not in infos or infos[f"_{key}"][i])
    }


def _is_flag(infos: Mapping[Any, Batched], key: Any) -> bool:  # noqa: ANN401 - a mapping may have any keys
    return isinstance(key, str) and key.startswith("_") and key[1:] in infos
