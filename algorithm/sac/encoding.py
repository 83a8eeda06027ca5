"""How the tokens of a window become states, with as little work as the kind of representation allows."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from algorithm.data import SequenceBatch
from algorithm.extensions.base import Obs, States
from algorithm.nn.protocols import Rep


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


class Recurrent:
    """A recurrent memory: each network runs over the window once, from the stored carry (R2D2, section 3).

    The burn-in only brings the carry up to date; nothing of it gets a gradient. Nor do the tokens behind the
    learned ones: they are needed for targets alone.
    """

    def __call__(
        self, rep: Rep, target: Rep, obs: Obs, batch: SequenceBatch, *, burn_in: int, learn: int
    ) -> States:
        """See :class:`Encoding`."""
        before = [(slice(0, burn_in), False)] if burn_in else []
        end = burn_in + learn
        states, carries, carry = [], [], batch.carry
        for tokens, learned in (*before, (slice(burn_in, end), True), (slice(end, None), False)):
            with torch.set_grad_enabled(learned and torch.is_grad_enabled()):
                state, after = self._run(rep, carry, tokens, obs, batch)
            carry = after[:, -1].detach()
            states.append(state)
            carries.append(after.detach())
        with torch.no_grad():
            frozen, _ = self._run(target, batch.carry, slice(None), obs, batch)
        return States(
            online=torch.cat(states, 1),
            carry=torch.cat(carries, 1),
            target_following=frozen[:, burn_in + 1 :],
            target_learned=lambda: frozen[:, burn_in:end],
        )

    @staticmethod
    def _run(by: Rep, carry: Tensor, tokens: slice, obs: Obs, batch: SequenceBatch) -> tuple[Tensor, Tensor]:
        seen = {name: value[:, tokens] for name, value in obs.items()}
        return by(seen, batch.prev_action[:, tokens], carry, batch.obs_valid[:, tokens])


class WholeWindow:
    """Attention: every token of the window is an input of the learned states, with gradient."""

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
        return Recurrent() if rep.stored_carry_shape != (0,) else WholeWindow()
    # What is neither learned nor saved, such as a table of one-hots, is the same in the target.
    return TokenByToken() if rep.state_dict() else Stateless()
