"""The keys of on-policy families, a block each. Imports no torch."""

from __future__ import annotations

import math
from typing import Literal, TypeAlias

from typing_extensions import override

from algorithm.core.fields import AnyConfig, Block, Finite, Positive, Share, Whole, option

_OTHER_ROLLOUT = "fixed: a rollout of that length has been begun, and is in the checkpoint"
_OTHER_MOMENTS = "fixed: the optimiser's numbers mean something else"
_LONGEST = "Gradients longer than this are shortened to it. null: none is."
_TF_RMS = "RMSprop as TensorFlow has it, its constant inside the root. false: as PyTorch."
_VTRACE = (
    "With actors in other processes: correct advantages for the older weights that have acted (V-trace). "
    "false: segments made with weights more than one version old are dropped."
)


class RolloutConfig(Block):
    """Keys of every family that learns from rollouts."""

    rollout_step: Whole = option(
        2048,
        "Steps of each environment in a rollout, after which the networks learn from it.",
        ge=1,
        resume=_OTHER_ROLLOUT,
    )
    learning_rate: Finite = option(0.0003, "Step size of the networks.", gt=0)
    entropy_coef: Finite = option(0.0, "Weight of the policy's entropy in the loss.", ge=0)

    @property
    def adam_rate(self) -> float:
        """Step size of the networks of extensions, and of cloning, which Adam trains."""
        return self.learning_rate


class OnPolicyConfig(RolloutConfig):
    """Keys of the families that learn from the last rollout alone."""

    sequence_step: Whole = option(
        32,
        "With a memory: steps of the sequences that a rollout is cut into, no more than rollout_step.",
        ge=2,
    )
    shared: bool = option(
        True,
        "One encoder for policy and values. false: values have one of their own.",
        resume="fixed: an encoder would be without what it has learned",
    )
    gae_lambda: Finite = option(
        0.95,
        "λ of generalised advantages. 1: whole returns; 0: one step.",
        ge=0,
        le=1,
    )
    value_coef: Finite = option(0.5, "Weight of (V − R)² in the loss.", ge=0)

    @property
    def sequence(self) -> int:
        """Steps of a sequence with a memory: those of an environment's rollout at most."""
        return min(self.sequence_step, self.rollout_step)


class PpoConfig(OnPolicyConfig):
    """Proximal policy optimisation (Schulman et al. 2017, arXiv 1707.06347)."""

    max_grad_norm: Positive | None = option(0.5, _LONGEST)
    use_vtrace: bool = option(True, _VTRACE)
    num_epoch: Whole = option(10, "Times that a rollout is learned from.", ge=1)
    num_minibatch: Whole = option(
        32, "Parts of about the same size that a rollout is split into, each one update.", ge=1
    )
    clip: Positive = option(
        0.2, "How far the ratio of the probabilities of an action may usefully move from 1."
    )
    clip_schedule: Literal["constant", "linear"] = option("constant", "linear: clip falls to 0 at max_step.")
    clip_value: Positive | None = option(
        None, "How far a value may usefully move from that before the update. null: any."
    )
    normalise_advantage: Literal["minibatch", "rollout", "none"] = option(
        "minibatch", "Over what advantages get mean 0 and standard deviation 1."
    )
    target_kl: Positive | None = option(
        None, "No more updates of a rollout once 1.5 times this KL divergence is passed. null: all."
    )


class OneUpdateConfig(OnPolicyConfig):
    """Keys of the families that learn from a rollout once, as one batch."""

    rollout_step: Whole = option(
        20,
        "Steps of each environment in a rollout, after which the networks learn from it.",
        ge=1,
        resume=_OTHER_ROLLOUT,
    )
    gae_lambda: Finite = option(
        1.0, "λ of generalised advantages. 1: whole returns; 0: one step.", ge=0, le=1
    )
    entropy_coef: Finite = option(0.01, "Weight of the policy's entropy in the loss.", ge=0)

    @property
    def num_epoch(self) -> int:
        """A rollout is learned from once."""
        return 1

    @property
    def num_minibatch(self) -> int:
        """A rollout is one batch."""
        return 1

    @property
    def clip(self) -> float:
        """Nothing is clipped: with one update of a rollout the ratio is 1."""
        return math.inf

    @property
    def clip_schedule(self) -> Literal["constant"]:
        """Nothing is clipped."""
        return "constant"

    @property
    def clip_value(self) -> None:
        """Nothing is clipped."""
        return

    @property
    def normalise_advantage(self) -> Literal["none"]:
        """Advantages are as they are."""
        return "none"

    @property
    def target_kl(self) -> None:
        """There is one update, which is made."""
        return


