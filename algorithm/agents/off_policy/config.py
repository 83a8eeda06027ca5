"""The keys of ``sac_config`` that every off-policy algorithm has. Imports no torch."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Strict

from algorithm.agents.off_policy import rules
from algorithm.core.fields import (
    Finite,
    Positive,
    Share,
    Whole,
    option,
)
from algorithm.keys.run import OTHER_NETWORKS, RunConfig

_OTHER_REPLAY = "fixed: the replay stores different values per row"


class OffPolicyConfig(RunConfig):
    """Shared keys of algorithms that learn from a replay by critics."""

    use_replay_buffer: bool = option(
        True,
        "false: use each new window once, in order. replay_ratio and priorities have no effect.",
        resume=_OTHER_REPLAY,
    )
    use_priority: bool = option(
        True,
        "Prioritized replay with importance-sampling weights. false: uniform.",
        resume=_OTHER_REPLAY,
    )
    replay_ratio: Finite = option(
        1.0,
        "Updates per environment step, for any n_envs. Usual: 1; REDQ: 20.",
        gt=0,
        resume="free: for the steps from now on",
    )
    start_repeat_c: Finite = option(
        16.0,
        "Mean steps to hold a random continuous action of start_step. Half of its numbers are at a bound "
        "then. 1: no holding, uniform.",
        ge=1,
        shared=True,
        resume="free: for random actions from now on",
    )
    start_repeat_d: Finite = option(
        4.0,
        "Mean steps to hold a random discrete action of start_step. 1: no holding.",
        ge=1,
        shared=True,
        resume="free: for random actions from now on",
    )

    ensemble_q_num: Whole = option(
        2, "Number of critics. Usual: 2; REDQ: 10.", ge=1, resume=OTHER_NETWORKS, shared=True
    )
    ensemble_q_sample: Whole = option(
        2, "Target critics drawn for each update, which ensemble_q_reduce combines.", ge=1
    )

    ensemble_q_reduce: Literal["min", "mean"] = option(
        "min",
        "How targets combine critics, and the policy too if all are drawn. min: safe from values that grow. "
        "mean: explores more.",
    )

    learn_step: Whole = option(
        1, "Steps per window to learn from, after the burn-in. With memory: 10 to 40.", ge=1, shared=True
    )
    refresh_carry: bool = option(
        False,
        "Overwrite stored states of a recurrent memory with those of the update.",
    )
    n_step: Whole = option(3, "Steps before the target bootstraps. Usual: 1 to 5.", ge=1)

    batch_size: Whole = option(256, "Windows per update.", ge=1)

    tau: Finite = option(0.01, "Soft update coefficient of target networks.", gt=0, le=1)
    update_target_per_step: Whole = option(1, "Updates between target network updates.", ge=1)
    use_target_network: bool = option(
        True,
        "false: targets use the online networks. Then the critics need batch norm (CrossQ).",
        resume="fixed: the checkpoint has target networks, or has none",
    )
    policy_update_per_step: Whole = option(
        1,
        "Critic updates per update of policy and temperature. 3 saves 29 % of the time.",
        ge=1,
        resume="free: for the updates from now on",
    )

    learning_rate: Finite = option(0.0007, "Learning rate. Usual: 1e-4 to 1e-3.", gt=0)
    adam_beta_1: Finite = option(0.9, "Adam's beta 1 in every optimizer. CrossQ: 0.5.", ge=0, lt=1)
    weight_decay: Finite = option(
        0.0,
        "AdamW weight decay for weight matrices of critics, encoder and policy. SimBa: 0.01.",
        ge=0,
    )
    max_grad_norm: Positive | None = option(
        None,
        "Clip gradient norms to this, but not those of temperatures.",
    )

    v_lambda: Finite = option(1.0, "V-trace: factor on the trace coefficients c.", ge=0, le=1)
    v_rho: Finite = option(1.0, "V-trace: clips the ratio that weights a step's TD error.", gt=0)
    v_c: Finite = option(1.0, "V-trace: clips the ratio in the trace. At most v_rho.", ge=0)
    clip_epsilon: Finite = option(
        0.0,
        "Clip critic predictions to within this of the target critic's (PPO's value clip). 0 or less: off.",
    )

    value_head: Literal["scalar", "quantile", "categorical"] = option(
        "scalar",
        "Critic output: a number, quantiles of the return (TQC), or a histogram of it (HL-Gauss).",
        resume=OTHER_NETWORKS,
        shared=True,
    )
    quantile_num: Whole = option(25, "Quantiles per value.", ge=1, resume=OTHER_NETWORKS, shared=True)
    quantile_drop: Whole = option(2, "Number of largest quantiles dropped from a target, per critic.", ge=0)
    categorical_num: Whole = option(101, "Bins of the histogram.", ge=2, resume=OTHER_NETWORKS, shared=True)
    categorical_range: Finite = option(
        5.0,
        "The histogram covers returns from minus this to plus this, after reward_scaling.",
        gt=0,
        resume="fixed: the critics have learned histograms of that range",
        shared=True,
    )
    categorical_sigma: Finite = option(
        0.75, "HL-Gauss: standard deviation of the target's normal, in bins.", gt=0
    )

    use_n_step_is: bool | Literal["sampled"] = option(
        True,
        "Correct n-step targets with V-trace. sampled: the same on average, with v_rho and v_c 1, from "
        "one of the n states. false: plain n-step sums. No effect if n_step is 1.",
    )

    use_add_with_td: bool = option(
        False,
        "New rows get the priority of their own TD error. false: the largest priority.",
        resume="free: for new rows from now on",
    )
    action_noise: Annotated[tuple[Share, Share], Strict(False)] | None = option(
        None,
        "[lowest, highest] noise, spread over environments: deviation before tanh, share of random "
        "discrete actions.",
        shared=True,
    )

    contradictions = rules.block_contradictions
