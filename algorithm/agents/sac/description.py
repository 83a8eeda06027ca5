"""Description of an agent for the start screen."""

from __future__ import annotations

from collections.abc import Mapping

import psutil
import torch
from torch import Tensor, nn

from algorithm.agents.roles import BehaviourConfig
from algorithm.agents.sac.config import SacConfig
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


def describe(
    spec: AgentSpec,
    config: BehaviourConfig,
    sources: Mapping[str, str],
    parameters: Mapping[str, int],
    replay: ReplayBuffer,
) -> Rows:
    """Return lines on models, parameters, memory, replay and algorithm.

    sources: of the networks' classes; parameters: trained ones by part
    """
    free = psutil.virtual_memory().available
    memory = (
        f"{replay.capacity:,} rows, {replay.nbytes / 2**20:,.0f} MB when full, {free / 2**20:,.0f} MB free"
    )
    return [
        ("models", ", ".join(f"{name} {source}" for name, source in sources.items())),
        ("parameters", ", ".join(f"{name} {n:,}" for name, n in parameters.items() if n)),
        *_memory(config.sac_config),
        ("replay", memory),
        ("algorithm", _algorithm(config, spec)),
    ]


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
    sac: SacConfig,
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
    usual = SacConfig(n_step=1)  # otherwise the defaults, which are plain SAC
    rows, updates = sac.batch_size * sac.learn_step, sac.replay_ratio if sac.use_replay_buffer else 1.0
    encoding = encoder * _passes(sac)
    every = encoding + _multiplications(sac, *sizes, joint=joint)
    ratio = rows * every * updates / usual.batch_size / _multiplications(usual, *plain, joint=False)
    if abs(ratio - 1.0) < 0.05:
        return []
    what = "an update takes" if updates == 1.0 else f"{updates:g} updates a step take"
    times = f"{ratio:.{2 if ratio < 10 else 0}f} times the multiplications of one of plain SAC"
    share = f", {encoding / every:.0%} of them to encode observations" if encoding else ""
    return [("cost", f"{what} {times} (2 × {_UNITS} units, {usual.batch_size} rows){share}")]


def _passes(sac: SacConfig) -> float:
    """Return the encoder's passes of tokens for each learned one; see :mod:`algorithm.nn.encoding`."""
    tokens = sac.burn_in_step + sac.learn_step + sac.n_step
    backward = 2 * (tokens if sac.seq_encoder == "ATTN" else sac.learn_step)
    target = (tokens if sac.seq_encoder else tokens - 1) if sac.use_target_network else 0
    return (tokens + backward + target) / sac.learn_step


def _multiplications(sac: SacConfig, q: int, policy: int, *, joint: bool) -> float:
    """Return those of an update for each learned row: a backward pass costs as much as two forward passes.

    The policy's loss needs that half of the critics' backward pass alone that leads to its actions.
    """
    tokens = (sac.learn_step + sac.n_step - 1) / sac.learn_step  # behind the learned ones
    following = tokens if sac.use_n_step_is else 1.0
    every, drawn = q * sac.ensemble_q_num, q * sac.ensemble_q_sample
    seen = 1.0 + following if joint else 1.0
    targets = drawn * (1.0 + following if joint else following) if sac.use_target_network else 0.0
    critics = 3.0 * every * seen + targets
    return critics + policy * tokens + (3.0 * policy + 2.0 * every) / sac.policy_update_per_step


def _memory(sac: SacConfig) -> Rows:
    """Return a row on the agent's memory; none without memory."""
    burn_in, learn = sac.burn_in_step, sac.learn_step
    if sac.seq_encoder is None:
        return []
    if sac.seq_encoder == "ATTN":
        return [("memory", f"attention to the last {burn_in} steps, {learn} learned in a window")]
    states = "stored and refreshed" if sac.refresh_carry else "stored"
    return [
        ("memory", f"recurrent, {burn_in} steps of burn-in, {learn} learned in a window, states {states}")
    ]


def _algorithm(config: BehaviourConfig, spec: AgentSpec) -> str:
    sac = config.sac_config
    if sac.n_step == 1:
        target = "1-step"
    else:
        target = f"{sac.n_step}-step " + ("V-trace" if sac.use_n_step_is else "uncorrected")
    critics = _critics(sac)
    if not sac.use_replay_buffer:
        data = f"each window once, batch {sac.batch_size}"
    else:
        updates = f"{sac.replay_ratio:g} update{'s' if sac.replay_ratio != 1 else ''} a step"
        data = f"{'prioritised' if sac.use_priority else 'uniform'}, batch {sac.batch_size}, {updates}"
    parts = [target, critics, data, "learned α" if sac.use_auto_alpha else "fixed α"]
    if sac.discrete_dqn_like and spec.action.branches:
        parts.append(f"greedy branches, ε {sac.discrete_dqn_epsilon:g}")
    if sac.policy_update_per_step > 1:
        parts.append(f"a policy update every {sac.policy_update_per_step} of the critics")
    if sac.clip_epsilon > 0:
        parts.append(f"critic clipped at {sac.clip_epsilon:g}")
    if sac.use_normalization and vector_names(spec.obs):
        parts.append("normalised observations")
    if sac.reward_scaling:
        parts.append("scaled rewards")
    return ", ".join(parts)


