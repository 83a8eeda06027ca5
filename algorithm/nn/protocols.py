"""Protocols of the classes in an ``nn.py``, and the action distributions that a policy returns.

The first argument of every class is the agent's spec, the second of ``ModelQ`` and ``ModelPolicy`` the
state's width. The keys of ``nn_config.rep``, ``.q`` and ``.policy`` are keyword arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor, nn
from typing_extensions import override

from algorithm.core.spec import ActionSpec, AgentSpec
from algorithm.ops.densities import tanh_normal_logp, tanh_normal_sample


@dataclass(frozen=True)
class TanhNormal:
    """Distribution of u = tanh(z), z ~ N(mean, exp(log_std)²), elementwise independent."""

    mean: Tensor  # [..., A_c]
    log_std: Tensor  # [..., A_c]

    def rsample(self, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Return a reparameterised z [..., A_c] and the log-density [...] of u = tanh(z).

        noise: [..., A_c] standard normal
        """
        return tanh_normal_sample(self.mean, self.log_std, noise)

    def sample(self) -> tuple[Tensor, Tensor]:
        """Return a reparameterised u [..., A_c] and its log-density [...], by torch's global generator."""
        z, logp = self.rsample(torch.randn_like(self.mean))
        return z.tanh(), logp

    def logp(self, z: Tensor) -> Tensor:
        """Return the log-density [...] of u = tanh(z), z [..., A_c]."""
        return tanh_normal_logp(z, self.mean, self.log_std)


@dataclass(frozen=True)
class HybridAction:
    """Output of a ``ModelPolicy``: a distribution for each kind of action in the spec.

    Models need not apply masks: logits of actions that are not allowed are ignored.
    """

    continuous: TanhNormal | None = None
    logits: Tensor | None = None  # [..., ΣN] unnormalised, the branches one after the other

    def map(self, fn: Callable[[Tensor], Tensor]) -> HybridAction:
        """Return the same distributions with ``fn`` (a view, a slice) applied to every tensor."""
        continuous, logits = self.continuous, self.logits
        return HybridAction(
            continuous=continuous and TanhNormal(fn(continuous.mean), fn(continuous.log_std)),
            logits=None if logits is None else fn(logits),
        )


Obs = Mapping[str, Tensor]
"""Observations [..., *shape] by name."""

Memory = Literal["RNN", "ATTN"]
"""Kinds of memory, ``seq_encoder``."""


def q_size(action: ActionSpec) -> int:
    """Return the number of a critic's outputs, N·D: D for each of its N values.

    N is the number of discrete choices, or 1 without any; D is ``action.values``.
    """
    return max(1, action.discrete) * action.values


class Rep(nn.Module):
    """Base of every ``ModelRep(spec, **nn_config.rep)``: observations -> state, with a carry for memory.

    Without memory (``seq_encoder: null``) both shapes are (0,), and the carry is returned unchanged.

    With a recurrent memory (``RNN``) both shapes are that of the carry. It is stored with every row of the
    replay: a window begins with the carry of its first row.

    With attention (``ATTN``) a further argument is ``context``, the number of tokens in a query's reach,
    itself included. ``carry_shape`` is that of a cache for acting, one token at a time, and nothing is
    stored. In a window the carry has width 0, and the cache is rebuilt from the tokens before.

    carry_shape:        C, the carry of one agent while acting; all zeros at an episode's start.
    stored_carry_shape: its part in each row of the replay.
    """

    carry_shape: tuple[int, ...] = (0,)
    stored_carry_shape: tuple[int, ...] = (0,)

    def __init__(self, spec: AgentSpec) -> None:
        super().__init__()

    def initial_carry(self, batch: int) -> Tensor:
        """Return the carry at an episode's start, [batch, *C]: zeros."""
        return torch.zeros(batch, *self.carry_shape)

    @override
    def forward(
        self, obs: Mapping[str, Tensor], prev_action: Tensor, carry: Tensor, valid: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Encode T tokens.

        obs:         name -> [B, T, ...]
        prev_action: [B, T, A] zeros before an episode's first step
        carry:       [B, *C] before the first valid token; [B, 0] without memory and in attention's windows
        valid:       [B, T] tokens that exist, contiguous in each row; the others must change no output
        Returns state [B, T, S] and the carry after each token [B, T, *C]. A missing token has the carry
        before it; a ``carry`` of width 0 is returned as it is.
        """
        raise NotImplementedError(
            f"{type(self).__name__} must define forward(obs, prev_action, carry, valid)"
        )


class QFunction(Protocol):
    """Protocol of ``ModelQ(spec, state_size, **nn_config.q)``."""

    def __call__(self, state: Tensor, c_action: Tensor) -> Tensor:
        """Return q [..., q_size] of state [..., S] and c_action [..., A_c] in [-1, 1]."""


class PolicyFunction(Protocol):
    """Protocol of ``ModelPolicy(spec, state_size, **nn_config.policy)``."""

    def __call__(self, state: Tensor, obs: Mapping[str, Tensor]) -> HybridAction:
        """Return the distribution over actions for state [..., S] and obs of the same positions.

        obs: name -> [..., shape]
        """
