"""The base class of learners from rollouts, and the bonuses of extensions that they add to rewards."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn

from algorithm.agents.learner import Learner
from algorithm.agents.networks import policy_in_windows
from algorithm.agents.on_policy.networks import CHUNK
from algorithm.agents.roles import AgentInputs
from algorithm.core.data import SequenceBatch
from algorithm.core.errors import COMMON_BLOCK, UsageError
from algorithm.core.seeding import stream_seed
from algorithm.extensions.base import Context, Extension, Horizon, by_horizon, draw_all
from algorithm.extensions.steps import ExtensionSteps
from algorithm.nn.acting import ActingModel
from algorithm.nn.encoding import States, make_encoding
from algorithm.nn.learning.optimiser import FlatAdam
from algorithm.nn.normalise import Normaliser
from algorithm.nn.protocols import HybridAction, Obs
from algorithm.nn.return_scale import FIRST, NoReturnScale, ReturnScale, make_return_scale


class Bonuses:
    """Rewards of a rollout: the environment's, scaled, and the intrinsic ones of extensions.

    by_horizon: the extensions by the horizon of their rewards; the first horizon is the agent's
    signals:    the extensions of each further horizon

    extensions: only their ``reward_bonus`` and ``own_losses`` are used
    model:      encoder and normaliser, which are not trained here
    make_step:  constructor of the optimiser of the extensions' own networks
    return_scale: scale of the environment's rewards
    burn_in, learn: K and T of a rollout's windows
    gamma:      discount factor of the agent
    """

    def __init__(
        self,
        extensions: Sequence[Extension],
        model: ActingModel,
        make_step: Callable[..., FlatAdam],
        return_scale: ReturnScale | NoReturnScale,
        *,
        burn_in: int,
        learn: int,
        device: torch.device,
        gamma: float,
    ) -> None:
        for extension in extensions:
            _check_serves(extension)
        self.extensions = tuple(extension.to(device) for extension in extensions)
        self.by_horizon = by_horizon(self.extensions, Horizon(gamma))
        _, *self.signals = self.by_horizon.values()
        self._steps = ExtensionSteps(self.extensions, make_step)
        self.optimisers = self._steps.optimisers
        self._model, self._return_scale = model, return_scale
        self._burn_in, self._learn, self._device = burn_in, learn, device
        self._learned = slice(burn_in, burn_in + learn)
        self._encoding = make_encoding(model.rep)

    @torch.no_grad()
    def rewards(self, batch: SequenceBatch) -> list[Tensor]:
        """Return the rewards [B, T] of the learned transitions for each horizon, on the CPU.

        The agent's horizon has the environment's rewards and bonuses, the others have bonuses alone.
        """
        bonuses = [torch.zeros(len(batch.reward), self._learn) for _ in self.by_horizon]
        chunks = torch.arange(len(batch.reward)).split(CHUNK) if self.extensions else ()
        for rows in chunks:
            context = self._context(batch.rows(rows))
            for total, extensions in zip(bonuses, self.by_horizon.values(), strict=True):
                for extension in extensions:
                    bonus = extension.reward_bonus(context)
                    if isinstance(bonus, Tensor):
                        total[rows] += bonus[:, self._learned].cpu()
        environment = batch.reward[:, self._learned] * self._return_scale.factor
        return [environment.cpu() + bonuses[0], *bonuses[1:]]

    def update(self, batch: SequenceBatch, generator: torch.Generator) -> dict[str, Tensor]:
        """Train the extensions' own networks on a batch of windows; return metrics on the device."""
        batch, metrics = batch.to(self._device), dict[str, Tensor]()
        context = self._context(batch)
        for _ in range(self._steps.rounds):
            drawn = draw_all(self.extensions, batch, self._learned, generator)
            metrics = self._steps.update(replace(context, drawn=drawn))
        return metrics

    def _context(self, batch: SequenceBatch) -> Context:
        batch = batch.to(self._device)
        batch = replace(batch, reward=batch.reward * self._return_scale.factor)
        obs = self._model.normaliser(batch.obs)
        return Context(
            batch=batch,
            obs=obs,
            states=self.states(obs, batch),
            burn_in=self._burn_in,
            learn=self._learn,
            networks=self,
        )

    def normalise(self, obs: Obs) -> Obs:
        """Return raw observations of any batch as the networks' inputs."""
        inputs: Obs = self._model.normaliser(obs)
        return inputs

    def q(self, state: Tensor, action: Tensor) -> Tensor:
        """Raise UsageError: learners from rollouts have no action values."""
        raise UsageError(
            "an extension needs action values",
            where=f"{COMMON_BLOCK}.extensions",
            why="algorithms that learn from rollouts have none",
            fix="leave it out, or set algorithm: SAC",
        )

    target_q = q

    def policy(self, state: Tensor, obs: Obs) -> HybridAction:
        """Return the policy's distribution [B, T, ...] in states [B, T, S]; obs: [B, T, ...] inputs."""
        with torch.no_grad():
            return policy_in_windows(self._model.policy, state, obs)

    def states(self, obs: Obs, batch: SequenceBatch) -> States:
        """Return the states of a batch; obs: its observations as the networks' inputs."""
        rep = self._model.rep
        with torch.no_grad():
            return self._encoding(rep, rep, obs, batch, burn_in=self._burn_in, learn=self._learn)

    def num_parameters(self) -> Mapping[str, int]:
        """Return the numbers of trained parameters by extension."""
        networks = {type(extension).__name__.lower(): extension.own for extension in self.extensions}
        return {name: sum(p.numel() for p in modules.parameters()) for name, modules in networks.items()}


def _check_serves(extension: Extension) -> None:
    """Raise UsageError for an extension with methods that learning from rollouts does not use."""
    kind = type(extension)
    unused = ("auxiliary_losses", "updated")
    beyond = [name for name in unused if getattr(kind, name) is not getattr(Extension, name)]
    beyond += ["score_actions"] * (extension.num_candidates > 1)
    if beyond:
        raise UsageError(
            f"the extension {kind.__name__} does not work with algorithms that learn from rollouts",
            where=f"{COMMON_BLOCK}.extensions",
            why=f"it has {' and '.join(beyond)}, and these use only reward_bonus and own_losses",
            fix="leave it out, or set algorithm: SAC",
        )


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
