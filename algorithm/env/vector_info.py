"""Selection of one sub-environment from the batched output of a vector class."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Batched = Any
"""Observations or infos of N sub-environments: an array, list or structure of them, with a row for each."""


def observation_of(obs: Batched, i: int) -> Any:  # noqa: ANN401 - a space may hold anything
    """Return the observation of sub-environment i; a Dict or Tuple holds its parts for all."""
    if isinstance(obs, Mapping):
        return {key: observation_of(part, i) for key, part in obs.items()}
    if isinstance(obs, tuple):
        return tuple(observation_of(part, i) for part in obs)
    return obs[i]


def info_of(infos: Batched, i: int) -> Any:  # noqa: ANN401 - an info may hold anything
    """Return the info of sub-environment i. Beside "key", "_key" marks who has one (Gymnasium)."""
    if not isinstance(infos, Mapping):
        return infos[i]
    return {
        key: info_of(part, i)
        for key, part in infos.items()
        if not _is_flag(infos, key) and (f"_{key}" not in infos or infos[f"_{key}"][i])
    }


def _is_flag(infos: Mapping[Any, Batched], key: Any) -> bool:  # noqa: ANN401 - a mapping may have any keys
    return isinstance(key, str) and key.startswith("_") and key[1:] in infos
