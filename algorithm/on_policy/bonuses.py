"""Rewards of extensions, computed once for a rollout, and the learning of their networks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn

from algorithm.data import SequenceBatch
from algorithm.extensions.base import Context, Extension
from algorithm.nn.acting_model import ActingModel
from algorithm.nn.encoding import States, make_encoding
from algorithm.nn.optimiser import FlatAdam, if_any
from algorithm.nn.protocols import Obs


class Bonuses:
    """Intrinsic rewards of a rollout.

    extensions: of which ``reward_bonus`` and ``own_losses`` are used
    model:      encoder and normaliser, which get no gradient from here
    make_step:  constructor of the optimiser of the extensions' own networks
    burn_in, learn: K and T of a rollout's windows
    """

    def __init__(
        self,
        extensions: Sequence[Extension],
        model: ActingModel,
        make_step: Callable[[Sequence[nn.Module]], FlatAdam],
        *,
        burn_in: int,
        learn: int,
        device: torch.device,
    ) -> None:
        self.extensions = tuple(extension.to(device) for extension in extensions)
        self.optimiser = if_any(make_step, [one.own for one in self.extensions])
        self._model, self._burn_in, self._learn, self._device = model, burn_in, learn, device
        self._encoding = make_encoding(model.rep)

    @torch.no_grad()
    def rewards(self, batch: SequenceBatch, chunk: int, generator: torch.Generator) -> Tensor:
        """Return the sum of the bonuses of the learned transitions [B, T], on the CPU.

        chunk: sequences whose bonuses are computed at once
        """
        total = torch.zeros(len(batch.reward), self._learn)
        if not self.extensions:
            return total
        for rows in torch.arange(len(total)).split(chunk):
            context = self._context(batch.rows(rows), generator)
            for one in self.extensions:
                bonus = one.reward_bonus(context)
                if isinstance(bonus, Tensor):
                    total[rows] += bonus[:, context.learned].cpu()
        return total

    def update(self, batch: SequenceBatch, generator: torch.Generator) -> dict[str, Tensor]:
        """Take a step of the extensions' own networks on these windows; return metrics on the device."""
        context = self._context(batch, generator)
        losses = {name: loss for one in self.extensions for name, loss in one.own_losses(context).items()}
        if losses and self.optimiser:
            self.optimiser.step(torch.stack(list(losses.values())).sum())
        found = {f"loss/{name}": loss.detach() for name, loss in losses.items()}
        return found | {name: value for one in self.extensions for name, value in one.metrics().items()}

    def _context(self, batch: SequenceBatch, generator: torch.Generator) -> Context:
        batch = batch.to(self._device)
        obs = self._model.normaliser(batch.obs)
        return Context(
            batch=batch,
            obs=obs,
            states=self._states(obs, batch),
            burn_in=self._burn_in,
            learn=self._learn,
            recode=lambda other: self._states(other, batch),
            q=_no_critics,
            target_q=_no_critics,
            generator=generator,
        )

    def _states(self, obs: Obs, batch: SequenceBatch) -> States:
        rep = self._model.rep
        with torch.no_grad():
            return self._encoding(rep, rep, obs, batch, burn_in=self._burn_in, learn=self._learn)

    def num_parameters(self) -> Mapping[str, int]:
        """Return the numbers of trained parameters by extension."""
        own = {type(one).__name__.lower(): one.own for one in self.extensions}
        return {name: sum(p.numel() for p in part.parameters()) for name, part in own.items()}


def _no_critics(state: Tensor) -> Tensor:
    raise AssertionError("on-policy learning has no critics of actions")
