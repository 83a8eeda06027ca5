"""The keys of ``sac_config`` that every algorithm has. Imports no torch."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, Strict

from algorithm.core.fields import AnyConfig, Block, ExtensionEntry, Finite, Share, Whole, option, to_whole
from algorithm.keys.signals import sharing

MAX_SEED = 2**32 - 1
"""Largest seed that every library in use accepts."""

OTHER_NETWORKS = "fixed: the networks would differ from the trained ones"
OTHER_ROUNDING = "free: rounding may change, so the run is not bit-exact"


def _switch(value: object) -> object:
    """Convert a boolean to ``on`` or ``off``, which YAML reads as booleans."""
    return {True: "on", False: "off"}.get(value, value) if isinstance(value, bool) else value


def _new_context(old: AnyConfig, new: AnyConfig) -> str:
    """Return the effect of another ``burn_in_step``; attention was trained on a context of that length."""
    steps = old.run.burn_in_step
    if new.run.seq_encoder == "ATTN" and steps != new.run.burn_in_step:
        return f"fixed: attention was trained with burn_in_step {steps}"
    return "free"


def _new_gamma(old: AnyConfig, new: AnyConfig) -> str:
    """Return the effect of another ``gamma``, which may become equal to a signal's, or differ from it."""
    if sharing(old) != sharing(new):
        return "fixed: reward signals would share critics or values that are separate now"
    return "free: the critics must learn values for another horizon"


def _new_inputs(old: AnyConfig, new: AnyConfig) -> str:
    """Return the effect of another ``use_extra_data``, which sets the inputs of a transition model."""
    if new.run.use_prediction:
        return "fixed: the transition model would have different inputs than in training"
    return "free: it has no effect without use_prediction"


def _new_extensions(old: AnyConfig, new: AnyConfig) -> str:
    """Return the effect of other ``extensions``; the same ones may have other arguments."""
    before, now = ([name for entry in config.run.extensions for name in entry] for config in (old, new))
    if before != now:
        return "fixed: their networks and optimizer would differ from the trained ones"
    return "free: they are made with these arguments; networks of another size do not fit the checkpoint"


