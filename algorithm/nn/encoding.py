"""Encodings of a window's tokens as states: for each kind of encoder the passes that it needs, no more."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor
from typing_extensions import override

from algorithm.core.data import SequenceBatch
from algorithm.nn.layers.augment import OneView
from algorithm.nn.protocols import Obs, Rep

Value = TypeVar("Value")


class computed_once(Generic[Value]):  # noqa: N801 - a decorator, as functools.cached_property is
    """Property of a window that is computed at its first use, and kept in its dictionary ``known``.

    ``functools.cached_property`` takes a lock up to Python 3.11, which ``torch.compile`` cannot trace.
    """

    def __init__(self, compute: Callable[[Any], Value]) -> None:
        self._compute, self._name = compute, compute.__name__

    def __get__(self, window: _Window, _: object = None) -> Value:
        """Return the value, computed at the first use."""
        if self._name not in window.known:
            window.known[self._name] = self._compute(window)
        value: Value = window.known[self._name]
        return value


@dataclass(frozen=True, eq=False)
class _Window:
    """Windows of a batch, whose states are computed at their first use.

    Gradients may be off at that time, so the gradient mode of the construction is used.

    rep, target: online and target encoder
    obs:         the batch's normalised observations, name -> [B, W+1, ...]
    burn_in, learn: K and T; learned positions are K … K+T−1
    """

    rep: Rep
    target: Rep
    obs: Obs
    batch: SequenceBatch
    burn_in: int
    learn: int
    with_gradient: bool = field(init=False, default_factory=torch.is_grad_enabled)
    known: dict[str, Any] = field(init=False, default_factory=dict)

    @property
    def _learned(self) -> slice:
        return slice(self.burn_in, self.burn_in + self.learn)

    @property
    def _one_view(self) -> AbstractContextManager[None]:
        """Context of all passes over a window; here none: without memory each image is shifted on its own."""
        return nullcontext()

    def _run(self, by: Rep, carry: Tensor, tokens: slice, *, gradient: bool) -> tuple[Tensor, Tensor]:
        """Return the states and carries of ``tokens`` by an encoder, from the carry before them."""
        batch, seen = self.batch, {name: value[:, tokens] for name, value in self.obs.items()}
        with self._one_view, torch.set_grad_enabled(gradient):
            state, after = by(seen, batch.prev_action[:, tokens], carry, batch.obs_valid[:, tokens])
            return state, after


class _Whole(_Window):
    """States by one pass of each network over all tokens."""

    @computed_once
    def _online(self) -> tuple[Tensor, Tensor]:
        """Online states of all tokens [B, W+1, S], and the carry after each [B, W+1, *C]."""
        return self._run(self.rep, self.batch.carry, slice(None), gradient=self.with_gradient)

    @property
    def online(self) -> Tensor:
        """Online states of all tokens [B, W+1, S], with gradient at the learned positions."""
        return self._online[0]

    @property
    def learned(self) -> Tensor:
        """Online states of the learned tokens [B, T, S], with gradient."""
        return self.online[:, self._learned]

    @property
    def carry(self) -> Tensor:
        """Online carry after each token [B, W+1, *C]; [B, 0] if no carry is stored."""
        return self._online[1]

    @property
    def target_following(self) -> Tensor:
        """Target states of tokens K+1 … W, [B, W−K, S]."""
        return self._frozen[:, self.burn_in + 1 :]

    @property
    def target_learned(self) -> Tensor:
        """Target states of the learned tokens [B, T, S]."""
        return self._frozen[:, self._learned]

    @computed_once
    def _frozen(self) -> Tensor:
        if self.target is self.rep:
            return self.online.detach()
        return self._run(self.target, self.batch.carry, slice(None), gradient=False)[0]


class WholeWindow(_Whole):
    """States of an encoder with attention: all images of a window are shifted alike.

    Every token of the window is an input of the learned states, with gradient.
    """

    @computed_once
    @override
    def _one_view(self) -> OneView:
        return OneView(self.rep, len(self.batch.reward))


class Stateless:
    """States of an encoder without memory and parameters: one pass, because it is its own target.

    online, learned, carry, target_following, target_learned: as of the other encodings
    """

    def __init__(
        self, rep: Rep, target: Rep, obs: Obs, batch: SequenceBatch, *, burn_in: int, learn: int
    ) -> None:
        state, self.carry = rep(obs, batch.prev_action, batch.carry, batch.obs_valid)
        self.online, self.learned = state, state[:, burn_in : burn_in + learn]
        self.target_following = state[:, burn_in + 1 :].detach()
        self.target_learned = self.learned.detach()


class TokenByToken(_Window):
    """States of an encoder without memory: tokens are encoded as needed, with gradient if they are learned.

    For images that saves the backward pass of all other tokens, and the target's forward pass of learned
    ones. There is no burn-in without memory.
    """

    @computed_once
    def learned(self) -> Tensor:
        """States of the learned tokens [B, T, S]."""
        return self._encode(self.rep, self._learned, gradient=self.with_gradient)

    @computed_once
    def online(self) -> Tensor:
        """States of all tokens [B, W+1, S]."""
        rest = self._encode(self.rep, slice(self.learn, None), gradient=False)
        with torch.set_grad_enabled(self.with_gradient):
            return torch.cat([self.learned, rest], 1)

    @property
    def carry(self) -> Tensor:
        """Empty carry [B, 0]."""
        return self.batch.carry

    @computed_once
    def target_following(self) -> Tensor:
        """Target states of tokens K+1 … W, [B, W−K, S]."""
        if self.target is self.rep:
            return self.online[:, 1:].detach()
        return self._encode(self.target, slice(1, None), gradient=False)

    @computed_once
    def target_learned(self) -> Tensor:
        """Target states of the learned tokens [B, T, S]."""
        return self._encode(self.target, self._learned, gradient=False)

    def _encode(self, by: Rep, tokens: slice, *, gradient: bool) -> Tensor:
        return self._run(by, self.batch.carry, tokens, gradient=gradient)[0]


class RecurrentEncoding(WholeWindow):
    """States of a recurrent encoder: one pass of each network from the stored carry (R2D2, section 3).

    The burn-in only updates the carry, without gradient. The tokens after the learned ones are used in
    targets alone and get no gradient either.
    """

    @property
    @override
    def learned(self) -> Tensor:
        return self._until_learned[-1][0]

    @computed_once
    def _until_learned(self) -> list[tuple[Tensor, Tensor]]:
        """States and carries of the burn-in, if there is one, and of the learned tokens."""
        passes, carry = [], self.batch.carry
        before = [(slice(0, self.burn_in), False)] if self.burn_in else []
        for tokens, gradient in (*before, (self._learned, self.with_gradient)):
            passes.append(self._run(self.rep, carry, tokens, gradient=gradient))
            carry = passes[-1][1][:, -1].detach()
        return passes

    @computed_once
    @override
    def _online(self) -> tuple[Tensor, Tensor]:
        carry = self._until_learned[-1][1][:, -1].detach()
        rest = self._run(self.rep, carry, slice(self._learned.stop, None), gradient=False)
        states, carries = zip(*self._until_learned, rest, strict=True)
        with torch.set_grad_enabled(self.with_gradient):
            return torch.cat(states, 1), torch.cat([carry.detach() for carry in carries], 1)


States = Stateless | _Whole | TokenByToken
"""States of a batch's windows. Each property is computed at its first use, so unused ones cost nothing."""

Encoding = type[Stateless] | type[_Whole] | type[TokenByToken]
"""Class that encodes batches with the online encoder and its target."""


def make_encoding(rep: Rep) -> Encoding:
    """Return the encoding with the fewest passes that suits the encoder ``rep``."""
    if rep.carry_shape != (0,):
        return RecurrentEncoding if rep.stored_carry_shape != (0,) else WholeWindow
    # A tensor that is neither learned nor saved, such as a table of one-hots, is the same in the target.
    return TokenByToken if rep.state_dict() else Stateless
