"""Contradictions between the keys of SAC, and with other blocks; effects of a resume; a training's length."""

from __future__ import annotations

import math
from collections.abc import Iterator

from algorithm.core.fields import AnyConfig, Contradiction

WORTH = 20_000
"""Planned updates from which ``compile: auto`` compiles: that takes as long as some thousand of them."""

EAGER_FIRST = 5_000
"""Updates of such a training before the compiled ones: one that ends early, at success, is not compiled."""


def planned_updates(sac: AnyConfig, max_step: float) -> float:
    """Return the updates of a training of so many environment steps; negative: it has no end."""
    each = sac.replay_ratio if sac.use_replay_buffer else 1 / sac.batch_size
    return float(each * (max_step if max_step >= 0 else math.inf))


def of_block(sac: AnyConfig) -> Iterator[Contradiction]:
    """Yield subsets that do not fit, V-trace without rho ≥ c (arXiv 1802.01561), empty intervals."""
    if sac.ensemble_q_sample > sac.ensemble_q_num:
        yield Contradiction(
            ("ensemble_q_sample", "ensemble_q_num"),
            f"{sac.ensemble_q_sample} critics cannot be drawn from the {sac.ensemble_q_num} there are",
            "lower ensemble_q_sample or raise ensemble_q_num",
        )
    if sac.v_rho < sac.v_c:
        yield Contradiction(
            ("v_rho", "v_c"),
            f"{sac.v_rho:g} is below v_c = {sac.v_c:g}: V-trace needs v_rho ≥ v_c",
            "raise v_rho or lower v_c",
        )
    if sac.action_noise is not None and sac.action_noise[0] > sac.action_noise[1]:
        yield Contradiction(
            ("action_noise",),
            f"the lowest noise {sac.action_noise[0]:g} is above the highest {sac.action_noise[1]:g}",
            "write [lowest, highest]",
        )
    yield from _of_memory(sac)
    yield from _of_siamese(sac)
    yield from _of_values(sac)
    if sac.use_rnd and sac.rnd_n_sample == 1:
        yield Contradiction(
            ("use_rnd", "rnd_n_sample"),
            "of one sampled action the most novel is that one, and nothing is chosen",
            "raise rnd_n_sample, or turn use_rnd off",
        )
    if sac.use_add_with_td and not (sac.use_priority and sac.use_replay_buffer):
        yield Contradiction(
            ("use_add_with_td", "use_priority", "use_replay_buffer"),
            "a TD error at insertion is a priority, and there are none",
            "turn use_add_with_td off, or use_priority and use_replay_buffer on",
        )


def _of_values(sac: AnyConfig) -> Iterator[Contradiction]:
    clips = sac.clip_epsilon > 0
    if not sac.use_target_network and clips:
        yield Contradiction(
            ("use_target_network", "clip_epsilon"),
            "critics are clipped around their targets, and there are none",
            "set clip_epsilon: 0, or use_target_network: true",
        )
    if not sac.use_target_network and sac.siamese:
        yield Contradiction(
            ("use_target_network", "siamese"),
            f"{sac.siamese} compares with a slowly following encoder, and there is none",
            "set siamese: null, or use_target_network: true",
        )
    if sac.value_head != "scalar" and clips:
        yield Contradiction(
            ("value_head", "clip_epsilon"),
            "the clip is of critics that give a number",
            "set clip_epsilon: 0, or value_head: scalar",
        )
    fields = type(sac).model_fields
    for key in (name for name in fields if name.startswith(("quantile_", "categorical_"))):
        head = key.partition("_")[0]
        if getattr(sac, key) != fields[key].default and sac.value_head != head:
            yield Contradiction(
                (key, "value_head"),
                f"it is of critics that give a {head} value, and these give a {sac.value_head} one",
                f"set value_head: {head}, or leave {key} out",
            )
    if sac.value_head == "quantile" and sac.quantile_drop >= sac.quantile_num:
        yield Contradiction(
            ("quantile_drop", "quantile_num"),
            f"of {sac.quantile_num} quantiles {sac.quantile_drop} are dropped: none is left",
            "lower quantile_drop or raise quantile_num",
        )
    if sac.value_head == "categorical" and not sac.reward_scaling:
        yield Contradiction(
            ("value_head", "reward_scaling"),
            "a histogram has a fixed range, and returns as they come fit none",
            "set reward_scaling: true, or another value_head",
        )


def _of_siamese(sac: AnyConfig) -> Iterator[Contradiction]:
    for key in ("siamese_use_q", "siamese_use_adaptive"):
        if getattr(sac, key) and sac.siamese is None:
            yield Contradiction(
                (key, "siamese"),
                f"{key} changes how siamese trains the representation, and siamese is null",
                f"set siamese to ATC or BYOL, or turn {key} off",
            )


def _of_memory(sac: AnyConfig) -> Iterator[Contradiction]:
    if sac.seq_encoder is None and (sac.burn_in_step > 0 or sac.learn_step > 1):
        key = "burn_in_step" if sac.burn_in_step > 0 else "learn_step"
        why = f"{getattr(sac, key)} steps of a memory, and seq_encoder is null: there is none"
        fix = f"set seq_encoder to RNN or ATTN, or {key} to {int(key == 'learn_step')}"
        yield Contradiction((key, "seq_encoder"), why, fix)
    if sac.refresh_carry and sac.seq_encoder != "RNN":
        yield Contradiction(
            ("refresh_carry", "seq_encoder"),
            "only a recurrent memory stores what it carries",
            "set seq_encoder to RNN, or turn refresh_carry off",
        )
    if sac.seq_encoder == "ATTN" and sac.burn_in_step == 0:
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
