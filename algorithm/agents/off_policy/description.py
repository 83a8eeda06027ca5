"""Description of an agent for the start screen, and notices on its keys."""

from __future__ import annotations

import psutil

from algorithm.agents.off_policy.compiled_update import CompiledUpdate
from algorithm.agents.off_policy.config import OffPolicyConfig
from algorithm.agents.off_policy.objective import Objective
from algorithm.agents.off_policy.rules import EAGER_FIRST
from algorithm.agents.off_policy.update import OffPolicyLearner
from algorithm.agents.roles import AgentInputs
from algorithm.core.errors import COMMON_BLOCK
from algorithm.core.spec import AgentSpec
from algorithm.core.wording import Rows
from algorithm.keys.demonstrations import DemoConfig
from algorithm.nn.layers.augment import Augmentation
from algorithm.nn.return_scale import FirstReturnScale
from algorithm.replay.buffer import ReplayBuffer


def describe(
    inputs: AgentInputs,
    keys: OffPolicyConfig,
    learner: OffPolicyLearner,
    replay: ReplayBuffer,
    *,
    acting: str,
    compiled: CompiledUpdate | str,
) -> Rows:
    """Return lines on memory, replay, algorithm, acting and compilation for the start screen.

    acting:   library that computes actions, see :meth:`algorithm.actions.actor.Actor.way`
    compiled: the learner's compiled steps, or the reason why there are none
    """
    free = psutil.virtual_memory().available
    size = f"{replay.capacity:,} rows, {replay.nbytes / 2**20:,.0f} MB when full, {free / 2**20:,.0f} MB free"
    if inputs.config.demonstrations.offline:
        size = "none: nothing is stored offline"
    goals = [("goals", replay.relabel.text)] if replay.relabel.text else []
    algorithm = _algorithm(keys, learner.objective)
    rows = [*_memory(keys), ("replay", size), *goals, ("algorithm", algorithm), ("acting", acting)]
    if isinstance(learner.return_scale, FirstReturnScale):
        rows.append(("rewards", str(learner.return_scale)))
    if keys.compile != "off":
        late = f", after the first {EAGER_FIRST:,}" if keys.compile == "auto" else ""
        how = f"not compiled: {compiled}" if isinstance(compiled, str) else f"compiled{late}"
        rows.append(("updates", how))
    return rows


def _memory(keys: OffPolicyConfig) -> Rows:
    """Return a row on the agent's memory; no row without memory."""
    burn_in, learn = keys.burn_in_step, keys.learn_step
    if keys.seq_encoder is None:
        return []
    if keys.seq_encoder == "ATTN":
        return [("memory", f"attention to the last {burn_in} steps, {learn} learned per window")]
    states = "stored and refreshed" if keys.refresh_carry else "stored"
    return [("memory", f"recurrent, {burn_in} steps of burn-in, {learn} learned per window, states {states}")]


def _algorithm(keys: OffPolicyConfig, objective: Objective) -> str:
    kinds = {True: "V-trace", "sampled": "sampled V-trace", False: "uncorrected"}
    target = f"{keys.n_step}-step {kinds[keys.use_n_step_is]}" if keys.n_step > 1 else "1-step"
    critics = f"{keys.ensemble_q_reduce} of {keys.ensemble_q_num} critics"
    if not keys.use_target_network:
        critics += " without target networks (CrossQ)"
    data = f"each window once, batch {keys.batch_size}"
    if keys.use_replay_buffer:
        updates = f"{keys.replay_ratio:g} update{'s' if keys.replay_ratio != 1 else ''} a step"
        data = f"{'prioritised' if keys.use_priority else 'uniform'}, batch {keys.batch_size}, {updates}"
    return ", ".join([target, critics, data, *objective.words])


_DEFAULT = OffPolicyConfig.model_fields


def all_notices(
    inputs: AgentInputs,
    keys: OffPolicyConfig,
    learner: OffPolicyLearner,
    replay: ReplayBuffer,
    compiled: CompiledUpdate | str,
) -> list[str]:
    """Return lines on keys that are set and have no effect, or less than expected.

    compiled: as of :func:`describe`
    """
    config, base = inputs.config, inputs.config.base_config
    has_encoder = any(True for _ in learner.model.rep.parameters())
    lines = notices(inputs.spec, keys, learner.objective, has_encoder=has_encoder, n_envs=base.n_envs)
    if not (config.behavioral_cloning.pretrain or config.demonstrations.pretrain):
        lines = [*too_short(keys, config.demonstrations, base.max_step), *lines]
    lines += filter(None, [replay.relabel.notice])
    if config.replay_config.on_device and inputs.device.type == "cpu":
        lines.append("replay_config.on_device has no effect: the learner computes on the CPU")
    if keys.compile == "on" and isinstance(compiled, str):
        lines.append(f"{COMMON_BLOCK}.compile has no effect: {compiled}")
    return lines


