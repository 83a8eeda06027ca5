"""Policies of games in Python: of an instance, of a function, and with critics that see everybody."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asac
from tests.lib.toys_games import Crowd

SMALL: dict[str, Any] = {
    "max_step": 30,
    "start_step": 10,
    "batch_size": 8,
    "name": "a",
    "quiet": True,
    "critic_observations": ["all"],
}


def make() -> Crowd:
    return Crowd(alike=True)


@pytest.mark.parametrize("game", [make(), make, Crowd])
def test_a_policy_needs_only_what_its_agent_observes(game: Crowd | Callable[[], Crowd], cwd: Path) -> None:
    keys = {"env_args": {"alike": True}} if game is Crowd else {}
    run = asac.train(game, **SMALL, **keys)
    policy = run.policy(behavior="red")
    action, _ = policy.act(np.zeros(4))
    actions, _ = policy.act(np.zeros((5, 4)))
    assert int(action) in range(3) and np.shape(actions) == (5,)
    assert len(run.evaluate(2, behavior="blue").returns) == 2
