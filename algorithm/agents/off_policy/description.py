"""Description of an agent for the start screen."""

from __future__ import annotations

import psutil
import torch
from torch import Tensor, nn

from algorithm.agents.off_policy.config import OffPolicyConfig
from algorithm.agents.off_policy.variant import Heads
from algorithm.core.errors import RUN_BLOCK
from algorithm.core.spec import AgentSpec
from algorithm.core.wording import Rows
from algorithm.nn.layers.augment import Augmentation
from algorithm.nn.layers.norm import has_batch_norm
from algorithm.nn.learning.flat import weight_matrices
from algorithm.nn.normalise import vector_names
from algorithm.nn.protocols import Rep
from algorithm.replay.buffer import ReplayBuffer
from algorithm.replay.config import ReplayConfig

_UNITS = 256
"""Width of each of the two layers of the default networks."""


def describe(spec: AgentSpec, keys: OffPolicyConfig, heads: Heads, replay: ReplayBuffer) -> Rows:
    """Return lines on memory, replay and algorithm."""
    free = psutil.virtual_memory().available
    size = f"{replay.capacity:,} rows, {replay.nbytes / 2**20:,.0f} MB when full, {free / 2**20:,.0f} MB free"
    return [*_memory(keys), ("replay", size), ("algorithm", _algorithm(keys, spec, heads))]


@torch.no_grad()
def encoder_work(rep: Rep, spec: AgentSpec) -> int:
    """Return the multiplications of a representation on the CPU for one token.

    A weight is one factor for each place of its layer's output: one of a vector, all pixels of an image.
    """
    work = []

    def note(layer: nn.Module, _: object, out: object) -> None:
        for weight in layer.parameters(recurse=False):
            if weight.dim() > 1:
                places = out.numel() // len(weight) if isinstance(out, Tensor) else 1
                work.append(weight.numel() * places)

    hooks = [layer.register_forward_hook(note) for layer in rep.modules()]
    obs = {name: torch.from_numpy(value) for name, value in spec.obs.zeros(1, 1).items()}
    carry, exists = torch.zeros(1, *rep.stored_carry_shape), torch.ones(1, 1, dtype=torch.bool)
    rep(obs, torch.zeros(1, 1, spec.action.size), carry, exists)
    for hook in hooks:
        hook.remove()
    return sum(work)


def update_cost(
    spec: AgentSpec,
    keys: OffPolicyConfig,
    state_size: int,
    critic: nn.Module,
    policy: nn.Module,
    *,
    encoder: int,
) -> Rows:
    """Return a row on the multiplications of a step's updates, beside plain SAC's; none where they are alike.

    Plain SAC has no encoder: it learns from the states.

    state_size: S · critic: one of them · encoder: multiplications of a token
    """
    action, joint = spec.action, has_batch_norm(critic)
    sizes = [int(weight_matrices([network]).sum()) for network in (critic, policy)]
    ends = (
        (state_size + action.continuous, max(1, action.discrete)),
        (state_size, action.discrete + 2 * action.continuous),
    )
    plain = [_UNITS * (first + _UNITS + last) for first, last in ends]
    usual = OffPolicyConfig(n_step=1)  # otherwise the defaults, which are plain SAC
    rows, updates = keys.batch_size * keys.learn_step, keys.replay_ratio if keys.use_replay_buffer else 1.0
    encoding = encoder * _passes(keys)
    every = encoding + _multiplications(keys, *sizes, joint=joint)
    ratio = rows * every * updates / usual.batch_size / _multiplications(usual, *plain, joint=False)
    if abs(ratio - 1.0) < 0.05:
        return []
    what = "an update takes" if updates == 1.0 else f"{updates:g} updates a step take"
    times = f"{ratio:.{2 if ratio < 10 else 0}f} times the multiplications of one of plain SAC"
    share = f", {encoding / every:.0%} of them to encode observations" if encoding else ""
    return [("cost", f"{what} {times} (2 × {_UNITS} units, {usual.batch_size} rows){share}")]


def _passes(keys: OffPolicyConfig) -> float:
    """Return the encoder's passes of tokens for each learned one; see :mod:`algorithm.nn.encoding`."""
    tokens = keys.burn_in_step + keys.learn_step + keys.n_step
    backward = 2 * (tokens if keys.seq_encoder == "ATTN" else keys.learn_step)
    target = (tokens if keys.seq_encoder else tokens - 1) if keys.use_target_network else 0
    return (tokens + backward + target) / keys.learn_step


def _multiplications(keys: OffPolicyConfig, q: int, policy: int, *, joint: bool) -> float:
    """Return those of an update for each learned row: a backward pass costs as much as two forward passes.

    The policy's loss needs that half of the critics' backward pass alone that leads to its actions.
    """
    tokens = (keys.learn_step + keys.n_step - 1) / keys.learn_step  # behind the learned ones
    following = tokens if keys.use_n_step_is else 1.0
    every, drawn = q * keys.ensemble_q_num, q * keys.ensemble_q_sample
    seen = 1.0 + following if joint else 1.0
    targets = drawn * (1.0 + following if joint else following) if keys.use_target_network else 0.0
    critics = 3.0 * every * seen + targets
    return critics + policy * tokens + (3.0 * policy + 2.0 * every) / keys.policy_update_per_step


def _memory(keys: OffPolicyConfig) -> Rows:
    """Return a row on the agent's memory; none without memory."""
    burn_in, learn = keys.burn_in_step, keys.learn_step
    if keys.seq_encoder is None:
        return []
    if keys.seq_encoder == "ATTN":
        return [("memory", f"attention to the last {burn_in} steps, {learn} learned in a window")]
    states = "stored and refreshed" if keys.refresh_carry else "stored"
    return [
        ("memory", f"recurrent, {burn_in} steps of burn-in, {learn} learned in a window, states {states}")
    ]