def _critics(sac: SacConfig) -> str:
    drawn, every = sac.ensemble_q_sample, sac.ensemble_q_num
    critics = f"{sac.ensemble_q_reduce} of {every if drawn == every else f'{drawn} among {every}'} critics"
    if every == 1:
        critics = "one critic"
    if sac.value_head == "quantile":
        kept = f"{sac.quantile_num - sac.quantile_drop} of {sac.quantile_num} quantiles"
        critics = f"{kept} of {'one critic' if every == 1 else f'{every} critics'}"
    if sac.value_head == "categorical":
        critics += f", histograms of {sac.categorical_num} bins"
    if not sac.use_target_network:
        critics += ", no target networks"
    return critics


_DEFAULT = SacConfig.model_fields


def notices(spec: AgentSpec, sac: SacConfig, *, has_encoder: bool, max_step: int) -> list[str]:
    """Return a line for each key that is set and has no effect, or less than expected.

    max_step: at which the training ends; −1 for no end
    """
    found = []
    if 0 < max_step <= max(sac.start_step, sac.batch_size - 1):
        first = f"the first {sac.start_step:,} steps are random actions (sac_config.start_step)"
        if sac.start_step < sac.batch_size:
            first = f"an update takes {sac.batch_size:,} windows (sac_config.batch_size)"
        found.append(f"nothing will be learned: {first}, and the training ends at {max_step:,}")
    if sac.discrete_dqn_like and not spec.action.branches:
        found.append("sac_config.discrete_dqn_like has no effect: there is no discrete action")
    greedy = sac.discrete_dqn_like and spec.action.branches and not spec.action.continuous
    if greedy and sac.policy_update_per_step > 1:
        found.append("sac_config.policy_update_per_step has no effect: there is no policy to update")
    moot = [key for key in ("tau", "update_target_per_step") if getattr(sac, key) != _DEFAULT[key].default]
    if not sac.use_target_network and moot:
        found.append(f"sac_config.{moot[0]} has no effect: there are no target networks")
    if sac.encoder_learning_rate is not None and not has_encoder:
        found.append("sac_config.encoder_learning_rate has no effect: the encoder has nothing to learn")
    if sac.seq_encoder == "RNN" and sac.learn_step == 1:
        found.append("sac_config.learn_step is 1: no gradient goes through time, so little is remembered")
    if sac.seq_encoder == "ATTN" and sac.burn_in_step < sac.learn_step - 1:
        found.append(
            f"sac_config.burn_in_step is {sac.burn_in_step}: attention sees the last "
            f"{sac.burn_in_step + 1} observations only (burn_in_step + 1), fewer than the "
            f"{sac.learn_step} steps of learn_step; raise burn_in_step where what matters lies further "
            "back"
        )
    return [*found, *_of_extensions(spec, sac, has_encoder=has_encoder)]


def on_device_notices(spec: AgentSpec, replay: ReplayConfig, device: torch.device) -> list[str]:
    """Return a line if ``replay_config.on_device`` is set and has no effect."""
    key = "replay_config.on_device has no effect:"
    if replay.on_device and device.type == "cpu":
        return [f"{key} the learner computes on the CPU, where the replay is"]
    plain = all(kind == "float32" for kind in spec.obs.dtypes) and max(spec.obs.stacks, default=1) == 1
    if replay.on_device and plain:
        return [f"{key} no observation is an image"]
    return []


def _of_extensions(spec: AgentSpec, sac: SacConfig, *, has_encoder: bool) -> list[str]:
    """Return a line for each extension that has no effect with this encoder."""
    nothing = "has no effect: the encoder has nothing to learn (nn_config.rep.dense_depth is 0)"
    found = []
    if sac.siamese and not has_encoder:
        trains = "trains only the critics: the encoder has nothing to learn"
        found.append(f"sac_config.siamese {trains if sac.siamese_use_q else nothing}")
    looks = Augmentation(spec.obs)
    if sac.siamese == "BYOL" and not looks.changes_anything(normalised=sac.use_normalization):
        found.append(
            "sac_config.siamese: BYOL compares two looks that are the same, for no observation is an "
            "image or a vector of real numbers; ATC compares with what was seen later"
        )
    if sac.use_prediction and not has_encoder:
        found.append(f"sac_config.use_prediction {nothing}")
    return found
