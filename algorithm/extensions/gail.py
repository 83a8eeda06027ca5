"""Generative adversarial imitation (arXiv 1606.03476), and the strength of the environment's reward."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from typing_extensions import override

from algorithm.core.data import SequenceBatch
from algorithm.core.spec import AgentSpec
from algorithm.extensions.base import Build, Context, Demonstrated, Extension, Horizon
from algorithm.nn.layers.encode import VectorEncoder
from algorithm.nn.layers.images import image_layouts
from algorithm.nn.models.extensions import check_discriminator
from algorithm.nn.protocols import Obs
from algorithm.ops.imitation import airl_reward, discriminator_loss, gail_reward, gradient_penalty
from algorithm.ops.shapes import window_mean

_VECTOR = "/vector"  # no observation has a name with a slash in front


class Extrinsic(Extension):
    """Scaling of the environment's reward by ``strength``, as a bonus that is added to the reward."""

    def __init__(self, strength: float) -> None:
        super().__init__()
        self._strength = strength

    @override
    def reward_bonus(self, ctx: Context) -> Tensor:
        """Return (strength − 1) · reward, [B, W]; with strength 0 the sum with the reward is exactly 0."""
        return (self._strength - 1.0) * ctx.batch.reward


class TransitionInputs(nn.Module):
    """Conversion of transitions to a discriminator's inputs, a vector and float images; no parameters.

    use_actions: the vector includes the flat action
    """

    def __init__(self, spec: AgentSpec, *, use_actions: bool) -> None:
        super().__init__()
        self._images = image_layouts(spec.obs)
        self._encoder = VectorEncoder(spec.obs)
        self._use_actions = use_actions
        self.size = self._encoder.out_size + use_actions * spec.action.size + 1

    @override
    def forward(self, batch: SequenceBatch, obs: Obs, at: slice) -> dict[str, Tensor]:
        """Return the inputs [B·T, ...] of a batch's transitions at the positions ``at``.

        The vector joins vector observations, the flat action if it is used, and whether the task terminated.
        obs: the batch's normalised observations, name -> [B, W+1, ...]
        """
        seen = {name: value[:, at] for name, value in obs.items()}
        parts = [batch.terminated[:, at].unsqueeze(-1).to(batch.reward.dtype)]
        if self._use_actions:
            parts.insert(0, batch.action[:, at])
        if self._encoder.names:
            parts.insert(0, self._encoder(seen))
        images = {name: layout.to_planes(seen[name]) for name, layout in self._images.items()}
        return {_VECTOR: torch.cat(parts, -1).flatten(0, 1), **images}


class Gail(Extension):
    """Reward ``strength`` · r(D), by a discriminator D of demonstrated and the policy's transitions.

    D learns the output 1 for demonstrated and 0 for the policy's transitions, in equal numbers, with a
    penalty on its gradient between pairs of them (arXiv 1704.00028). Its input is a transition: normalised
    observations, the action, and whether the task terminated. Replayed transitions count as the policy's, as
    in arXiv 1809.02925.

    discriminator: logit of D, see :class:`~algorithm.nn.models.extensions.ModelDiscriminator`
    reward:        function r of the logit
    demonstrations: None: D does not learn
    penalty:       weight of the gradient penalty
    """

    signal = "gail"

    def __init__(
        self,
        discriminator: nn.Module,
        inputs: TransitionInputs,
        reward: Callable[[Tensor], Tensor],
        demonstrations: Demonstrated | None,
        *,
        strength: float,
        penalty: float,
        learning_rate: float,
        horizon: Horizon,
    ) -> None:
        super().__init__(*(f"gail/{name}" for name in ("expert", "policy", "penalty", "bonus_mean")))
        self.own.append(discriminator)
        self.learning_rate = learning_rate
        self.horizon = horizon
        self.inputs, self._reward, self._demonstrations = inputs, reward, demonstrations
        self._strength, self._penalty = strength, penalty
        self.eval()

    @torch.no_grad()
    @override
    def reward_bonus(self, ctx: Context) -> Tensor:
        """Return the reward [B, W], 0 where no transition exists."""
        every = slice(0, ctx.batch.window)
        logit = self._logit(self.inputs(ctx.batch, ctx.obs, every)).view(ctx.batch.reward.shape)
        return torch.where(ctx.batch.valid, self._strength * self._reward(logit), 0.0)

    @override
    def draw(
        self, batch: SequenceBatch, learned: slice, generator: torch.Generator
    ) -> tuple[SequenceBatch, Tensor] | None:
        """Draw B demonstrated windows, and the shares [B·T] that mix pairs for the gradient penalty."""
        if self._demonstrations is None:
            return None
        size, device, at = len(batch.reward), batch.reward.device, self._demonstrations.learned
        shown = self._demonstrations.draw(size, generator).to(device)
        share = torch.rand(size * (at.stop - at.start), generator=generator, device=generator.device)
        return shown, share.to(device)

    @override
    def own_losses(self, ctx: Context) -> Mapping[str, Tensor]:
        """Return the discriminator's loss on the learned and on as many demonstrated transitions."""
        assert self._demonstrations is not None, "a learner has demonstrations"
        at = self._demonstrations.learned
        shown, share = ctx.drawn[type(self).__name__]
        expert = self.inputs(shown, ctx.normalise(shown.obs), at)
        of_policy = self.inputs(ctx.batch, ctx.obs, ctx.learned)
        both = {name: torch.cat([expert[name], value]) for name, value in of_policy.items()}
        there, here = shown.valid[:, at], ctx.batch.valid[:, ctx.learned]
        logits = self._logit(both).chunk(2)
        expert_loss, policy_loss = discriminator_loss(*logits)
        slope = gradient_penalty(self._logit, expert, of_policy, share)

        def mean(values: Tensor, valid: Tensor) -> Tensor:
            return window_mean(values.view(valid.shape), valid)

        penalty = mean(slope, there & here)
        with torch.no_grad():
            self.shown.show(
                {
                    "gail/expert": mean(logits[0].sigmoid(), there),
                    "gail/policy": mean(logits[1].sigmoid(), here),
                    "gail/penalty": penalty.detach(),
                    "gail/bonus_mean": mean(self._strength * self._reward(logits[1]), here),
                }
            )
        loss = mean(expert_loss, there) + mean(policy_loss, here) + self._penalty * penalty
        return {"gail": loss}

    def _logit(self, inputs: Mapping[str, Tensor]) -> Tensor:
        images = {name: value for name, value in inputs.items() if name != _VECTOR}
        logit: Tensor = self.own[0](inputs[_VECTOR], images)
        return logit


def make_extrinsic(build: Build) -> Extrinsic | None:
    """Return the scaling of the environment's reward; None if its strength is 1."""
    strength = build.signals.extrinsic.strength
    return None if strength == 1.0 else Extrinsic(strength)


def make_gail(build: Build) -> Gail | None:
    """Return the reward of ``reward_signals.gail``; None if its strength is 0.

    Raises ModelError for a network that returns a wrong shape.
    """
    options = build.signals.gail
    if not options.strength:
        return None
    inputs = TransitionInputs(build.spec, use_actions=options.use_actions)
    sizes = inputs.size, options.dense_n, options.dense_depth
    network = build.make_network("ModelDiscriminator", build.spec, *sizes)
    check_discriminator(network, build.spec, inputs.size)
    return Gail(
        network,
        inputs,
        gail_reward if options.form == "GAIL" else airl_reward,
        build.demonstrations,
        strength=options.strength,
        penalty=options.gradient_penalty,
        learning_rate=options.learning_rate,
        horizon=build.horizon(options),
    )
