"""Contradictions between the keys of SAC, and with other blocks; planned updates of a training."""

from __future__ import annotations

import math
from collections.abc import Iterator

from algorithm.core.fields import AnyConfig, Contradiction, contradicting

WORTH = 20_000
"""Planned updates from which ``compile: auto`` compiles, which takes as long as some thousand updates."""

SMALLEST_BATCH = 16
"""Smallest number of rows in a batch with which a batch norm is allowed."""

EAGER_FIRST = 5_000
"""Eager updates before the compiled ones with ``compile: auto``: a training may end early, at success."""


def planned_updates(sac: AnyConfig, max_step: float) -> float:
    """Return the updates of a training of ``max_step`` environment steps; infinite if that is negative."""
    each = sac.replay_ratio if sac.use_replay_buffer else 1 / sac.batch_size
    return float(each * (max_step if max_step >= 0 else math.inf))


def block_contradictions(sac: AnyConfig) -> Iterator[Contradiction]:
    """Yield the contradictions within ``sac_config``, such as V-trace without rho ≥ c (arXiv 1802.01561)."""
    low, high = sac.action_noise or (0.0, 0.0)
    yield from contradicting(
        (
            sac.ensemble_q_sample > sac.ensemble_q_num,
            ("ensemble_q_sample", "ensemble_q_num"),
            f"{sac.ensemble_q_sample} critics cannot be drawn from {sac.ensemble_q_num}",
            "lower ensemble_q_sample or raise ensemble_q_num",
        ),
        (
            sac.v_rho < sac.v_c,
            ("v_rho", "v_c"),
            f"{sac.v_rho:g} is below v_c = {sac.v_c:g}: V-trace needs v_rho ≥ v_c",
            "raise v_rho or lower v_c",
        ),
        (
            low > high,
            ("action_noise",),
            f"the lowest noise {low:g} is above the highest {high:g}",
            "write [lowest, highest]",
        ),
    )
    yield from _of_memory(sac)
    yield from _of_extensions(sac)
    yield from _of_values(sac)
    yield from contradicting(
        (
            sac.use_add_with_td and not (sac.use_priority and sac.use_replay_buffer),
            ("use_add_with_td", "use_priority", "use_replay_buffer"),
            "the TD error at insertion is used as the priority, and there are no priorities",
            "turn use_add_with_td off, or use_priority and use_replay_buffer on",
        )
    )


def _of_values(sac: AnyConfig) -> Iterator[Contradiction]:
    clips, no_target = sac.clip_epsilon > 0, not sac.use_target_network
    yield from contradicting(
        (
            no_target and clips,
            ("use_target_network", "clip_epsilon"),
            "critics are clipped around target critics, and there are none",
            "set clip_epsilon: 0, or use_target_network: true",
        ),
        (
            no_target and sac.siamese,
            ("use_target_network", "siamese"),
            f"{sac.siamese} compares with a target encoder, and there is none",
            "set siamese: null, or use_target_network: true",
        ),
        (
            sac.value_head != "scalar" and clips,
            ("value_head", "clip_epsilon"),
            "only scalar critics can be clipped",
            "set clip_epsilon: 0, or value_head: scalar",
        ),
    )
    yield from _of_heads(sac)


def _of_heads(sac: AnyConfig) -> Iterator[Contradiction]:
    fields = type(sac).model_fields
    for key in (name for name in fields if name.startswith(("quantile_", "categorical_"))):
        head = key.partition("_")[0]
        if getattr(sac, key) != fields[key].default and sac.value_head != head:
            yield Contradiction(
                (key, "value_head"),
                f"it is for {head} critics, and these are {sac.value_head}",
                f"set value_head: {head}, or leave {key} out",
            )
    yield from contradicting(
        (
            sac.value_head == "quantile" and sac.quantile_drop >= sac.quantile_num,
            ("quantile_drop", "quantile_num"),
            f"dropping {sac.quantile_drop} of {sac.quantile_num} quantiles leaves none",
            "lower quantile_drop or raise quantile_num",
        ),
        (
            sac.value_head == "categorical" and sac.reward_scaling is not True,
            ("value_head", "reward_scaling"),
            "a histogram has a fixed range, which unscaled returns do not fit",
            "set reward_scaling: true, or another value_head",
        ),
    )


