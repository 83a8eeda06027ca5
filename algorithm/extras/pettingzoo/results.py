"""Results of several agents as arrays, the rows of one behaviour."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from algorithm.core.spec import AgentSpec
from algorithm.env.base import Observation, StepResult
from algorithm.extras.pettingzoo.games import Ending
from algorithm.extras.pettingzoo.grouping import Sight


class AgentRow(NamedTuple):
    """Result of one agent: what it observes next, the end of its episode, and its reward."""

    agent: int
    seen: Sight | None  # None: it has left
    ending: Ending | None = None
    reward: float = 0.0


def observation(spec: AgentSpec, rows: Sequence[tuple[int, Sight]]) -> Observation:
    """Return the observations of agents, by id."""
    mask = spec.action.all_allowed(len(rows))
    for row, (_, sight) in enumerate(rows):
        if sight.mask is not None:
            mask[row] = sight.mask
    return Observation(
        ids=np.array([agent for agent, _ in rows], np.int64),
        obs={
            name: np.concatenate([none, *(sight.obs[name] for _, sight in rows)])
            for name, none in spec.obs.zeros(0).items()
        },
        action_mask=mask,
    )


def step_result(spec: AgentSpec, rows: Sequence[AgentRow], vanished: Sequence[int]) -> StepResult:
    """Return the result of a step. vanished: agents of failed environments."""
    ends = [row.ending for row in rows]
    last = [row.ending.sight if row.ending else row.seen for row in rows]
    seen = [row.seen or final for row, final in zip(rows, last, strict=True)]
    ids = [row.agent for row in rows]
    left = np.array([row.seen is None for row in rows], np.bool_)
    return StepResult(
        **vars(observation(spec, _known(ids, seen))),
        reward=np.array([row.reward for row in rows], np.float64),
        terminated=np.array([end is not None and end.terminated for end in ends], np.bool_),
        truncated=np.array([end is not None and end.truncated for end in ends], np.bool_),
        final=observation(spec, _known(ids, last)) if any(ends) else None,
        left=left if left.any() else None,
        vanished=np.array(vanished, np.int64) if vanished else None,
    )


def _known(ids: Sequence[int], sights: Sequence[Sight | None]) -> list[tuple[int, Sight]]:
    """Return the sight of each agent; every row has one."""
    return [(agent, sight) for agent, sight in zip(ids, sights, strict=True) if sight is not None]
