"""Samples of a graph compared with the distribution of its policy."""

from __future__ import annotations

import numpy as np
import torch

from algorithm.agents.base import Agent
from algorithm.core.data import Array, Float
from algorithm.extras.onnx.check import TOLERANCE, session_of
from algorithm.extras.onnx.reference import Situation
from tests.extras.onnx.policies import actor, graph_of, reference

DRAWS, ROWS, SIGMAS, GRID = 20_000, 8, 5.0, 2001
"""Samples in all, observations that they are drawn for, the limit, points of a normal distribution."""


def wrong_draws(agent: Agent, data: bytes, seed: int = 0) -> list[str]:
    """Return what is unlikely of a graph's samples, twice: of many numbers one may be far off once."""
    situation = reference(agent).situation(ROWS, np.random.default_rng(seed))
    first, second = (_unlikely(agent, data, situation) for _ in range(2))
    return [name for name in second if name in first]


def _unlikely(agent: Agent, data: bytes, situation: Situation) -> list[str]:
    drawn, times, wrong = _drawn(agent, data, situation), DRAWS // ROWS, list[str]()
    probs, grid = _distribution(agent, situation)
    if agent.spec.action.branches and not actor(agent).choice.parts.discrete.asks_critics:
        indices = drawn["discrete_actions"].reshape(times, ROWS, -1)
        for branch, part in enumerate(agent.spec.action.branch_slices):
            for choice, p in enumerate(probs[:, part].T.astype(np.float64)):
                count = (indices[:, :, branch] == choice).sum(0)
                # Of a rare choice the counts are those of Poisson, which are wider than the normal ones.
                limit = SIGMAS * np.sqrt(times * p * (1.0 - p)) + SIGMAS
                if (np.abs(count - times * p) > limit)[p > 0].any() or count[p == 0].any():
                    wrong.append(f"discrete_actions, branch {branch}, choice {choice}")
    if actor(agent).choice.parts.discrete.asks_critics and _other_choices(agent, situation, drawn):
        wrong.append("discrete_actions")
    if agent.spec.action.continuous:
        u = drawn["continuous_actions"].reshape(times, ROWS, -1).astype(np.float64)
        for name, power in (("mean", 1), ("square", 2)):
            seen, expected = (u**power).mean(0), (grid**power).mean(1)
            limits = SIGMAS * (grid**power).std(1) / np.sqrt(times) + 10 * TOLERANCE
            inside = (np.abs(seen - expected) <= limits).all(0)
            wrong += [f"continuous_actions {index}, the {name}" for index in np.flatnonzero(~inside)]
    return wrong


def _drawn(agent: Agent, data: bytes, situation: Situation) -> dict[str, Array]:
    """Return all samples, time after time those of each row."""
    session, ports = session_of(data), graph_of(agent).ports
    names = [port.name for port in ports.outputs if port.batched]
    parts, times = list[list[Array]](), 100
    rows = np.tile(np.arange(ROWS), times)
    many = Situation({name: x[rows] for name, x in situation.obs.items()}, situation.mask[rows])
    memory = np.zeros((len(rows), 1, ports.memory), np.float32) if ports.memory else None
    for _ in range(DRAWS // ROWS // times):
        parts.append(session.run(names, reference(agent).feeds(many, ports, memory)))
    return {name: np.concatenate(each) for name, each in zip(names, zip(*parts, strict=True), strict=True)}


@torch.inference_mode()
def _distribution(agent: Agent, situation: Situation) -> tuple[Float, Float]:
    """Return π at an episode's start: probabilities [N, ΣN], and points u [N, G, A_c] of the same weight."""
    choice, n, action = actor(agent).choice, situation.size, agent.spec.action
    carry, before = choice.model.rep.initial_carry(n), torch.from_numpy(action.padding(n))
    obs = {name: torch.from_numpy(value) for name, value in situation.obs.items()}
    seen, state, _ = choice.encode(obs, before, carry)
    policy, mask = choice.model.policy(state, seen), torch.from_numpy(situation.mask)
    probs = np.zeros((n, 0), np.float32)
    if action.branches and not actor(agent).choice.parts.discrete.asks_critics:
        probs = choice.parts.discrete.distribution(policy, mask, mask).probs.numpy()
    points = torch.special.ndtri((torch.arange(GRID, dtype=torch.float64) + 0.5) / GRID).float()
    normal = points.repeat(n).unsqueeze(1).expand(-1, action.continuous)
    wide = policy.map(lambda x: x.repeat_interleave(GRID, 0))
    z = choice.parts.continuous.act(wide, normal, choice.noise)[0]
    return probs, action.squashed(z.numpy()).reshape(n, GRID, -1)


@torch.inference_mode()
def _other_choices(agent: Agent, situation: Situation, drawn: dict[str, Array]) -> bool:
    """Return whether choices are not those that the critics value most at the sampled u."""
    choice, n, action = actor(agent).choice, situation.size, agent.spec.action
    obs = {name: torch.from_numpy(value) for name, value in situation.obs.items()}
    _, state, _ = choice.encode(obs, torch.from_numpy(action.padding(n)), choice.model.rep.initial_carry(n))
    times = len(drawn["discrete_actions"]) // n
    u = drawn.get("continuous_actions", np.zeros((times * n, 0), np.float32))
    states = state.repeat(times, *[1] * (state.dim() - 1))
    values = [choice.value_of(q.frozen(states, torch.from_numpy(u))).mean(0) for q in choice.model.critics]
    scores = np.where(np.tile(situation.mask, (times, 1)), torch.stack(values).sum(0).numpy(), -np.inf)
    best = np.stack([scores[:, where].argmax(1) for where in action.branch_slices], 1)
    return bool((best != drawn["discrete_actions"]).any(1).mean() > 1e-3)