def too_short(keys: OffPolicyConfig, shown: DemoConfig, max_step: int) -> list[str]:
    """Return a line if the training ends before its first update; max_step: −1 for no end."""
    before, why = keys.start_step, f"steps are random actions ({COMMON_BLOCK}.start_step)"
    if shown.warm_up_policy:
        before, why = shown.warm_up_policy, "steps fill the replay (demonstrations.warm_up_policy)"
    own_windows = keys.batch_size - int(shown.share * keys.batch_size)
    if shown.offline or not 0 < max_step <= max(before, own_windows - 1):
        return []
    first = f"the first {before:,} {why}"
    if before < own_windows:
        first = f"an update needs {own_windows:,} windows ({COMMON_BLOCK}.batch_size)"
    return [f"nothing will be learned: {first}, and the training ends at {max_step:,}"]


def notices(
    spec: AgentSpec, keys: OffPolicyConfig, objective: Objective, *, has_encoder: bool, n_envs: int
) -> list[str]:
    """Return a line for each key that is set and has no effect, or an unexpected one.

    has_encoder: whether the encoder has parameters; n_envs: number of environments
    """
    moot = [key for key in ("tau", "update_target_per_step") if getattr(keys, key) != _DEFAULT[key].default]
    table = (
        (
            not objective.learns and keys.policy_update_per_step > 1,
            "policy_update_per_step has no effect: there is no policy to update",
        ),
        (
            not keys.use_target_network and moot,
            f"{''.join(moot[:1])} has no effect: there are no target networks",
        ),
        (
            keys.n_step > 1 and keys.use_n_step_is == "sampled" and (keys.v_rho, keys.v_c) != (1.0, 1.0),
            "v_rho and v_c have no effect: use_n_step_is is sampled, which cuts ratios off at 1",
        ),
        (
            keys.seq_encoder == "RNN" and keys.learn_step == 1,
            "learn_step is 1: no gradient flows through time, so the memory learns little",
        ),
        (
            keys.seq_encoder == "ATTN" and keys.burn_in_step < keys.learn_step - 1,
            f"burn_in_step is {keys.burn_in_step}: attention sees the last {keys.burn_in_step + 1} "
            f"observations only (burn_in_step + 1), fewer than the {keys.learn_step} steps of learn_step; "
            "raise burn_in_step if earlier observations matter",
        ),
        (
            (due := round(keys.replay_ratio * n_envs)) >= 64 <= n_envs and keys.use_replay_buffer,
            f"replay_ratio is {keys.replay_ratio:g}: {due:,} updates follow each step of the {n_envs:,} "
            f"environments; {2 / n_envs:g} makes two, and --preset lanes suits 1,024 (docs/lanes.md)",
        ),
        *_of_extensions(spec, keys, has_encoder=has_encoder),
    )
    return [*objective.notices, *(f"{COMMON_BLOCK}.{text}" for holds, text in table if holds)]


def _of_extensions(
    spec: AgentSpec, keys: OffPolicyConfig, *, has_encoder: bool
) -> tuple[tuple[object, str], ...]:
    """Return (has no effect, notice) for each extension that depends on the encoder or the observations."""
    nothing = "has no effect: the encoder has nothing to learn (nn_config.rep.dense_depth is 0)"
    trains = "trains only the critics: the encoder has nothing to learn"
    looks = Augmentation(spec.obs, normalised=keys.use_normalization)
    return (
        (keys.siamese and not has_encoder, f"siamese {trains if keys.siamese_use_q else nothing}"),
        (
            keys.siamese == "BYOL" and not looks.changes_anything(),
            "siamese: BYOL compares two identical views, because no observation is an image or a "
            "real-valued vector; ATC compares with a later observation",
        ),
        (keys.use_prediction and not has_encoder, f"use_prediction {nothing}"),
    )
