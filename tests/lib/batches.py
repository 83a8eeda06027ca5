"""Random batches and small agents for tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch

from algorithm.actions.actor import Actor
from algorithm.actions.parts import make_parts
from algorithm.agents.off_policy.acting import new_actor
from algorithm.agents.off_policy.compiled_update import CompiledUpdate
from algorithm.agents.off_policy.model import NETWORKS
from algorithm.agents.off_policy.records import CriticTarget
from algorithm.agents.off_policy.update import OffPolicyLearner
from algorithm.agents.off_policy.values.choice import with_values
from algorithm.agents.sac.config import SacConfig
from algorithm.agents.sac.sac import SacObjective
from algorithm.core import ActionSpec, AgentSpec, ObsSpec, SequenceBatch
from algorithm.extensions import make_extensions
from algorithm.extensions.base import Build, Context, Demonstrated, draw_all
from algorithm.keys.signals import RewardSignals
from algorithm.nn.loader import Networks, load_networks

SMALL = AgentSpec(ObsSpec(("obs",), ((3,),), ("float32",)), ActionSpec(continuous=2))
SPECS = {
    "continuous": SMALL,
    "discrete": AgentSpec(SMALL.obs, ActionSpec((4,))),
    "branches": AgentSpec(SMALL.obs, ActionSpec((3, 2))),
    "hybrid": AgentSpec(SMALL.obs, ActionSpec((3, 2), 2)),
}
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
    """Learner with the objective of Soft Actor-Critic."""

    def __init__(self, spec, networks, config, *, compiled=False, eager_first=0, **more):
        super().__init__(spec, networks, config, SacObjective(spec.action, config), **more)
        self.config = config
        if compiled:
            self.compiled = CompiledUpdate(self, eager_first)


def sac_actor(spec, model, config, *, exploring, **more) -> Actor:
    """Return an actor of Soft Actor-Critic; config: ``sac_config``."""
    epsilon = config.discrete_dqn_epsilon if exploring else 0.0
    parts = make_parts(spec.action, greedy_branches=config.discrete_dqn_like, epsilon=epsilon)
    return new_actor(spec, model, config, parts, exploring=exploring, **more)


SIZES = {"dense_n": 8}
MEMORIES = {
    None: SIZES | {"dense_depth": 0},
    "RNN": {"rnn_n": 8},
    "ATTN": {"attn_n": 8, "attn_heads": 2},
}
"""``seq_encoder`` -> arguments of a small ModelRep."""


def small_networks(
    spec: AgentSpec = SMALL,
    config: SacConfig | None = None,
    *,
    file: Path | None = None,
    rep: Mapping[str, object] | None = None,
    q: Mapping[str, object] | None = None,
    policy: Mapping[str, object] | None = None,
) -> Networks:
    """Default networks with 8 units, or those of a file, the same at every call; the rest: more arguments."""
    config = config or SacConfig()
    torch.manual_seed(0)
    return load_networks(
        with_values(spec, config),
        file,
        NETWORKS,
        rep={**MEMORIES[config.seq_encoder], **(rep or {})},
        q={**SIZES, **(q or {})},
        policy={**SIZES, **(policy or {})},
        seq_encoder=config.seq_encoder,
        context=config.burn_in_step + 1,
    )


def small_sac(
    *,
    spec: AgentSpec = SMALL,
    seed: int = 0,
    rep_depth: int = 0,
    file: Path | None = None,
    rep: Mapping[str, object] | None = None,
    q: Mapping[str, object] | None = None,
    policy: Mapping[str, object] | None = None,
    extensions: tuple | None = None,
    signals: RewardSignals = RewardSignals(),  # noqa: B008 - it cannot be changed
    demonstrations: Demonstrated | None = None,
    **options: object,
) -> Sac:
    """A learner with those networks; ``options`` are keys of ``sac_config``, and arguments of the learner.

    With a memory its windows have 2 + 4 steps. The extensions are those that options and signals ask for.
    """
    more = {
        name: options.pop(name)
        for name in ("device", "compiled", "eager_first", "constraint")
        if name in options
    }
    plain: dict[str, object] = {
        "n_step": 1,
        "use_normalization": False,
        "alpha_learning_rate": None,
        "discrete_soft_target": True,
    }
    if options.get("seq_encoder"):
        plain |= {"burn_in_step": 2, "learn_step": 4}
    config = SacConfig(**{**plain, **options})
    if rep_depth:
        rep = {"dense_depth": rep_depth, **(rep or {})}
    networks = small_networks(spec, config, file=file, rep=rep, q=q, policy=policy)
    if extensions is None:
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
    return Sac(
        spec,
        networks,
        config,
        seed=seed,
        extensions=extensions,
        **{"device": CPU, **more},
    )


def small_windows(sac: Sac, spec: AgentSpec = SMALL, *, seed: int = 0) -> SequenceBatch:
    """Eight windows of the learner's length, of which some end before their last transition."""
    keys = sac.config
    window = keys.burn_in_step + keys.learn_step + keys.n_step - 1
    exists = torch.tensor([1, 2, 3, 4, 5, 6, 7, 7]).clamp(max=window)
    batch = random_batch(8, window, spec=spec, seed=seed, exists=exists)
    return replace(batch, carry=torch.zeros(8, *sac.model.rep.stored_carry_shape))


def weights(sac: Sac) -> dict[str, torch.Tensor]:
    """Every saved tensor of the networks, copied."""
    return {name: value.clone() for name, value in sac.tensors()["model"].items()}


def saved(sac: OffPolicyLearner) -> dict[str, torch.Tensor]:
    """Every tensor of a checkpoint, copied."""
    return {f"{file}.{k}": v.clone() for file, part in sac.tensors().items() for k, v in part.items()}


def context(sac: Sac, batch: SequenceBatch) -> Context:
    """What an update hands to its extensions."""
    return sac.encode(batch, draw_all(sac.extensions, batch, sac.learned, sac._generator))


def draw_ahead(sac: Sac, batch: SequenceBatch) -> torch.Tensor:
    """Draw the noise of the actions at the tokens behind the burn-in."""
    return sac.draw_noise(len(batch.reward) * (batch.window - sac.keys.burn_in_step))


@torch.no_grad()
def learning_targets(sac: Sac, batch: SequenceBatch) -> list[CriticTarget]:
    """Targets of the critics of each horizon for a batch, by the networks as they are."""
    members, ctx = sac.draw_subset(), sac.encode(batch)
    noise, following = draw_ahead(sac, batch), batch.window - sac.keys.burn_in_step - 1
    ahead = sac.next_actions(ctx, noise, sac.draw_coins(len(batch.reward), following))
    return sac.predict_and_target(ctx, ahead, members, in_batch=False)[1]


def target_of(sac: Sac, batch: SequenceBatch) -> torch.Tensor:
    """y [B, T] of a batch, by the networks as they are."""
    return learning_targets(sac, batch)[0].y


def update_policy(sac: Sac, batch: SequenceBatch) -> None:
    """Take the policy's part of an update alone."""
    ctx = sac.encode(batch)
    state, obs = ctx.state[:, ctx.learned].detach(), {k: x[:, ctx.learned] for k, x in ctx.obs.items()}
    sac.learn_policy(batch, obs, state, sac.draw_noise(len(batch.reward) * sac.keys.learn_step))
