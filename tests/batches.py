"""Random batches and small agents for tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch

from algorithm.actions.actor import Actor
from algorithm.actions.parts import make_parts
from algorithm.agents.off_policy.acting import new_actor
from algorithm.agents.off_policy.agent import OffPolicyAgent
from algorithm.agents.off_policy.learner import OffPolicyLearner
from algorithm.agents.off_policy.model import NETWORKS
from algorithm.agents.off_policy.values import LearningTarget, with_values
from algorithm.agents.roles import AgentInputs
from algorithm.agents.sac.config import SacConfig
from algorithm.agents.sac.family import SAC
from algorithm.agents.sac.heads import ActionHeads
from algorithm.core.data import SequenceBatch
from algorithm.core.spec import ActionSpec, AgentSpec, ObsSpec
from algorithm.extensions.base import Context, draw_all
from algorithm.nn.loader import Networks, load_networks

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
    mask = random_mask(spec, size, window + 1, generator=g)
    chosen = random_onehot(spec, mask[:, :-1], generator=g)
    action = torch.cat([chosen, z.tanh()], -1)
    before = torch.cat([torch.zeros_like(chosen[:, :1]), chosen], 1)
    prev_action = torch.cat([before, normal(size, window + 1, spec.action.continuous).tanh()], -1)
    return SequenceBatch(
        obs={
            name: random_obs(shape, dtype, categories, size, window + 1, generator=g)
            for (name, shape, dtype), categories in zip(spec.obs.items(), spec.obs.categories, strict=True)
        },
        prev_action=prev_action,
        action_mask=mask,
        step=steps.expand(size, -1).clone(),
        obs_valid=steps <= exists[:, None],
        ids=torch.arange(size * (window + 1)).view(size, -1),
        action=action,
        z=z,
        behaviour_logp=normal(size, window, spec.action.num_heads),
        reward=normal(size, window),
        terminated=(torch.rand(size, window, generator=g) < 0.2) & valid,
        valid=valid,
        carry=torch.zeros(size, 0),
        anchor=torch.zeros(size, dtype=torch.int64),
        weight=torch.rand(size, generator=g),
    )


def random_obs(
    shape: tuple[int, ...], dtype: str, categories: tuple[int, ...], *lead: int, generator: torch.Generator
) -> torch.Tensor:
    """Observations [*lead, *shape]: normal numbers, pixels or choices."""
    if categories:
        highest = torch.tensor(categories).view(shape)
        return (torch.rand(*lead, *shape, generator=generator) * highest).to(getattr(torch, dtype))
    if dtype == "float32":
        return torch.randn(*lead, *shape, generator=generator)
    return torch.randint(0, 2 if dtype == "int8" else 256, (*lead, *shape), generator=generator).to(
        getattr(torch, dtype)
    )


def random_mask(spec: AgentSpec, *lead: int, generator: torch.Generator) -> torch.Tensor:
    """Masks [*lead, ΣN] that leave each branch a choice."""
    mask = torch.rand(*lead, spec.action.discrete, generator=generator) < 0.6
    for where in spec.action.branch_slices:
        mask[..., where.start] |= ~mask[..., where].any(-1)
    return mask


def random_onehot(spec: AgentSpec, mask: torch.Tensor, *, generator: torch.Generator) -> torch.Tensor:
    """One allowed choice of each branch, [..., ΣN]."""
    scores = torch.rand(mask.shape, generator=generator).masked_fill(~mask, -1.0)
    parts = [
        torch.nn.functional.one_hot(scores[..., where].argmax(-1), where.stop - where.start)
        for where in spec.action.branch_slices
    ]
    return torch.cat([scores[..., :0], *parts], -1)


class Sac(OffPolicyLearner):
    """Learner with the heads of Soft Actor-Critic."""

    def __init__(self, spec, networks, config, **more):
        super().__init__(spec, networks, config, ActionHeads(spec.action, config), **more)


def sac_agent(spec, config, **inputs) -> OffPolicyAgent:
    """Return an agent of Soft Actor-Critic; inputs: of :class:`AgentInputs`."""
    return OffPolicyAgent(SAC, AgentInputs(spec, config, **inputs))


def sac_actor(spec, model, config, *, exploring, **more) -> Actor:
    """Return an actor of Soft Actor-Critic; config: ``sac_config``."""
    epsilon = config.discrete_dqn_epsilon if exploring else 0.0
    parts = make_parts(spec.action, greedy_branches=config.discrete_dqn_like, epsilon=epsilon)
    return new_actor(spec, model, config, parts, exploring=exploring, **more)


def small_networks(
    spec: AgentSpec = SMALL,
    *,
    rep_depth: int = 0,
    q: Mapping[str, object] | None = None,
    policy: Mapping[str, object] | None = None,
) -> Networks:
    """Default networks with 8 units, the same at every call; ``q`` and ``policy``: more arguments."""
    torch.manual_seed(0)
    sizes = {"dense_n": 8}
    return load_networks(
        spec,
        None,
        NETWORKS,
        rep={**sizes, "dense_depth": rep_depth},
        q={**sizes, **(q or {})},
        policy={**sizes, **(policy or {})},
    )


def small_sac(
    *,
    spec: AgentSpec = SMALL,
    seed: int = 0,
    rep_depth: int = 0,
    extensions: tuple = (),
    q: Mapping[str, object] | None = None,
    policy: Mapping[str, object] | None = None,
    compiled: bool = False,
    eager_first: int = 0,
    device: torch.device = CPU,
    **options: object,
) -> Sac:
    """A learner with those networks; ``options`` are keys of ``sac_config``."""
    plain = {
        "n_step": 1,
        "use_normalization": False,
        "alpha_learning_rate": None,
        "discrete_soft_target": True,
    }
    config = SacConfig(**{**plain, **options})
    networks = small_networks(with_values(spec, config), rep_depth=rep_depth, q=q, policy=policy)
    return Sac(
        spec,
        networks,
        config,
        device=device,
        seed=seed,
        extensions=extensions,
        compiled=compiled,
        eager_first=eager_first,
    )


def weights(sac: Sac) -> dict[str, torch.Tensor]:
    """Every saved tensor of the networks, copied."""
    return {name: value.clone() for name, value in sac.tensors()["model"].items()}


def context(sac: Sac, batch: SequenceBatch) -> Context:
    """What an update hands to its extensions."""
    drawn = draw_all(sac.extensions, batch, sac._learned, sac._generator)
    return replace(sac.encode(batch), drawn=drawn)


@torch.no_grad()
def learning_target(sac: Sac, batch: SequenceBatch) -> LearningTarget:
    """Target of the critics for a batch, by the networks as they are."""
    members = sac.critics.draw_subset()
    return sac.critics._evaluate(sac.encode(batch), sac._draw_ahead(batch), members, sac.critics._apart)[1]


def target_of(sac: Sac, batch: SequenceBatch) -> torch.Tensor:
    """y [B, T] of a batch, by the networks as they are."""
    return learning_target(sac, batch).y


def update_policy(sac: Sac, batch: SequenceBatch) -> None:
    """Take the policy's part of an update alone."""
    ctx = sac.encode(batch)
    sac._update_policy(ctx, ctx.state[:, ctx.learned].detach(), sac._draw_now(batch), sac._by)


def assert_resumes(options, batch_of, steps):
    """Train for twice as many steps; compare with a learner that takes over in the middle, bit for bit.

    batch_of: of the options and a step
    """
    straight, saved = small_sac(**options), small_sac(**options)
    for step in range(steps):
        straight.update(batch_of(options, step))
        saved.update(batch_of(options, step))
    resumed = small_sac(seed=99, **options)
    tensors = {file: {k: v.clone() for k, v in named.items()} for file, named in saved.tensors().items()}
    resumed.load_tensors(tensors, saved.updates)
    for step in range(steps, 2 * steps):
        straight.update(batch_of(options, step))
        resumed.update(batch_of(options, step))
    for name, value in weights(straight).items():
        assert torch.isfinite(value).all(), name
        assert torch.equal(value, weights(resumed)[name]), name