def _of_extensions(sac: AnyConfig) -> Iterator[Contradiction]:
    for key in ("siamese_use_q", "siamese_use_adaptive"):
        yield from contradicting(
            (
                getattr(sac, key) and sac.siamese is None,
                (key, "siamese"),
                f"{key} changes how siamese trains the representation, and siamese is null",
                f"set siamese to ATC or BYOL, or turn {key} off",
            ),
        )
    yield from contradicting(
        (
            sac.use_rnd and sac.rnd_n_sample == 1,
            ("use_rnd", "rnd_n_sample"),
            "with one sampled action there is nothing to choose from",
            "raise rnd_n_sample, or turn use_rnd off",
        ),
    )


def _of_memory(sac: AnyConfig) -> Iterator[Contradiction]:
    key = "burn_in_step" if sac.burn_in_step > 0 else "learn_step"
    yield from contradicting(
        (
            sac.seq_encoder is None and (sac.burn_in_step > 0 or sac.learn_step > 1),
            (key, "seq_encoder"),
            f"{getattr(sac, key)} steps for a memory, and seq_encoder is null",
            f"set seq_encoder to RNN or ATTN, or {key} to {int(key == 'learn_step')}",
        ),
        (
            sac.refresh_carry and sac.seq_encoder != "RNN",
            ("refresh_carry", "seq_encoder"),
            "only a recurrent memory stores its state",
            "set seq_encoder to RNN, or turn refresh_carry off",
        ),
        (
            sac.seq_encoder == "ATTN" and sac.burn_in_step == 0,
            ("burn_in_step", "seq_encoder"),
            "attention sees burn_in_step steps back, so with 0 it sees no past",
            "set burn_in_step to how many steps back attention should see, or seq_encoder to RNN or null",
        ),
    )


def contradictions(config: AnyConfig) -> Iterator[Contradiction]:
    """Yield the contradictions between SAC's keys and other blocks, with dotted keys from the top level."""
    sac, capacity = config.sac_config, config.replay_config.capacity
    window = sac.burn_in_step + sac.learn_step + sac.n_step - 1
    longest = max(("n_step", "learn_step", "burn_in_step"), key=lambda name: getattr(sac, name))
    yield from contradicting(
        (
            capacity <= sac.batch_size,
            ("replay_config.capacity", "sac_config.batch_size"),
            f"{capacity} rows hold at most {capacity - 1} transitions, less than a batch of {sac.batch_size}",
            "raise capacity or lower batch_size",
        ),
        (
            config.base_config.noise_increasing_rate > 0 and sac.action_noise is not None,
            ("base_config.noise_increasing_rate", "sac_config.action_noise"),
            "both set the noise of actors",
            "set one of them",
        ),
        (
            capacity <= window,
            ("replay_config.capacity", f"sac_config.{longest}"),
            f"{capacity} rows cannot hold a window of {window} steps (burn_in_step, learn_step, n_step)",
            f"raise capacity or lower {longest}",
        ),
    )
    yield from _of_hindsight(config)
    yield from _of_samplers(config)


def _of_hindsight(config: AnyConfig) -> Iterator[Contradiction]:
    asked = config.replay_config.her_ratio not in ("auto", 0)
    yield from contradicting(
        (
            asked and not config.sac_config.use_replay_buffer,
            ("replay_config.her_ratio", "sac_config.use_replay_buffer"),
            "each window is used once, so relabeling would lose its own goal",
            "set use_replay_buffer: true, or leave her_ratio out",
        ),
        (
            asked and config.demonstrations.offline,
            ("replay_config.her_ratio", "demonstrations.offline"),
            "offline training has no replay, and demonstrations keep their goals",
            "leave one of them out",
        ),
    )


def _of_samplers(config: AnyConfig) -> Iterator[Contradiction]:
    has_sampler, keys = config.replay_config.sampler is not None, config.sac_config
    yield from contradicting(
        (
            has_sampler and keys.use_priority,
            ("replay_config.sampler", "sac_config.use_priority"),
            "both choose how windows are drawn",
            "set use_priority: false",
        ),
        (
            has_sampler and not keys.use_replay_buffer,
            ("replay_config.sampler", "sac_config.use_replay_buffer"),
            "each window is used once, in order",
            "set use_replay_buffer: true",
        ),
        (
            has_sampler and config.demonstrations.offline,
            ("replay_config.sampler", "demonstrations.offline"),
            "offline training has no replay",
            "leave one of them out",
        ),
    )


def misplaced(algorithm: str, block: str, key: str) -> tuple[str, str] | None:
    """Return why a key of a block has no effect with SAC, and what to do; None if it has an effect."""
    remedy = "SAC uses action-value critics, nn_config.q", "leave it out"
    return remedy if (block, key) == ("nn_config", "v") else None
