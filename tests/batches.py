"""Random batches and small agents for tests."""

from __future__ import annotations

import torch

from algorithm.data import SequenceBatch
from algorithm.nn.loader import Networks, load_networks
from algorithm.sac.config import SacConfig
from algorithm.sac.learner import Sac
from algorithm.spec import ActionSpec, AgentSpec, ObsSpec

SMALL = AgentSpec(ObsSpec(("obs",), ((3,),), ("float32",)), ActionSpec(continuous=2))
CPU = torch.device("cpu")


def random_batch(
    size: int = 8,
    window: int = 1,
    *,
    spec: AgentSpec = SMALL,
    seed: int = 0,
    exists: torch.Tensor | None = None,
) -> SequenceBatch:
    """A batch of ``size`` windows; ``exists`` [B]: how many of their transitions there are (default all)."""
    g = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=g)

    steps = torch.arange(window + 1)
    exists = torch.full((size,), window) if exists is None else exists
    valid = steps[:-1] < exists[:, None]
    z = normal(size, window, spec.action.continuous)
    return SequenceBatch(
        obs={"obs": normal(size, window + 1, *spec.obs.shapes[0])},
        prev_action=normal(size, window + 1, spec.action.size).tanh(),
        action_mask=torch.zeros(size, window + 1, 0, dtype=torch.bool),
        step=steps.expand(size, -1).clone(),
        obs_valid=steps <= exists[:, None],
        ids=torch.arange(size * (window + 1)).view(size, -1),
        action=z.tanh(),
        z=z,
        behaviour_logp=normal(size, window, 1),
        reward=normal(size, window),
        terminated=(torch.rand(size, window, generator=g) < 0.2) & valid,
        valid=valid,
        carry=torch.zeros(size, 0),
        weight=torch.rand(size, generator=g),
    )


def small_networks(spec: AgentSpec = SMALL, *, rep_depth: int = 0) -> Networks:
    """Default networks with 8 units, the same at every call."""
    torch.manual_seed(0)
    sizes = {"dense_n": 8}
    return load_networks(spec, None, rep={**sizes, "dense_depth": rep_depth}, q=sizes, policy=sizes)


def small_sac(*, seed: int = 0, rep_depth: int = 0, extensions: tuple = (), **options: object) -> Sac:
    """A learner with those networks; ``options`` are keys of ``sac_config``."""
    networks = small_networks(rep_depth=rep_depth)
    config = SacConfig(**{"clip_epsilon": -1.0, **options})
    return Sac(SMALL, networks, config, device=CPU, seed=seed, extensions=extensions)


def weights(sac: Sac) -> dict[str, torch.Tensor]:
    """Every saved tensor of the networks, copied."""
    return {name: value.clone() for name, value in sac.tensors()["model"].items()}
