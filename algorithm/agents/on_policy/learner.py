"""The base class of learners from rollouts, to which a family adds the update."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial

import torch
from torch import nn

from algorithm.agents.learner import Learner
from algorithm.agents.on_policy.bonuses import Bonuses
from algorithm.agents.roles import AgentInputs
from algorithm.core.seeding import stream_seed
from algorithm.extensions.base import Extension
from algorithm.nn.acting import ActingModel
from algorithm.nn.learning.optimiser import FlatAdam
from algorithm.nn.normalise import Normaliser
from algorithm.nn.return_scale import FIRST, make_return_scale


class RolloutLearner(Learner):
    """Learner with the networks that act, and the bonuses of extensions.

    model:      networks that act
    rate, limit: learning rate of the extensions' networks, and the largest norm of their gradient
    burn_in:    K, tokens that attention sees before a sequence; learn: T, steps of a sequence
    extensions: their bonuses are added to the scaled rewards
    """

    parts: Mapping[str, nn.Module]
    """Trained networks by role, such as ``policy``, without those of extensions."""

    def __init__(
        self,
        inputs: AgentInputs,
        model: ActingModel,
        *,
        rate: float,
        limit: float | None,
        burn_in: int,
        learn: int,
        extensions: Sequence[Extension],
    ) -> None:
        run, device = inputs.config.run, inputs.device
        seed = stream_seed(inputs.seed, "learner", inputs.behaviour)
        super().__init__(device, seed)
        self.model = model
        self.return_scale = make_return_scale(run.reward_scaling, run.gamma, FIRST)
        self._burn_in = burn_in
        self._limit = limit or math.inf
        self._bonuses = Bonuses(
            extensions,
            self.model,
            partial(FlatAdam, learning_rate=rate, max_norm=self._limit, skipped=self._skipped),
            self.return_scale,
            burn_in=burn_in,
            learn=learn,
            device=device,
            gamma=run.gamma,
        )
        self._generator = torch.Generator().manual_seed(seed)  # on the CPU, where rollouts are

    @property
    def observations(self) -> int:
        """Number of observations in the normaliser's statistics."""
        normaliser = self.model.normaliser
        return int(normaliser.count) if isinstance(normaliser, Normaliser) else 0

    def num_parameters(self) -> dict[str, int]:
        """Return the numbers of trained parameters by network and by extension."""
        sizes = {name: sum(p.numel() for p in part.parameters()) for name, part in self.parts.items()}
        return {**sizes, **self._bonuses.num_parameters()}