def _algorithm(keys: OffPolicyConfig, spec: AgentSpec, heads: Heads) -> str:
    if keys.n_step == 1:
        target = "1-step"
    else:
        target = f"{keys.n_step}-step " + ("V-trace" if keys.use_n_step_is else "uncorrected")
    critics = _critics(keys)
    if not keys.use_replay_buffer:
        data = f"each window once, batch {keys.batch_size}"
    else:
        updates = f"{keys.replay_ratio:g} update{'s' if keys.replay_ratio != 1 else ''} a step"
        data = f"{'prioritised' if keys.use_priority else 'uniform'}, batch {keys.batch_size}, {updates}"
    parts = [target, critics, data, *heads.words]
    if keys.policy_update_per_step > 1:
        parts.append(f"a policy update every {keys.policy_update_per_step} of the critics")
    if keys.clip_epsilon > 0:
        parts.append(f"critic clipped at {keys.clip_epsilon:g}")
    if keys.use_normalization and vector_names(spec.obs):
        parts.append("normalised observations")
    if keys.reward_scaling:
        parts.append("scaled rewards")
    return ", ".join(parts)


def _critics(keys: OffPolicyConfig) -> str:
    drawn, every = keys.ensemble_q_sample, keys.ensemble_q_num
    critics = f"{keys.ensemble_q_reduce} of {every if drawn == every else f'{drawn} among {every}'} critics"
    if every == 1:
        critics = "one critic"
    if keys.value_head == "quantile":
        kept = f"{keys.quantile_num - keys.quantile_drop} of {keys.quantile_num} quantiles"
        critics = f"{kept} of {'one critic' if every == 1 else f'{every} critics'}"
    if keys.value_head == "categorical":
        critics += f", histograms of {keys.categorical_num} bins"
    if not keys.use_target_network:
        critics += ", no target networks"
    return critics


_DEFAULT = OffPolicyConfig.model_fields


def notices(
    spec: AgentSpec, keys: OffPolicyConfig, heads: Heads, *, has_encoder: bool, max_step: int
) -> list[str]:
    """Return a line for each key that is set and has no effect, or less than expected.

    max_step: at which the training ends; −1 for no end
    """
    found = []
    if 0 < max_step <= max(keys.start_step, keys.batch_size - 1):
        first = f"the first {keys.start_step:,} steps are random actions ({RUN_BLOCK}.start_step)"
        if keys.start_step < keys.batch_size:
            first = f"an update takes {keys.batch_size:,} windows ({RUN_BLOCK}.batch_size)"
        found.append(f"nothing will be learned: {first}, and the training ends at {max_step:,}")
    found += heads.notices
    if not heads.learns and keys.policy_update_per_step > 1:
        found.append(f"{RUN_BLOCK}.policy_update_per_step has no effect: there is no policy to update")
    moot = [key for key in ("tau", "update_target_per_step") if getattr(keys, key) != _DEFAULT[key].default]
    if not keys.use_target_network and moot:
        found.append(f"{RUN_BLOCK}.{moot[0]} has no effect: there are no target networks")
    if keys.encoder_learning_rate is not None and not has_encoder:
        found.append(f"{RUN_BLOCK}.encoder_learning_rate has no effect: the encoder has nothing to learn")
    if keys.seq_encoder == "RNN" and keys.learn_step == 1:
        found.append(f"{RUN_BLOCK}.learn_step is 1: no gradient goes through time, so little is remembered")
    if keys.seq_encoder == "ATTN" and keys.burn_in_step < keys.learn_step - 1:
        found.append(
            f"{RUN_BLOCK}.burn_in_step is {keys.burn_in_step}: attention sees the last "
            f"{keys.burn_in_step + 1} observations only (burn_in_step + 1), fewer than the "
            f"{keys.learn_step} steps of learn_step; raise burn_in_step where what matters lies further "
            "back"
        )
    return [*found, *_of_extensions(spec, keys, has_encoder=has_encoder)]


def on_device_notices(spec: AgentSpec, replay: ReplayConfig, device: torch.device) -> list[str]:
    """Return a line if ``replay_config.on_device`` is set and has no effect."""
    key = "replay_config.on_device has no effect:"
    if replay.on_device and device.type == "cpu":
        return [f"{key} the learner computes on the CPU, where the replay is"]
    plain = all(kind == "float32" for kind in spec.obs.dtypes) and max(spec.obs.stacks, default=1) == 1
    if replay.on_device and plain:
        return [f"{key} no observation is an image"]
    return []


def _of_extensions(spec: AgentSpec, keys: OffPolicyConfig, *, has_encoder: bool) -> list[str]:
    """Return a line for each extension that has no effect with this encoder."""
    nothing = "has no effect: the encoder has nothing to learn (nn_config.rep.dense_depth is 0)"
    found = []
    if keys.siamese and not has_encoder:
        trains = "trains only the critics: the encoder has nothing to learn"
        found.append(f"{RUN_BLOCK}.siamese {trains if keys.siamese_use_q else nothing}")
    looks = Augmentation(spec.obs, normalised=keys.use_normalization)
    if keys.siamese == "BYOL" and not looks.changes_anything():
        found.append(
            f"{RUN_BLOCK}.siamese: BYOL compares two looks that are the same, for no observation is an "
            "image or a vector of real numbers; ATC compares with what was seen later"
        )
    if keys.use_prediction and not has_encoder:
        found.append(f"{RUN_BLOCK}.use_prediction {nothing}")
    return found
