"""Learners with curiosity or random network distillation, for every kind of action and memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from algorithm.agents.config import RewardSignals
from algorithm.agents.off_policy.model import NETWORKS
from algorithm.agents.sac.config import SacConfig
from algorithm.core.data import SequenceBatch
from algorithm.core.spec import ActionSpec, AgentSpec
from algorithm.extensions import make_extensions
from algorithm.extensions.base import Extension
from algorithm.extensions.options import Build, Demonstrated
from algorithm.nn.loader import load_networks
from tests.batches import CPU, SMALL, Sac, random_batch

SPECS = {
    "continuous": SMALL,
    "discrete": AgentSpec(SMALL.obs, ActionSpec((4,))),
    "branches": AgentSpec(SMALL.obs, ActionSpec((3, 2))),
    "hybrid": AgentSpec(SMALL.obs, ActionSpec((3, 2), 2)),
}
REPS = {None: {"dense_n": 8, "dense_depth": 1}, "RNN": {"rnn_n": 8}, "ATTN": {"attn_n": 8, "attn_heads": 2}}
MEMORIES = list(REPS)


def make_agent(
    spec: AgentSpec = SMALL,
    memory: str | None = None,
    *,
    seed: int = 0,
    file: Path | None = None,
    signals: RewardSignals = RewardSignals(),  # noqa: B008 - it cannot be changed
    demonstrations: Demonstrated | None = None,
    compiled: bool = False,
    **options,
) -> Sac:
    """A learner whose extensions are those that ``options``, keys of ``sac_config``, and signals ask for."""
    window = {"burn_in_step": 2, "learn_step": 4} if memory else {}
    config = SacConfig(**{"seq_encoder": memory, "clip_epsilon": -1.0, "n_step": 2, **window, **options})
    torch.manual_seed(0)
    networks = load_networks(
        spec,
        file,
        NETWORKS,
        rep=REPS[memory],
        q={"dense_n": 8},
        policy={"dense_n": 8},
        seq_encoder=config.seq_encoder,
        context=config.burn_in_step + 1,
    )
    build = Build(
        spec=spec,
        state_size=networks.state_size,
        options=config,
        signals=signals,
        demonstrations=demonstrations,
        make_network=networks.make,
    )
    with torch.random.fork_rng():  # with or without extensions the critics begin alike
        torch.manual_seed(seed + 1)
        extensions = make_extensions(build)
    return Sac(spec, networks, config, device=CPU, seed=seed, extensions=extensions, compiled=compiled)


def batch_for(
    sac: Sac, spec: AgentSpec = SMALL, memory: str | None = None, *, seed: int = 0
) -> SequenceBatch:
    """Eight windows, of which some end before their last transition."""
    window = 7 if memory else 2
    exists = torch.tensor([1, 2, 3, 4, 5, 6, 7, 7]).clamp(max=window)
    batch = random_batch(8, window, spec=spec, seed=seed, exists=exists)
    carry = torch.zeros(8, *sac.model.rep.stored_carry_shape)
    return replace(batch, carry=carry)


def with_garbage(batch: SequenceBatch) -> SequenceBatch:
    """The same, with other numbers in everything that does not exist."""
    absent, nothing = ~batch.obs_valid, ~batch.valid

    def other(x: torch.Tensor, where: torch.Tensor) -> torch.Tensor:
        return torch.where(where.view(*where.shape, *[1] * (x.dim() - 2)), torch.full_like(x, 9.0), x)

    return replace(
        batch,
        obs={name: other(value, absent) for name, value in batch.obs.items()},
        prev_action=other(batch.prev_action, absent),
        action=other(batch.action, nothing),
        z=other(batch.z, nothing),
        reward=other(batch.reward, nothing),
    )


def only_extension(sac: Sac) -> Extension:
    """The one it has."""
    (extension,) = sac.extensions
    return extension


def saved(sac: Sac) -> dict[str, torch.Tensor]:
    """Every tensor of a checkpoint, copied."""
    return {f"{file}.{k}": v.clone() for file, part in sac.tensors().items() for k, v in part.items()}


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    """Whether both have the same tensors, bit for bit."""
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