class A2cConfig(OneUpdateConfig):
    """Advantage actor-critic: the synchronous form of A3C (Mnih et al. 2016, arXiv 1602.01783)."""

    rollout_step: Whole = option(
        5,
        "Steps of each environment in a rollout, after which the networks learn from it.",
        ge=1,
        resume=_OTHER_ROLLOUT,
    )
    learning_rate: Finite = option(0.0007, "Step size of the networks.", gt=0)
    max_grad_norm: Positive | None = option(0.5, _LONGEST)
    use_tf_rms: bool = option(True, _TF_RMS, resume=_OTHER_MOMENTS)
    use_vtrace: bool = option(True, _VTRACE)


class A3cConfig(OneUpdateConfig):
    """Asynchronous advantage actor-critic (Mnih et al. 2016, arXiv 1602.01783)."""

    num_processes: Whole = option(
        2,
        "Processes with an environment each, which add their gradients to the same networks without waiting "
        "for each other. 1: this process alone, which is A2C with one environment.",
        ge=1,
        resume="free: another number of workers begins new episodes",
    )
    learning_rate: Finite = option(0.0007, "Step size of the networks.", gt=0)
    max_grad_norm: Positive | None = option(40.0, _LONGEST)
    use_tf_rms: bool = option(True, _TF_RMS, resume=_OTHER_MOMENTS)

    @property
    def use_vtrace(self) -> bool:
        """Every worker learns from its own rollouts alone."""
        return False


class AcktrConfig(OneUpdateConfig):
    """Actor-critic with Kronecker-factored trust region (Wu et al. 2017, arXiv 1708.05144)."""

    learning_rate: Finite = option(0.25, "Largest step size; kl_clip makes it smaller.", gt=0)
    kl_clip: Positive = option(
        0.001, "Trust region: twice the KL divergence that an update of policy and values may cause, about."
    )
    damping: Positive = option(
        0.001, "Addend of the curvature that a gradient is divided by. More: shorter, plainer steps."
    )
    stat_decay: Share = option(0.99, "Decay of the running means that the curvature is computed from.")
    momentum: Share = option(0.9, "Decay of the running mean of the steps.")
    inverse_every: Whole = option(10, "Updates after which the curvature is inverted anew.", ge=1)

    @property
    def max_grad_norm(self) -> None:
        """The length of a step is limited by kl_clip."""
        return

    @property
    def use_vtrace(self) -> bool:
        """No other process acts."""
        return False

    @property
    @override
    def adam_rate(self) -> float:
        """Step size of the networks of extensions, and of cloning, which Adam trains."""
        return 3e-4


OwnConfig: TypeAlias = PpoConfig | A2cConfig | A3cConfig | AcktrConfig

BLOCKS = {"PPO": "ppo_config", "A2C": "a2c_config", "A3C": "a3c_config", "ACKTR": "acktr_config"}
"""Family -> its block."""

CLASSES: dict[str, type[OwnConfig]] = {
    "PPO": PpoConfig,
    "A2C": A2cConfig,
    "A3C": A3cConfig,
    "ACKTR": AcktrConfig,
}
"""Family -> the class of its block."""


def processes(config: AnyConfig) -> int:
    """Return the number of processes that train an agent of the family that a configuration chooses."""
    own = own_block(config)
    return own.num_processes if isinstance(own, A3cConfig) else 1


def own_block(config: AnyConfig) -> OwnConfig:
    """Return the keys of the family that a configuration chooses."""
    own: OwnConfig = getattr(config, BLOCKS[config.algorithm])
    return own
