"""Samples of a graph compared with those of its policy."""

from __future__ import annotations

import numpy as np
import torch

from algorithm.agents.base import Agent
from algorithm.core.data import Float, Int
from algorithm.extras.onnx.check import Checker
from algorithm.extras.onnx.reference import Situation
from tests.extras.onnx.policies import actor, graph_of, reference

ROWS, TIMES, SIGMAS = 3, 8000, 5.0
"""Observations, samples of each, the limit in standard deviations of a difference."""


def wrong_draws(agent: Agent, data: bytes) -> list[int]:
    """Return the indices of a flat action's elements whose moments differ in each of two comparisons.

    In a single one, an element of many may differ by chance.
    """
    situation = reference(agent).situation(ROWS, np.random.default_rng(0))
    rows = np.tile(np.arange(ROWS), TIMES)
    many = Situation({name: x[rows] for name, x in situation.obs.items()}, situation.mask[rows])
    first, second = (_unlike(_of_graph(agent, data, many), _of_policy(agent, many)) for _ in range(2))
    return [int(i) for i in second if i in first]


def _unlike(drawn: Float, expected: Float) -> Int:
    """Return the indices of the elements whose mean or mean square differs in some row."""
    wrong = np.zeros(drawn.shape[-1], np.bool_)
    for power in (1, 2):
        ours, theirs = ((x.astype(np.float64) ** power).reshape(TIMES, ROWS, -1) for x in (drawn, expected))
        # Of a rare choice the counts are those of Poisson, which are wider than the normal ones.
        limit = SIGMAS * np.sqrt((ours.var(0) + theirs.var(0)) / TIMES) + SIGMAS / TIMES
        wrong |= (np.abs(ours.mean(0) - theirs.mean(0)) > limit).any(0)
    return np.flatnonzero(wrong)


def _of_graph(agent: Agent, data: bytes, many: Situation) -> Float:
    checker = Checker(data, graph_of(agent).ports, reference(agent))
    memory = checker._no_memory(many.size)
    return checker._flat(checker._run(reference(agent).feeds(many, checker._ports, memory)), "")


@torch.inference_mode()
def _of_policy(agent: Agent, many: Situation) -> Float:
    choice, action = actor(agent).choice, agent.spec.action
    obs = {name: torch.from_numpy(value) for name, value in many.obs.items()}
    before, carry = torch.from_numpy(action.padding(many.size)), choice.model.rep.initial_carry(many.size)
    seen, state, _ = choice.encode(obs, before, carry)
    policy = choice.model.policy(state, seen)
    normal = torch.randn(many.size, action.continuous) if action.continuous else None
    uniform = torch.rand(many.size, action.discrete) if action.branches else None
    drawn = choice.draw(policy, state, torch.from_numpy(many.mask), normal, uniform)
    return np.concatenate([drawn.onehot.numpy(), action.squashed(drawn.z.numpy())], 1)
