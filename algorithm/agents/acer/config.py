"""The keys of ``acer_config``. Imports no torch."""

from __future__ import annotations

from algorithm.core.fields import Block, Finite, NotNegative, Positive, Share, Whole, option

BLOCKS = {"ACER": "acer_config"}
"""Family -> its block."""


class AcerConfig(Block):
    """Actor-critic with experience replay (Wang et al. 2017, arXiv 1611.01224)."""

    rollout_step: Whole = option(
        20,
        "Steps of each environment in a rollout, and of a window of the replay.",
        ge=2,
        resume="fixed: a rollout of that length has been begun, and is in the checkpoint",
    )
    capacity: Whole = option(
        50_000, "Rows of the replay; each episode takes one more than it has steps.", ge=1
    )
    start_step: Whole = option(10_000, "Transitions in the replay before it is learned from.", ge=0)
    replay_ratio: NotNegative = option(
        4.0, "Mean number of updates from the replay for one of the last rollout (Poisson). 0: none."
    )
    learning_rate: Finite = option(0.0007, "Step size of the networks.", gt=0)
    q_coef: NotNegative = option(0.5, "Weight of ½ (Q_ret − Q)² in the loss.")
    entropy_coef: NotNegative = option(0.001, "Weight of the policy's entropy in the loss.")
    max_grad_norm: Positive | None = option(
        40.0, "Gradients longer than this are shortened to it. null: none is."
    )
    ratio_max: Positive = option(
        10.0, "c, at which importance weights π/μ are cut off; what is cut off is corrected."
    )
    trust_region: Positive | None = option(
        1.0, "δ, largest slope of the KL divergence from the average policy along a step. null: any."
    )
    average_decay: Share = option(0.99, "Decay of the average policy's parameters for an update.")
