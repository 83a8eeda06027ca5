"""Observations that only critics see, not the policy (asymmetric actor-critic, arXiv 1710.06542)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

from torch import Tensor, nn
from typing_extensions import override

from algorithm.core.errors import COMMON_BLOCK, UsageError
from algorithm.core.spec import OBS_COLUMNS, AgentSpec
from algorithm.nn.protocols import HybridAction, Obs, Rep
from algorithm.ops import library


class CriticRep(Rep):
    """Encoder that appends observations for critics to the states of another one: [..., S + hidden].

    rep:    encoder of the other observations
    hidden: names of the observations that only critics see, in order
    """

    lib = library.TORCH

    def __init__(self, rep: Rep, hidden: Sequence[str]) -> None:
        nn.Module.__init__(self)
        self.rep, self._hidden = rep, tuple(hidden)
        self.carry_shape, self.stored_carry_shape = rep.carry_shape, rep.stored_carry_shape

    @override
    def initial_carry(self, batch: int) -> Tensor:
        return self.rep.initial_carry(batch)

    @override
    def forward(
        self, obs: Mapping[str, Tensor], prev_action: Tensor, carry: Tensor, valid: Tensor
    ) -> tuple[Tensor, Tensor]:
        state, carry = self.rep(without(obs, self._hidden), prev_action, carry, valid)
        hidden = [obs[name].reshape(*state.shape[:-1], -1) for name in self._hidden]
        return self.lib.cat([state, *hidden], -1), carry


class BlindPolicy(nn.Module):
    """Policy without access to critics' observations: it gets the first ``state_size`` numbers of a state.

    hidden: names of the observations that it does not get
    """

    def __init__(self, policy: nn.Module, state_size: int, hidden: Sequence[str]) -> None:
        super().__init__()
        self.policy, self.size, self._hidden = policy, state_size, tuple(hidden)

    @override
    def forward(self, state: Tensor, obs: Obs) -> HybridAction:
        action: HybridAction = self.policy(state[..., : self.size], without(obs, self._hidden))
        return action


def without(obs: Obs, hidden: Sequence[str]) -> dict[str, Tensor]:
    """Return the observations except for those named in ``hidden``."""
    return {name: value for name, value in obs.items() if name not in hidden}


def seen_by_policy(spec: AgentSpec, hidden: Sequence[str]) -> AgentSpec:
    """Return the spec without the observations named in ``hidden``, as a policy sees it.

    Raises UsageError for unknown names, observations that are no vectors of numbers, and all of them.
    """
    obs, key = spec.obs, f"{COMMON_BLOCK}.critic_observations"
    if unknown := [name for name in hidden if name not in obs.names]:
        raise UsageError(
            f"there is no observation {unknown[0]!r}",
            where=key,
            why=f"the environment shows {', '.join(obs.names)}",
            fix="name some of these",
        )
    shapes = {name: shape for name, shape, kind in obs.items() if kind.startswith("float")}
    coded = {name for name, choices in zip(obs.names, obs.categories, strict=True) if choices}
    others = [name for name in hidden if len(shapes.get(name, ())) != 1 or name in coded]
    if others or len(set(hidden)) == len(obs.names):
        raise UsageError(
            f"{others[0]!r} cannot be for critics only" if others else "the policy would see nothing",
            where=key,
            why="it is not a vector of numbers" if others else "all observations are listed",
            fix="leave it out",
        )
    if len(set(hidden)) < len(hidden):
        raise UsageError("an observation is listed twice", where=key, fix="leave one of them out")
    stays = [i for i, name in enumerate(obs.names) if name not in hidden]
    kept = {column: tuple(getattr(obs, column)[i] for i in stays) for column in OBS_COLUMNS}
    return replace(spec, obs=replace(obs, **kept))


def width(spec: AgentSpec, hidden: Sequence[str]) -> int:
    """Return the number of elements of the observations named in ``hidden``."""
    return sum(prod(shape) for name, shape, _ in spec.obs.items() if name in hidden)
