"""The keys of ``sac_config``. Imports no torch, since configuration is read before torch is loaded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, Strict
from typing_extensions import override

from algorithm.agents.sac import rules
from algorithm.core.fields import (
    Block,
    Contradiction,
    ExtensionEntry,
    Finite,
    Positive,
    Share,
    Whole,
    option,
    to_whole,
)

MAX_SEED = 2**32 - 1
"""Largest seed that every library in use accepts."""

_OTHER_NETWORKS = "fixed: the networks would be others than those that were trained"
_OTHER_REPLAY = "fixed: the replay keeps other numbers with its rows"
_OTHER_ROUNDING = "free: sums may be rounded otherwise, so the run is not bit for bit what it would have been"


def _switch(value: object) -> object:
    """Return ``on`` and ``off`` for what YAML makes of them."""
    return {True: "on", False: "off"}.get(value, value) if isinstance(value, bool) else value


class SacConfig(Block):
    """Soft Actor-Critic (Haarnoja et al. 2018, arXiv 1812.05905) and all options of its update."""

    nn: str | None = option(
        "nn",
        "File of the networks in the task's folder, without .py, or those of a package. null: the defaults.",
        resume=_OTHER_NETWORKS,
        shared=True,
        names="networks",
    )
    seed: Annotated[int, Field(ge=0, le=MAX_SEED), BeforeValidator(to_whole)] | None = option(
        None,
        "Seed of everything random in a run. null: a fresh one is drawn, printed and saved.",
        resume="fixed: every random number of the run follows from it",
    )
    network_seed: Annotated[int, Field(ge=0, le=MAX_SEED), BeforeValidator(to_whole)] | None = option(
        None,
        "Seed of the first networks alone, with which runs of other seeds begin alike. null: the run's.",
        resume="free: the networks have begun",
    )
    threads: Annotated[int, Field(ge=1), BeforeValidator(to_whole)] | Literal["auto"] = option(
        1,
        "Threads of torch. One is best on a machine that does anything else. auto: measured at the start.",
        resume=_OTHER_ROUNDING,
    )
    matmul_precision: Literal["auto", "highest", "high", "medium"] = option(
        "auto",
        "torch.set_float32_matmul_precision. auto: medium for large networks where a CPU rounds alike then.",
        resume=_OTHER_ROUNDING,
    )
    compile: Annotated[Literal["off", "auto", "on"], BeforeValidator(_switch)] = option(
        "auto",
        "on: updates are compiled if they can be, for up to a minute. auto: behind 5,000, if 20,000 are due.",
        resume=_OTHER_ROUNDING,
    )
    write_summary_per_step: Whole = option(1000, "Environment steps between two points of the curves.", ge=1)
    save_model_per_step: Whole = option(
        5000, "Environment steps between two checkpoints.", ge=1, distributed_default=100_000
    )

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
    start_step: Whole = option(
        1000,
        "Environment steps of uniformly random actions before learning begins. 0: it begins with a batch.",
        ge=0,
        resume="fixed: the updates that are owed are counted from it",
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

    ensemble_q_num: Whole = option(
        2, "Number of critics. Usual: 2; REDQ: 10.", ge=1, resume=_OTHER_NETWORKS, shared=True
    )
    ensemble_q_sample: Whole = option(
        2, "Number of target critics, drawn anew for each update, whose minimum is the target's value.", ge=1
    )

    ensemble_q_reduce: Literal["min", "mean"] = option(
        "min",
        "What a target takes of the drawn critics, and the policy of all where all are drawn. mean: for "
        "discrete actions, whose values the minimum makes too low.",
    )

    burn_in_step: Whole = option(
        0,
        "RNN: steps at a window's start that only rebuild what is remembered (R2D2); usual: 0 to 40. ATTN: "
        "how many steps back attention sees, in training as while acting; as many as what matters lies back.",
        ge=0,
        shared=True,
        resume=rules.new_context,
    )
    learn_step: Whole = option(
        1, "Learned steps of a window, after the burn-in. With memory: 10 to 40.", ge=1, shared=True
    )
    refresh_carry: bool = option(
        False,
        "Overwrite the stored states of a recurrent memory by those of the last update that saw them.",
    )
    n_step: Whole = option(3, "Steps of reward in a target before it bootstraps. Usual: 1 to 5.", ge=1)
    seq_encoder: Literal["RNN", "ATTN"] | None = option(
        None,
        "Memory of the representation: recurrent, or attention, whose layers see the current observation and "
        "the burn_in_step before it, with the actions between.",
        resume=_OTHER_NETWORKS,
        shared=True,
    )

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

    init_log_alpha: Finite = option(
        -4.6,
        "Natural logarithm of the entropy temperature at the start; -4.6 is a temperature of 0.01.",
        resume="fixed: it says where the temperature began, which is in the checkpoint",
    )
    use_auto_alpha: bool = option(
        True,
        "Learn the temperature towards a target entropy. false: it stays at exp(init_log_alpha).",
        resume="fixed: the temperature is either trained or not, and the optimiser has numbers for it",
    )
    target_c_alpha: Finite = option(
        1.0,
        "The continuous target entropy is minus this times the number of continuous actions. Larger: less "
        "random.",
    )
    target_d_alpha: Finite = option(
        0.6,
        "The discrete target entropy is this share of the largest possible one, log n of the n actions that "
        "are allowed. Larger: more random.",
        ge=0,
        le=1,
    )

    learning_rate: Finite = option(0.0007, "Step size of networks. Usual: 1e-4 to 1e-3.", gt=0)
    alpha_learning_rate: Positive | None = option(
        0.007,
        "Step size of the temperatures, ten times that of the networks, so that it hardly matters where they "
        "begin. null: learning_rate.",
    )
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
        "size stays what it is as weights would grow.",
        resume="free: running statistics are scaled along, so that outputs stay the same",
    )
    learning_rate_schedule: Literal["constant", "linear"] = option(
        "constant",
        "linear: the step size falls to 0 at max_step.",
        resume="free: as if it had been so from the start: linear falls from step 0 to max_step",
    )
    max_grad_norm: Positive | None = option(
        None,
        "Gradients of networks longer than this are shortened to it; those of temperatures stay.",
    )

    gamma: Finite = option(
        0.99,
        "Discount factor per step.",
        ge=0,
        le=1,
        resume="free: the critics have to learn values of another horizon",
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
        resume=_OTHER_NETWORKS,
        shared=True,
    )
    quantile_num: Whole = option(25, "Quantiles of a value.", ge=1, resume=_OTHER_NETWORKS, shared=True)
    quantile_drop: Whole = option(
        2, "Largest quantiles that a target leaves out, for each of its critics.", ge=0
    )
    categorical_num: Whole = option(101, "Bins of a histogram.", ge=2, resume=_OTHER_NETWORKS, shared=True)
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

    discrete_soft_target: bool = option(
        False,
        "Targets hold the entropy bonus of discrete actions too. false: the discrete policy alone has it, "
        "values are those of the rewards.",
    )
    discrete_dqn_like: bool = option(
        False,
        "Discrete actions are the greedy ones of the critic; there is no discrete policy.",
        resume="fixed: a discrete policy is either trained or not",
        shared=True,
    )
    discrete_dqn_epsilon: Finite = option(
        0.1,
        "Share of random actions with discrete_dqn_like, while training.",
        ge=0,
        le=1,
        shared=True,
    )
    use_n_step_is: bool = option(
        True, "Correct n-step targets by V-trace. false: plain n-step sums. No difference at n_step = 1."
    )

    siamese: Literal["ATC", "BYOL"] | None = option(
        None,
        "Train the representation on two augmented views of each window: ATC, which later observation "
        "belongs to this one; BYOL, how the target network sees the same one.",
        resume="fixed: its networks and their optimiser would be others than those that were trained",
    )
    siamese_use_q: bool = option(
        False, "With siamese: critics must also say of augmented observations what their targets say without."
    )
    siamese_use_adaptive: bool = option(
        False,
        "With siamese: the encoder gets its gradient only where the cosine with the critics' is positive.",
    )
    use_prediction: bool = option(
        False,
        "Train a model of transitions, rewards and observations beside, whose gradient the encoder gets too.",
        resume=_OTHER_NETWORKS,
    )
    transition_kl: Finite = option(
        0.8, "Weight of the KL divergence of the transition model from a standard normal.", ge=0
    )
    use_extra_data: bool = option(
        True,
        "The transition model sees the observations too, also those that ModelRep leaves out. false: state "
        "and action alone.",
        resume=rules.new_inputs,
    )
    curiosity: Literal["FORWARD", "INVERSE"] | None = option(
        None,
        "A bonus reward for what a model predicts badly: the state that follows, or the action between two.",
        resume="fixed: the model is either trained or not, and the optimiser has numbers for it",
    )
    curiosity_strength: Finite = option(
        1.0, "Factor on that bonus, which is in units of its own standard deviation.", ge=0
    )
    use_rnd: bool = option(
        False,
        "While training, take the most novel of several sampled actions.",
        resume="fixed: the model is either trained or not, and the optimiser has numbers for it",
        shared=True,
    )
    rnd_n_sample: Whole = option(10, "How many actions use_rnd samples.", ge=1, shared=True)
    extensions: Annotated[tuple[ExtensionEntry, ...], Strict(False)] = option(
        (),
        "Extensions of installed packages, by name, or module:make; alone or as {Name: {kwargs}}.",
        resume=rules.new_extensions,
        shared=True,
        examples=[["name", "module:make", {"name": {"argument": "value"}}]],
        names="extensions",
    )
    use_normalization: bool = option(
        True,
        "Normalise vector observations by running mean and variance, clipped to ±5.",
        resume="fixed: the networks have learned on what is normalised, or not",
        shared=True,
    )
    reward_scaling: bool = option(
        True,
        "Divide rewards by the running spread of the discounted returns, so that their unit does not matter. "
        "Values are shown in the unit of the rewards; TD errors and temperatures are scaled.",
        resume="fixed: the critics have learned values of the scaled rewards, or of those as they are",
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


contradictions, misplaced = rules.contradictions, rules.misplaced
