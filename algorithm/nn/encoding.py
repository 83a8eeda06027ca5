"""How the tokens of a window become states, with as little work as the kind of representation allows."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from algorithm.data import SequenceBatch
from algorithm.nn.augment import OneLook
from algorithm.nn.protocols import Rep

Obs = Mapping[str, Tensor]


class States(Protocol):
    """What a representation makes of a window whose learned part is K … K+T−1.

    Each is made when it is first asked for, and once: ask for no more than is needed.
    """

    @property
    def learned(self) -> Tensor:
        """[B, T, S] by the online network, with gradient."""
        ...

    @property
    def online(self) -> Tensor:
        """[B, W+1, S] of all tokens, with gradient at the learned positions."""
        ...

    @property
    def carry(self) -> Tensor:
        """[B, W+1, *C] online, after each token; [B, 0] where nothing is stored."""
        ...

    @property
    def target_following(self) -> Tensor:
        """[B, W−K, S] by the target network, of tokens K+1 … W."""
        ...

    @property
    def target_learned(self) -> Tensor:
        """[B, T, S] by the target network."""
        ...


class Encoding(Protocol):
    """Runs the online representation and its target over a batch, as far as their states are asked for."""

    def __call__(
        self, rep: Rep, target: Rep, obs: Obs, batch: SequenceBatch, *, burn_in: int, learn: int
    ) -> States:
        """obs: the batch's observations as networks see them, name -> [B, W+1, ...]."""
        ...


@dataclass(frozen=True, eq=False)
class _Window:
    """What :class:`Encoding` is given, and whether there were gradients then.

    A state is made where it is first used, which may be where gradients are off.
    """

    rep: Rep
    target: Rep
    obs: Obs
    batch: SequenceBatch
    burn_in: int
    learn: int
    with_gradient: bool = field(init=False, default_factory=torch.is_grad_enabled)

    @property
    def _learned(self) -> slice:
        return slice(self.burn_in, self.burn_in + self.learn)

    @property
    def _look(self) -> AbstractContextManager[None]:
        """Entered for each pass: without memory every image is shifted on its own."""
        return nullcontext()

    def _run(self, by: Rep, carry: Tensor, tokens: slice, *, gradient: bool) -> tuple[Tensor, Tensor]:
        """States and carries of some tokens, from the carry before them."""
        batch, seen = self.batch, {name: value[:, tokens] for name, value in self.obs.items()}
        with self._look, torch.set_grad_enabled(gradient):
            return by(seen, batch.prev_action[:, tokens], carry, batch.obs_valid[:, tokens])


class _Whole(_Window):
    """One pass of each network over all tokens."""

    @cached_property
    def _online(self) -> tuple[Tensor, Tensor]:
        return self._run(self.rep, self.batch.carry, slice(None), gradient=self.with_gradient)

    @property
    def online(self) -> Tensor:
        """See :class:`States`."""
        return self._online[0]

    @property
    def learned(self) -> Tensor:
        """See :class:`States`."""
        return self.online[:, self._learned]

    @property
    def carry(self) -> Tensor:
        """See :class:`States`."""
        return self._online[1]

    @property
    def target_following(self) -> Tensor:
        """See :class:`States`."""
        return self._frozen[:, self.burn_in + 1 :]

    @property
    def target_learned(self) -> Tensor:
        """See :class:`States`."""
        return self._frozen[:, self._learned]

    @cached_property
    def _frozen(self) -> Tensor:
        return self._run(self.target, self.batch.carry, slice(None), gradient=False)[0]


class _Remembered(_Whole):
    """With a memory all images of a window are shifted alike."""

    @cached_property
    def _look(self) -> OneLook:
        return OneLook(self.rep, len(self.batch.reward))


class WholeWindow(_Remembered):
    """Attention: every token of the window is an input of the learned states, with gradient."""


class Stateless(_Whole):
    """A representation without parameters is the same as its target: one pass."""

    @cached_property
    def _frozen(self) -> Tensor:
        return self.online.detach()


class TokenByToken(_Window):
    """Without memory each token is encoded where it is needed, and with a gradient only where it is learned.

    For images that saves the backward pass of every token but the learned ones, and the target's forward
    pass of those. There is no burn-in without memory.
    """

    @cached_property
    def learned(self) -> Tensor:
        """See :class:`States`."""
        return self._encode(self.rep, self._learned, gradient=self.with_gradient)

    @cached_property
    def online(self) -> Tensor:
        """See :class:`States`."""
        rest = self._encode(self.rep, slice(self.learn, None), gradient=False)
        with torch.set_grad_enabled(self.with_gradient):
            return torch.cat([self.learned, rest], 1)

    @property
    def carry(self) -> Tensor:
        """See :class:`States`."""
        return self.batch.carry

    @cached_property
    def target_following(self) -> Tensor:
        """See :class:`States`."""
        return self._encode(self.target, slice(1, None), gradient=False)

    @cached_property
    def target_learned(self) -> Tensor:
        """See :class:`States`."""
        return self._encode(self.target, self._learned, gradient=False)

    def _encode(self, by: Rep, tokens: slice, *, gradient: bool) -> Tensor:
        return self._run(by, self.batch.carry, tokens, gradient=gradient)[0]


class RecurrentEncoding(_Remembered):
    """A recurrent memory: each network runs over the window once, from the stored carry (R2D2, section 3).

    The burn-in only brings the carry up to date; nothing of it gets a gradient. Nor do the tokens behind the
    learned ones: they are needed for targets alone.
    """

    @property
    def learned(self) -> Tensor:
        """See :class:`States`."""
        return self._until_learned[-1][0]

    @cached_property
    def _until_learned(self) -> list[tuple[Tensor, Tensor]]:
        """States and carries of the burn-in, if there is one, and of the learned tokens."""
        parts, carry = [], self.batch.carry
        before = [(slice(0, self.burn_in), False)] if self.burn_in else []
        for tokens, gradient in (*before, (self._learned, self.with_gradient)):
            parts.append(self._run(self.rep, carry, tokens, gradient=gradient))
            carry = parts[-1][1][:, -1].detach()
        return parts

    @cached_property
    def _online(self) -> tuple[Tensor, Tensor]:
        carry = self._until_learned[-1][1][:, -1].detach()
        rest = self._run(self.rep, carry, slice(self._learned.stop, None), gradient=False)
        states, carries = zip(*self._until_learned, rest, strict=True)
        with torch.set_grad_enabled(self.with_gradient):
            return torch.cat(states, 1), torch.cat([carry.detach() for carry in carries], 1)


def make_encoding(rep: Rep) -> Encoding:
    """The cheapest way to run ``rep``."""
    if rep.carry_shape != (0,):
        return RecurrentEncoding if rep.stored_carry_shape != (0,) else WholeWindow
    # What is neither learned nor saved, such as a table of one-hots, is the same in the target.
    return TokenByToken if rep.state_dict() else Stateless
