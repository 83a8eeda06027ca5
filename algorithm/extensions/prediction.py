"""World model that trains the encoder: it predicts next states, rewards and observations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch import Tensor, nn
from typing_extensions import override

from algorithm.core.spec import ObsSpec, Range
from algorithm.extensions.base import Build, Context, Extension
from algorithm.nn.layers.images import UNIT, to_unit
from algorithm.nn.models.world import check_world
from algorithm.nn.protocols import Obs
from algorithm.ops.extensions import bounded_std, choice_error, squared_error, transition_loss
from algorithm.ops.shapes import window_mean

Error = Callable[[Tensor, Tensor], Tensor]
"""(prediction, observed) -> error of each position [B, T]."""


class Prediction(Extension):
    """Three models on the states of the learned positions, with gradient into the encoder.

    The transition model predicts the target encoder's state of the next token, and the observation model the
    observation of the same token. The reward model predicts the reward from state and action; from the next
    state no gradient would reach the encoder. All existing transitions have the same weight: importance
    weights correct values for a policy, and the environment's dynamics do not depend on it.

    obs:            observations of the agent
    transition, reward, observation: see :mod:`algorithm.nn.models.world`
    kl:             weight of the transition model's KL divergence from a standard normal
    use_extra_data: the transition model gets the observations, too
    """

    def __init__(
        self,
        obs: ObsSpec,
        transition: nn.Module,
        reward: nn.Module,
        observation: nn.Module,
        *,
        kl: float,
        use_extra_data: bool,
    ) -> None:
        super().__init__()
        self.joint.extend([transition, reward, observation])
        self._kl = kl
        self._seen = obs.names if use_extra_data else ()
        self._errors = _errors(obs)

    @override
    def auxiliary_losses(self, ctx: Context) -> Mapping[str, Tensor]:
        """Return the losses ``transition``, ``reward`` and ``observation``, means over learned positions."""
        batch, learned = ctx.batch, ctx.learned
        transition, reward, observation = self.joint
        state, action, valid = ctx.state[:, learned], batch.action[:, learned], batch.valid[:, learned]
        obs = {name: value[:, learned] for name, value in ctx.obs.items()}
        extra = {name: value for name, value in obs.items() if name in self._seen}
        mean, raw_std = transition(state, action, extra)
        following = ctx.target_following[:, : ctx.learn].detach()  # token K+1+t follows position K+t
        predicted = observation(state)
        reward_error = (reward(state, action) - batch.reward[:, learned]).square()
        return {
            "transition": transition_loss(following, mean, bounded_std(raw_std), valid, kl=self._kl),
            "reward": window_mean(reward_error, valid),
            "observation": self._observation_loss(predicted, obs, valid),
        }

    def _observation_loss(self, prediction: Obs, obs: Obs, valid: Tensor) -> Tensor:
        """Return the scalar sum of the observations' mean errors; valid: [B, T]."""
        error = sum(error(prediction[name], obs[name]) for name, error in self._errors.items())
        assert isinstance(error, Tensor)
        return window_mean(error, valid)


def make_prediction(build: Build) -> Prediction | None:
    """Return the world model; None if ``use_prediction`` is off.

    Raises ModelError for a network that returns a wrong shape.
    """
    options, spec, size = build.options, build.spec, build.state_size
    if not options.use_prediction:
        return None
    networks = {
        "transition": build.make_network("ModelTransition", spec, size, options.use_extra_data),
        "reward": build.make_network("ModelReward", spec, size),
        "observation": build.make_network("ModelObservation", spec, size),
    }
    check_world(spec, size, **networks, use_extra_data=options.use_extra_data)
    return Prediction(spec.obs, **networks, kl=options.transition_kl, use_extra_data=options.use_extra_data)


def _errors(obs: ObsSpec) -> dict[str, Error]:
    return {
        name: partial(choice_error, categories=categories)
        if categories
        else partial(_number_error, span=span, image=name in obs.images)
        for name, categories, span in zip(obs.names, obs.categories, obs.ranges, strict=True)
    }


def _number_error(prediction: Tensor, observed: Tensor, *, span: Range | None, image: bool) -> Tensor:
    """Return the squared error [B, T] on the scale of encoders' inputs: images and bytes in [0, 1]."""
    scaled = image or observed.dtype == torch.uint8
    return squared_error(prediction, to_unit(observed, span if scaled else UNIT).to(prediction.dtype))
