"""How the tokens of a window become states, with as little work as the kind of representation allows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from algorithm.data import SequenceBatch
from algorithm.nn.protocols import Rep

Obs = Mapping[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class States:
    """What a representation makes of a window whose learned part is K … K+T−1."""

    online: Tensor  # [B, W+1, S] with gradient at the learned positions
    carry: Tensor  # [B, W+1, *C] online, after each token; width 0 without memory
    target_following: Tensor  # [B, W−K, S] by the target network, of tokens K+1 … W
    target_learned: Callable[[], Tensor]  # [B, T, S] by the target network; evaluated if needed


class Encoding(Protocol):
    """Runs the online representation and its target over a batch."""

    def __call__(
        self, rep: Rep, target: Rep, obs: Obs, batch: SequenceBatch, *, burn_in: int, learn: int
    ) -> States:
        """obs: the batch's observations as networks see them, name -> [B, W+1, ...]."""
        ...


class Stateless:
    """A representation without parameters is the same as its target: one pass."""

    def __call__(
        self, rep: Rep, target: Rep, obs: Obs, batch: SequenceBatch, *, burn_in: int, learn: int
    ) -> States:
        """See :class:`Encoding`."""
        state, carry = rep(obs, batch.prev_action, batch.carry, batch.obs_valid)
        frozen = state.detach()
        return States(
            online=state,
            carry=carry,
            target_following=frozen[:, burn_in + 1 :],
            target_learned=lambda: frozen[:, burn_in : burn_in + learn],
        )


class TokenByToken:
    """Without memory each token is encoded where it is needed, and with a gradient only where it is learned.

    For images that saves the backward pass of every token but the learned ones, and the target's forward
    pass of those.
    """

    def __call__(
        self, rep: Rep, target: Rep, obs: Obs, batch: SequenceBatch, *, burn_in: int, learn: int
    ) -> States:
        """See :class:`Encoding`; there is no burn-in without memory."""

        def encode(by: Rep, tokens: slice) -> Tensor:
            seen = {name: value[:, tokens] for name, value in obs.items()}
            state, _ = by(seen, batch.prev_action[:, tokens], batch.carry, batch.obs_valid[:, tokens])
            return state

        learned = slice(0, learn)
        online = encode(rep, learned)
        with torch.no_grad():
            rest = encode(rep, slice(learn, None))
            following = encode(target, slice(1, None))

        @torch.no_grad()
        def target_learned() -> Tensor:
            return encode(target, learned)

        return States(
            online=torch.cat([online, rest], 1),
            carry=batch.carry,
            target_following=following,
            target_learned=target_learned,
        )


class WholeWindow:
    """With memory a state depends on the tokens before it: one pass each over the whole window."""

    def __call__(
        self, rep: Rep, target: Rep, obs: Obs, batch: SequenceBatch, *, burn_in: int, learn: int
    ) -> States:
        """See :class:`Encoding`."""
        inputs = (obs, batch.prev_action, batch.carry, batch.obs_valid)
        state, carry = rep(*inputs)
        with torch.no_grad():
            frozen, _ = target(*inputs)
        return States(
            online=state,
            carry=carry,
            target_following=frozen[:, burn_in + 1 :],
            target_learned=lambda: frozen[:, burn_in : burn_in + learn],
        )


def make_encoding(rep: Rep) -> Encoding:
    """The cheapest way to run ``rep``."""
    if rep.carry_shape != (0,):
        return WholeWindow()
    # What is neither learned nor saved, such as a table of one-hots, is the same in the target.
    return TokenByToken() if rep.state_dict() else Stateless()