class RunConfig(Block):
    """Keys that all algorithms have, those of extensions among them; an algorithm may refuse some."""

    nn: str | None = option(
        "nn",
        "Python file with the networks, without .py: of the task's folder. null: default networks.",
        resume=OTHER_NETWORKS,
        shared=True,
    )
    seed: Annotated[int, Field(ge=0, le=MAX_SEED), BeforeValidator(to_whole)] | None = option(
        None,
        "Random seed. null: draw, print and save one.",
        resume="fixed: every random number of the run follows from it",
    )
    network_seed: Annotated[int, Field(ge=0, le=MAX_SEED), BeforeValidator(to_whole)] | None = option(
        None,
        "Seed of the initial networks. null: seed.",
        resume="free: the networks are already initialised",
    )
    threads: Whole = option(
        1, "PyTorch threads. 1 is best if other programs run too.", ge=1, resume=OTHER_ROUNDING
    )
    matmul_precision: Literal["auto", "highest", "high", "medium"] = option(
        "auto",
        "torch.set_float32_matmul_precision. auto: medium for large networks if the CPU rounds the same way.",
        resume=OTHER_ROUNDING,
    )
    compile: Annotated[Literal["off", "auto", "on"], BeforeValidator(_switch)] = option(
        "auto",
        "on: compile updates if possible (up to a minute). auto: only if 20,000 updates are due, after "
        "the first 5,000.",
        resume=OTHER_ROUNDING,
    )
    write_summary_per_step: Whole = option(1000, "Environment steps between rows of metrics.", ge=1)
    save_model_per_step: Whole = option(
        5000, "Environment steps between checkpoints.", ge=1, distributed_default=100_000
    )
    start_step: Whole = option(
        1000,
        "Steps with uniformly random actions before learning. 0: learn once there is a batch.",
        ge=0,
        resume="free: for random actions from now on; updates stay owed as they were",
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
        "Memory: RNN, or ATTN, which attends to this step and burn_in_step earlier ones per layer, with "
        "actions.",
        resume=OTHER_NETWORKS,
        shared=True,
    )
    burn_in_step: Whole = option(
        0,
        "RNN: steps that only rebuild the state before learned ones (R2D2); usual: 0 to 40. ATTN: how "
        "many steps back it attends.",
        ge=0,
        shared=True,
        resume=_new_context,
    )
    learning_rate_schedule: Literal["constant", "linear", "cosine"] = option(
        "constant",
        "Decay all learning rates until max_step. Constant without a max_step.",
        resume="free: as if set from the start",
    )
    learning_rate_hold: Whole = option(
        0,
        "Environment steps before a schedule starts to decay.",
        ge=0,
        resume="free: as if set from the start",
    )
    learning_rate_end: Share = option(
        0.0,
        "Final learning rate of a schedule as a share of the first. FlashSAC: 0.5.",
        resume="free: as if set from the start",
    )
    critic_observations: Annotated[tuple[str, ...], Strict(False)] = option(
        (),
        "Vector observations that only critics and values see. all: PettingZoo's, of all agents.",
        resume=OTHER_NETWORKS,
        shared=True,
    )
    use_normalization: bool = option(
        True,
        "Normalize vectors, and images of unknown range, by running mean and variance, clipped to ±5.",
        resume="fixed: the networks were trained with the old setting",
        shared=True,
    )
    reward_scaling: bool | Literal["auto"] = option(
        True,
        "Divide rewards by the running spread of discounted returns. TD errors and temperatures are "
        "scaled. auto: one factor, from the returns of random actions; none if these spread by 0.5 to 500.",
        resume="fixed: the critics learned values on the old scale",
    )

    siamese: Literal["ATC", "BYOL"] | None = option(
        None,
        "Train the encoder on two augmented views. ATC: match a later observation. BYOL: predict the "
        "target encoder's view.",
        resume="fixed: its networks and optimizer would differ from the trained ones",
    )
    siamese_use_q: bool = option(
        False, "With siamese: critics of augmented views also learn to match target critics of the originals."
    )
    siamese_use_adaptive: bool = option(
        False,
        "With siamese: apply its encoder gradient only if its cosine with the critics' gradient is positive.",
    )
    use_prediction: bool = option(
        False,
        "Also train a model of transitions, rewards and observations. Its gradient reaches the encoder.",
        resume=OTHER_NETWORKS,
    )
    transition_kl: Finite = option(
        0.8, "Weight of the KL divergence of the transition model from a standard normal.", ge=0
    )
    use_extra_data: bool = option(
        True,
        "Transition model also sees all observations, even ones ModelRep ignores. false: state and "
        "action only.",
        resume=_new_inputs,
    )
    curiosity: Literal["FORWARD", "INVERSE"] | None = option(
        None,
        "Bonus for what a model predicts badly. FORWARD: the next state. INVERSE: the action between two "
        "states.",
        resume="fixed: the optimizer either has state for the model or not",
    )
    curiosity_strength: Finite = option(
        1.0, "Factor on the bonus, which is first divided by its standard deviation.", ge=0
    )
    use_rnd: bool = option(
        False,
        "In training, sample several actions and choose the most novel one.",
        resume="fixed: the optimizer either has state for the model or not",
        shared=True,
    )
    rnd_n_sample: Whole = option(10, "Actions that use_rnd samples.", ge=1, shared=True)
    extensions: Annotated[tuple[ExtensionEntry, ...], Strict(False)] = option(
        (),
        "Your extensions: module:make, or {module:make: {kwargs}}.",
        resume=_new_extensions,
        shared=True,
        examples=[["module:make", {"module:make": {"argument": "value"}}]],
    )
