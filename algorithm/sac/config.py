"""The keys of ``sac_config``. Imports no torch, since configuration is read before torch is loaded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, Strict
from typing_extensions import override

from algorithm.fields import AnyConfig, Block, Contradiction, Finite, Positive, Share, Whole, option, to_whole

MAX_SEED = 2**32 - 1
"""Largest seed that every library in use accepts."""

_OTHER_NETWORKS = "fixed: the networks would be others than those that were trained"
_OTHER_REPLAY = "fixed: the replay keeps other numbers with its rows"


def _new_context(old: AnyConfig, new: AnyConfig) -> str:
    """Return the effect of another ``burn_in_step``; attention was trained on a context of that length."""
    steps = old.sac_config.burn_in_step
    if new.sac_config.seq_encoder == "ATTN" and steps != new.sac_config.burn_in_step:
        return f"fixed: attention was trained to see {steps} steps back, burn_in_step"
    return "free"


def _new_inputs(old: AnyConfig, new: AnyConfig) -> str:
    """Return the effect of another ``use_extra_data``, which sets the inputs of a transition model."""
    if new.sac_config.use_prediction:
        return "fixed: the transition model would have other inputs than it was trained with"
    return "free: without use_prediction it says nothing"


class SacConfig(Block):
    """Soft Actor-Critic (Haarnoja et al. 2018, arXiv 1812.05905) and all options of its update."""

    nn: str | None = option(
        "nn",
        "File with the network classes, in the task's folder or below, without .py. null: the defaults.",
        resume=_OTHER_NETWORKS,
        shared=True,
    )
    seed: Annotated[int, Field(ge=0, le=MAX_SEED), BeforeValidator(to_whole)] | None = option(
        None,
        "Seed of everything random in a run. null: a fresh one is drawn, printed and saved.",
        resume="fixed: every random number of the run follows from it",
    )
    network_seed: Annotated[int, Field(ge=0, le=MAX_SEED), BeforeValidator(to_whole)] | None = option(
        None,
        "Seed of the first networks alone, with which runs of different seeds begin alike. null: that of the "
        "run.",
        new=True,
        resume="free: the networks have begun",
    )
    threads: Annotated[int, Field(ge=1), BeforeValidator(to_whole)] | Literal["auto"] = option(
        1,
        "Threads torch may use. One is fastest on a machine that does anything else besides.",
        new=True,
        reserved_values={"auto": "measured thread numbers"},
        resume="free: sums may be rounded otherwise, so the run is not bit for bit what it would have been",
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
        new=True,
        gt=0,
        resume="free: for the steps from now on",
    )
    start_step: Whole = option(
        1000,
        "Environment steps with uniformly random actions before learning begins. 0: learning begins as soon "
        "as one batch is there.",
        new=True,
        ge=0,
        resume="fixed: the updates that are owed are counted from it",
    )
    start_repeat_c: Finite = option(
        16.0,
        "Mean number of steps, a geometric one, that a random continuous action of start_step is held. 1: a "
        "fresh one at each step.",
        new=True,
        ge=1,
        shared=True,
        resume="free: for random actions from now on",
    )
    start_repeat_d: Finite = option(
        4.0,
        "The same of random discrete actions.",
        new=True,
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

    burn_in_step: Whole = option(
        0,
        "RNN: steps at a window's start that only rebuild what is remembered (R2D2); usual: 0 to 40. ATTN: "
        "how many steps back attention sees, in training as while acting; as many as what matters lies back.",
        ge=0,
        shared=True,
        resume=_new_context,
    )
    learn_step: Whole = option(
        1, "Learned steps of a window, after the burn-in. With memory: 10 to 40.", new=True, ge=1, shared=True
    )
    refresh_carry: bool = option(
        False,
        "Overwrite the stored states of a recurrent memory by those of the last update that saw them.",
        new=True,
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
        new=True,
    )
    target_d_alpha: Finite = option(
        0.6,
        "The discrete target entropy is this share of the largest possible one, log n of the n actions that "
        "are allowed. Larger: more random.",
        new=True,
        ge=0,
        le=1,
    )

    learning_rate: Finite = option(0.0007, "Step size of networks. Usual: 1e-4 to 1e-3.", gt=0)
    alpha_learning_rate: Positive | None = option(
        0.007,
        "Step size of the temperatures, ten times that of the networks, so that it hardly matters where they "
        "begin. null: learning_rate.",
        new=True,
    )
    learning_rate_schedule: Literal["constant", "linear"] = option(
        "constant",
        "linear: the step size falls to 0 at max_step.",
        new=True,
        resume="free: as if it had been so from the start: linear falls from step 0 to max_step",
    )
    max_grad_norm: Positive | None = option(
        None,
        "Gradients of networks longer than this are shortened to it; those of temperatures stay.",
        new=True,
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

    discrete_soft_target: bool = option(
        False,
        "Targets hold the entropy bonus of discrete actions too. false: the discrete policy alone has it, "
        "values are those of the rewards.",
        new=True,
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
        new=True,
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
        resume=_new_inputs,
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
        new=True,
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
        """Yield subsets that do not fit, V-trace without rho ≥ c (arXiv 1802.01561), empty intervals."""
        if self.ensemble_q_sample > self.ensemble_q_num:
            yield Contradiction(
                ("ensemble_q_sample", "ensemble_q_num"),
                f"{self.ensemble_q_sample} critics cannot be drawn from the {self.ensemble_q_num} there are",
                "lower ensemble_q_sample or raise ensemble_q_num",
            )
        if self.v_rho < self.v_c:
            yield Contradiction(
                ("v_rho", "v_c"),
                f"{self.v_rho:g} is below v_c = {self.v_c:g}: V-trace needs v_rho ≥ v_c",
                "raise v_rho or lower v_c",
            )
        if self.action_noise is not None and self.action_noise[0] > self.action_noise[1]:
            yield Contradiction(
                ("action_noise",),
                f"the lowest noise {self.action_noise[0]:g} is above the highest {self.action_noise[1]:g}",
                "write [lowest, highest]",
            )
        yield from self._contradictions_of_memory()
        yield from self._contradictions_of_siamese()
        if self.use_rnd and self.rnd_n_sample == 1:
            yield Contradiction(
                ("use_rnd", "rnd_n_sample"),
                "of one sampled action the most novel is that one, and nothing is chosen",
                "raise rnd_n_sample, or turn use_rnd off",
            )
        if self.use_add_with_td and not (self.use_priority and self.use_replay_buffer):
            yield Contradiction(
                ("use_add_with_td", "use_priority", "use_replay_buffer"),
                "a TD error at insertion is a priority, and there are none",
                "turn use_add_with_td off, or use_priority and use_replay_buffer on",
            )

    def _contradictions_of_siamese(self) -> Iterator[Contradiction]:
        for key in ("siamese_use_q", "siamese_use_adaptive"):
            if getattr(self, key) and self.siamese is None:
                yield Contradiction(
                    (key, "siamese"),
                    f"{key} changes how siamese trains the representation, and siamese is null",
                    f"set siamese to ATC or BYOL, or turn {key} off",
                )

    def _contradictions_of_memory(self) -> Iterator[Contradiction]:
        if self.seq_encoder is None and (self.burn_in_step > 0 or self.learn_step > 1):
            key = "burn_in_step" if self.burn_in_step > 0 else "learn_step"
            why = f"{getattr(self, key)} steps of a memory, and seq_encoder is null: there is none"
            fix = f"set seq_encoder to RNN or ATTN, or {key} to {int(key == 'learn_step')}"
            yield Contradiction((key, "seq_encoder"), why, fix)
        if self.refresh_carry and self.seq_encoder != "RNN":
            yield Contradiction(
                ("refresh_carry", "seq_encoder"),
                "only a recurrent memory stores what it carries",
                "set seq_encoder to RNN, or turn refresh_carry off",
            )
        if self.seq_encoder == "ATTN" and self.burn_in_step == 0:
            yield Contradiction(
                ("burn_in_step", "seq_encoder"),
                "attention sees burn_in_step steps back, and with 0 nothing of the past",
                "set burn_in_step to how many steps back attention shall see, or seq_encoder to RNN or null",
            )


def contradictions(config: AnyConfig) -> Iterator[Contradiction]:
    """Yield contradictions between SAC's keys and other blocks; all keys are dotted from the top level."""
    sac, capacity = config.sac_config, config.replay_config.capacity
    if capacity <= sac.batch_size:
        yield Contradiction(
            ("replay_config.capacity", "sac_config.batch_size"),
            f"{capacity} rows hold at most {capacity - 1} transitions, no batch of {sac.batch_size}",
            "raise capacity or lower batch_size",
        )
    if sac.learning_rate_schedule == "linear" and config.base_config.max_step < 0:
        yield Contradiction(
            ("sac_config.learning_rate_schedule", "base_config.max_step"),
            "the step size shall fall to 0 at max_step, and there is none",
            "set base_config.max_step",
        )
    if config.base_config.noise_increasing_rate > 0 and sac.action_noise is not None:
        yield Contradiction(
            ("base_config.noise_increasing_rate", "sac_config.action_noise"),
            "both say how noisy an actor is",
            "set one of them",
        )
    window = sac.burn_in_step + sac.learn_step + sac.n_step - 1
    if capacity <= window:
        key = max(("n_step", "learn_step", "burn_in_step"), key=lambda name: getattr(sac, name))
        yield Contradiction(
            ("replay_config.capacity", f"sac_config.{key}"),
            f"{capacity} rows cannot hold a window of {window} steps (burn_in_step, learn_step, n_step)",
            f"raise capacity or lower {key}",
        )


def misplaced(algorithm: str, block: str, key: str) -> tuple[str, str] | None:
    """Return why a key says nothing with SAC, and what to do; None where it says something."""
    found = "SAC has critics of actions, nn_config.q", "leave it out"
    return found if (block, key) == ("nn_config", "v") else None
