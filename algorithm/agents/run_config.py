"""The keys of ``sac_config`` that every algorithm has. Imports no torch."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, Strict

from algorithm.agents.config import sharing
from algorithm.core.fields import AnyConfig, Block, ExtensionEntry, Finite, Share, Whole, option, to_whole

MAX_SEED = 2**32 - 1
"""Largest seed that every library in use accepts."""

OTHER_NETWORKS = "fixed: the networks would be others than those that were trained"
OTHER_ROUNDING = "free: sums may be rounded otherwise, so the run is not bit for bit what it would have been"


def _switch(value: object) -> object:
    """Return ``on`` and ``off`` for what YAML makes of them."""
    return {True: "on", False: "off"}.get(value, value) if isinstance(value, bool) else value


def _new_context(old: AnyConfig, new: AnyConfig) -> str:
    """Return the effect of another ``burn_in_step``; attention was trained on a context of that length."""
    steps = old.run.burn_in_step
    if new.run.seq_encoder == "ATTN" and steps != new.run.burn_in_step:
        return f"fixed: attention was trained to see {steps} steps back, burn_in_step"
    return "free"


def _new_gamma(old: AnyConfig, new: AnyConfig) -> str:
    """Return the effect of another ``gamma``, which may become, or cease to be, that of a signal."""
    if sharing(old) != sharing(new):
        return "fixed: reward signals would share critics, or values, that they have for themselves"
    return "free: the critics have to learn values of another horizon"


def _new_inputs(old: AnyConfig, new: AnyConfig) -> str:
    """Return the effect of another ``use_extra_data``, which sets the inputs of a transition model."""
    if new.run.use_prediction:
        return "fixed: the transition model would have other inputs than it was trained with"
    return "free: without use_prediction it says nothing"


def _new_extensions(old: AnyConfig, new: AnyConfig) -> str:
    """Return the effect of other ``extensions``; the same ones may have other arguments."""
    before, now = ([name for entry in one.run.extensions for name in entry] for one in (old, new))
    if before != now:
        return "fixed: their networks and their optimiser would be others than those that were trained"
    return "free: they are made with these arguments; networks of another size do not fit the checkpoint"


class RunConfig(Block):
    """Keys of a run, and of its extensions: what each family has, or refuses."""

    nn: str | None = option(
        "nn",
        "File of the networks in the task's folder, without .py, or those of a package. null: the defaults.",
        resume=OTHER_NETWORKS,
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
        resume=OTHER_ROUNDING,
    )
    matmul_precision: Literal["auto", "highest", "high", "medium"] = option(
        "auto",
        "torch.set_float32_matmul_precision. auto: medium for large networks where a CPU rounds alike then.",
        resume=OTHER_ROUNDING,
    )
    compile: Annotated[Literal["off", "auto", "on"], BeforeValidator(_switch)] = option(
        "auto",
        "on: updates are compiled if they can be, for up to a minute. auto: behind 5,000, if 20,000 are due.",
        resume=OTHER_ROUNDING,
    )
    write_summary_per_step: Whole = option(1000, "Environment steps between two points of the curves.", ge=1)
    save_model_per_step: Whole = option(
        5000, "Environment steps between two checkpoints.", ge=1, distributed_default=100_000
    )
    start_step: Whole = option(
        1000,
        "Environment steps of uniformly random actions before learning begins. 0: it begins with a batch.",
        ge=0,
        resume="fixed: the updates that are owed are counted from it",
    )
    gamma: Finite = option(
        0.99,
        "Discount factor per step.",
        ge=0,
        le=1,
        resume=_new_gamma,
    )
    seq_encoder: Literal["RNN", "ATTN"] | None = option(
        None,
        "Memory of the representation: recurrent, or attention, whose layers see the current observation and "
        "the burn_in_step before it, with the actions between.",
        resume=OTHER_NETWORKS,
        shared=True,
    )
    burn_in_step: Whole = option(
        0,
        "RNN: steps at a window's start that only rebuild what is remembered (R2D2); usual: 0 to 40. ATTN: "
        "how many steps back attention sees, in training as while acting; as many as what matters lies back.",
        ge=0,
        shared=True,
        resume=_new_context,
    )
    learning_rate_schedule: Literal["constant", "linear", "cosine"] = option(
        "constant",
        "linear, cosine: all step sizes fall until max_step, on a straight line or along half a cosine.",
        resume="free: as if it had been so from the start: it falls from step 0 to max_step",
    )
    learning_rate_end: Share = option(
        0.0,
        "What is left of a falling step size at max_step, as a share of the first. FlashSAC: 0.5.",
        resume="free: as if it had been so from the start",
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
        resume=OTHER_NETWORKS,
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
    extensions: Annotated[tuple[ExtensionEntry, ...], Strict(False)] = option(
        (),
        "Extensions of installed packages, by name, or module:make; alone or as {Name: {kwargs}}.",
        resume=_new_extensions,
        shared=True,
        examples=[["name", "module:make", {"name": {"argument": "value"}}]],
        names="extensions",
    )
