"""The keys of on-policy families, a block each. Imports no torch."""

from __future__ import annotations

import math
from typing import ClassVar, Literal, TypeAlias

from typing_extensions import override

from algorithm.core.fields import AnyConfig, Block, Finite, Positive, Share, Whole, option

_OTHER_ROLLOUT = "fixed: the checkpoint holds an unfinished rollout of the old length"
_OTHER_MOMENTS = "fixed: the optimizer's state would mean something else"
_LONGEST = "Clip gradient norms to this. null: no clipping."
_TF_RMS = "RMSprop as in TensorFlow, with epsilon inside the root. false: as in PyTorch."
_VTRACE = "With actors: correct advantages for older weights. false: drop segments more than one version old."


class RolloutConfig(Block):
    """Keys of every family that learns from rollouts."""

    rollout_step: Whole = option(
        2048,
        "Steps per environment in a rollout.",
        ge=1,
        resume=_OTHER_ROLLOUT,
    )
    learning_rate: Finite = option(0.0003, "Learning rate.", gt=0)
    entropy_coef: Finite = option(0.0, "Entropy coefficient in the loss.", ge=0)

    @property
    def adam_rate(self) -> float:
        """Learning rate of Adam, which trains the networks of extensions and clones."""
        return self.learning_rate


class OnPolicyConfig(RolloutConfig):
    """Keys of the families that learn from the last rollout alone."""

    sequence_step: Whole = option(
        32,
        "With a memory: length of the sequences a rollout is cut into. At most rollout_step.",
        ge=2,
    )
    shared: bool = option(
        True,
        "Policy and value function share the encoder. false: one each.",
        resume="fixed: one of the encoders would be untrained",
    )
    gae_lambda: Finite = option(
        0.95,
        "GAE λ. 1: full returns. 0: one step.",
        ge=0,
        le=1,
    )
    value_coef: Finite = option(0.5, "Coefficient of (V − R)² in the loss.", ge=0)

    @property
    def sequence(self) -> int:
        """Steps of a sequence with a memory: at most those of an environment in a rollout."""
        return min(self.sequence_step, self.rollout_step)


class PpoConfig(OnPolicyConfig):
    """Proximal policy optimisation (Schulman et al. 2017, arXiv 1707.06347)."""

    max_grad_norm: Positive | None = option(0.5, _LONGEST)
    use_vtrace: bool = option(True, _VTRACE)
    num_epoch: Whole = option(10, "Epochs per rollout.", ge=1)
    num_minibatch: Whole = option(32, "Minibatches per epoch. Each is one update.", ge=1)
    clip: Positive = option(0.2, "Clip range of the probability ratio.")
    clip_schedule: Literal["constant", "linear"] = option(
        "constant", "linear: clip decays to 0 at max_step. Constant without a max_step."
    )
    clip_value: Positive | None = option(None, "Clip range of the value function. null: no clipping.")
    normalise_advantage: Literal["minibatch", "rollout", "none"] = option(
        "minibatch", "Normalize advantages over each minibatch, over the rollout, or not at all."
    )
    target_kl: Positive | None = option(
        None, "End a rollout's updates once the KL divergence exceeds 1.5 times this. null: never."
    )


class OneUpdateConfig(OnPolicyConfig):
    """Keys of the families that learn from a rollout once, as one batch."""

    rollout_step: Whole = option(
        20,
        "Steps per environment in a rollout.",
        ge=1,
        resume=_OTHER_ROLLOUT,
    )
    gae_lambda: Finite = option(1.0, "GAE λ. 1: full returns. 0: one step.", ge=0, le=1)
    entropy_coef: Finite = option(0.01, "Entropy coefficient in the loss.", ge=0)

    # The keys of PPO that a single update makes moot: its ratios are 1.
    num_epoch: ClassVar[int] = 1
    num_minibatch: ClassVar[int] = 1
    clip: ClassVar[float] = math.inf
    clip_schedule: ClassVar[Literal["constant"]] = "constant"
    clip_value: ClassVar[None] = None
    normalise_advantage: ClassVar[Literal["none"]] = "none"
    target_kl: ClassVar[None] = None


class A2cConfig(OneUpdateConfig):
    """Advantage actor-critic: the synchronous form of A3C (Mnih et al. 2016, arXiv 1602.01783)."""

    rollout_step: Whole = option(
        5,
        "Steps per environment in a rollout.",
        ge=1,
        resume=_OTHER_ROLLOUT,
    )
    learning_rate: Finite = option(0.0007, "Learning rate.", gt=0)
    max_grad_norm: Positive | None = option(0.5, _LONGEST)
    use_tf_rms: bool = option(True, _TF_RMS, resume=_OTHER_MOMENTS)
    use_vtrace: bool = option(True, _VTRACE)


class A3cConfig(OneUpdateConfig):
    """Asynchronous advantage actor-critic (Mnih et al. 2016, arXiv 1602.01783)."""

    num_processes: Whole = option(
        2,
        "Processes that update the same networks asynchronously, one environment each. 1: A2C.",
        ge=1,
        resume="free: another number of workers starts new episodes",
    )
    learning_rate: Finite = option(0.0007, "Learning rate.", gt=0)
    max_grad_norm: Positive | None = option(40.0, _LONGEST)
    use_tf_rms: bool = option(True, _TF_RMS, resume=_OTHER_MOMENTS)
    use_vtrace: ClassVar[bool] = False  # every worker learns from its own rollouts alone


class AcktrConfig(OneUpdateConfig):
    """Actor-critic with Kronecker-factored trust region (Wu et al. 2017, arXiv 1708.05144)."""

    learning_rate: Finite = option(0.25, "Largest learning rate. kl_clip reduces it.", gt=0)
    kl_clip: Positive = option(
        0.001, "Trust region: about twice the KL divergence that one update may cause."
    )
    damping: Positive = option(
        0.001, "Added to the curvature. Larger: shorter steps, closer to plain gradient descent."
    )
    stat_decay: Share = option(0.99, "Decay of the curvature's running means.")
    momentum: Share = option(0.9, "Momentum of the steps.")
    inverse_every: Whole = option(10, "Updates between inversions of the curvature.", ge=1)

    max_grad_norm: ClassVar[None] = None  # the length of a step is limited by kl_clip
    use_vtrace: ClassVar[bool] = False  # no other process acts

    @property
    @override
    def adam_rate(self) -> float:
        """Learning rate of Adam, which trains the networks of extensions and clones."""
        return 3e-4


OwnConfig: TypeAlias = PpoConfig | A2cConfig | A3cConfig | AcktrConfig

BLOCKS = {"PPO": "ppo_config", "A2C": "a2c_config", "A3C": "a3c_config", "ACKTR": "acktr_config"}
"""Name of the family -> its block of keys."""

CLASSES: dict[str, type[OwnConfig]] = {
    "PPO": PpoConfig,
    "A2C": A2cConfig,
    "A3C": A3cConfig,
    "ACKTR": AcktrConfig,
}
"""Name of the family -> class of its block of keys."""


def processes(config: AnyConfig) -> int:
    """Return the number of processes that train an agent: ``num_processes`` of A3C, else 1."""
    keys = own_block(config)
    return keys.num_processes if isinstance(keys, A3cConfig) else 1


def own_block(config: AnyConfig) -> OwnConfig:
    """Return the block of keys of the family that a configuration chooses."""
    block: OwnConfig = getattr(config, BLOCKS[config.algorithm])
    return block
