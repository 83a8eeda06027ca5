"""The keys of ``sac_config`` that every off-policy algorithm has. Imports no torch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Strict
from typing_extensions import override

from algorithm.agents.off_policy import rules
from algorithm.agents.run_config import OTHER_NETWORKS, RunConfig
from algorithm.core.fields import (
    AnyConfig,
    Contradiction,
    Finite,
    Positive,
    Share,
    Whole,
    option,
)

_OTHER_REPLAY = "fixed: the replay keeps other numbers with its rows"


def _held_otherwise(old: AnyConfig, new: AnyConfig) -> str:
    """Return the effect of another ``noise_repeat``: agents carry noise only where it is held."""
    if (old.run.noise_repeat > 1) == (new.run.noise_repeat > 1):
        return "free: for noise that is drawn from now on"
    return "free: the open episodes end as truncated"


class OffPolicyConfig(RunConfig):
    """Keys of learning from a replay by critics."""

    use_replay_buffer: bool = option(
        True,
        "false: every window of new data is used once, in the order of its making, one update for each full "
        "batch; replay_ratio and priorities then mean nothing.",
        resume=_OTHER_REPLAY,
    )
    use_priority: bool = option(
        True,
        "Sample by TD error, with importance-sampling weights. false: uniformly, all weights 1.",
        resume=_OTHER_REPLAY,
    )
    replay_ratio: Finite = option(
        1.0,
        "Gradient updates per environment step, whatever the number of environments. Usual: 1; REDQ: 20.",
        gt=0,
        resume="free: for the steps from now on",
    )
    start_repeat_c: Finite = option(
        16.0,
        "Mean number of steps, a geometric one, that a random continuous action of start_step is held. 1: a "
        "fresh one at each step.",
        ge=1,
        shared=True,
        resume="free: for random actions from now on",
    )
    start_repeat_d: Finite = option(
        4.0,
        "The same of random discrete actions.",
        ge=1,
        shared=True,
        resume="free: for random actions from now on",
    )
    noise_repeat: Whole = option(
        1,
        "The normal noise of an agent's continuous action is held for n steps, P(n) ∝ 1/n², n at most this. "
        "FlashSAC: 16, on average 2.1. 1: fresh at each step.",
        ge=1,
        le=1000,
        shared=True,
        resume=_held_otherwise,
    )

    ensemble_q_num: Whole = option(
        2, "Number of critics. Usual: 2; REDQ: 10.", ge=1, resume=OTHER_NETWORKS, shared=True
    )
    ensemble_q_sample: Whole = option(
        2, "Number of target critics, drawn anew for each update, whose minimum is the target's value.", ge=1
    )

    ensemble_q_reduce: Literal["min", "mean"] = option(
        "min",
        "What a target takes of the drawn critics, and the policy of all where all are drawn. mean: for "
        "discrete actions, whose values the minimum makes too low.",
    )

    learn_step: Whole = option(
        1, "Learned steps of a window, after the burn-in. With memory: 10 to 40.", ge=1, shared=True
    )
    refresh_carry: bool = option(
        False,
        "Overwrite the stored states of a recurrent memory by those of the last update that saw them.",
    )
    n_step: Whole = option(3, "Steps of reward in a target before it bootstraps. Usual: 1 to 5.", ge=1)

    batch_size: Whole = option(256, "Windows per gradient update.", ge=1)

    tau: Finite = option(
        0.01, "How far target networks move towards the online ones at each of their updates.", gt=0, le=1
    )
    update_target_per_step: Whole = option(1, "Gradient updates between two updates of the targets.", ge=1)
    use_target_network: bool = option(
        True,
        "Targets come from slowly following copies of encoder and critics. false: from these themselves, "
        "which needs batch norm in the critics (CrossQ).",
        resume="fixed: a checkpoint holds target networks or none",
    )
    policy_update_per_step: Whole = option(
        1,
        "Gradient updates of the critics for one of the policy and its temperature. 3 takes 29 % less time.",
        ge=1,
        resume="free: for the updates from now on",
    )

    learning_rate: Finite = option(0.0007, "Step size of networks. Usual: 1e-4 to 1e-3.", gt=0)
    encoder_learning_rate: Positive | None = option(
        None,
        "Step size of ModelRep. With a recurrent memory: a third of learning_rate and less. null: "
        "learning_rate.",
    )
    adam_beta_1: Finite = option(
        0.9, "Decay of Adam's mean of gradients, in every optimiser. CrossQ: 0.5.", ge=0, lt=1
    )
    weight_decay: Finite = option(
        0.0,
        "Share of the weight matrices of critics, encoder and policy that each step takes away, times the "
        "step size (AdamW). SimBa: 0.01.",
        ge=0,
    )
    unit_weights: bool = option(
        False,
        "After each step every row of a layer in front of a batch norm is brought to length 1; so the step "
        "size stays what it is as weights would grow. With block: inverted all rows, and norms.",
        resume="free: running statistics are scaled along, so that outputs stay the same, but with block: "
        "inverted they change at once",
    )
    max_grad_norm: Positive | None = option(
        None,
        "Gradients of networks longer than this are shortened to it; those of temperatures stay.",
    )

    v_lambda: Finite = option(1.0, "V-trace: factor on the trace coefficients c.", ge=0, le=1)
    v_rho: Finite = option(1.0, "V-trace: the ratio in front of a step's TD error is clipped to this.", gt=0)
    v_c: Finite = option(1.0, "V-trace: the ratio in the trace is clipped to this; at most v_rho.", ge=0)
    clip_epsilon: Finite = option(
        0.0, "How far a critic may usefully move from its target critic in one update. 0 or less: off."
    )

    value_head: Literal["scalar", "quantile", "categorical"] = option(
        "scalar",
        "What a critic gives for a value: a number, quantiles of the return whose largest are dropped from "
        "targets (TQC), or a histogram of it (HL-Gauss).",
        resume=OTHER_NETWORKS,
        shared=True,
    )
    quantile_num: Whole = option(25, "Quantiles of a value.", ge=1, resume=OTHER_NETWORKS, shared=True)
    quantile_drop: Whole = option(
        2, "Largest quantiles that a target leaves out, for each of its critics.", ge=0
    )
    categorical_num: Whole = option(101, "Bins of a histogram.", ge=2, resume=OTHER_NETWORKS, shared=True)
    categorical_range: Finite = option(
        5.0,
        "Largest return, scaled by reward_scaling, that a histogram can hold; they reach from minus that on.",
        gt=0,
        resume="fixed: the critics have learned histograms of that range",
        shared=True,
    )
    categorical_sigma: Finite = option(
        0.75, "Standard deviation by which a histogram of a target is spread, in bins.", gt=0
    )
    categorical_target: Literal["gauss", "projected"] = option(
        "gauss",
        "What a histogram learns towards. gauss: a number, spread by a normal (HL-Gauss). projected: the "
        "whole histogram of the target critic with the smallest mean, moved (FlashSAC).",
    )

    use_n_step_is: bool = option(
        True, "Correct n-step targets by V-trace. false: plain n-step sums. No difference at n_step = 1."
    )

    use_add_with_td: bool = option(
        False,
        "New rows enter the replay with the priority of their own TD error; else with the largest.",
        resume="free: for rows that are new from now on",
    )
    action_noise: Annotated[tuple[Share, Share], Strict(False)] | None = option(
        None,
        "[lowest, highest] extra noise of actions while training, spread over the environments: standard "
        "deviation added to the continuous ones before tanh, share of random discrete ones.",
        shared=True,
    )

    @override
    def contradictions(self) -> Iterator[Contradiction]:
        """Yield the values of this block that exclude each other."""
        yield from rules.of_block(self)
