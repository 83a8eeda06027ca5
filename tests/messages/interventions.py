"""Messages about actions that were executed in place of the policy's."""

from __future__ import annotations

from collections.abc import Iterator
from tempfile import TemporaryDirectory

import numpy as np
from gymnasium.spaces import Box

import asac
from algorithm.core.errors import UserError
from algorithm.env.config import INTERVENTION_KEYS
from algorithm.env.executed import ExecutedActions
from algorithm.env.outputs import SpaceMismatchError
from tests.run.experience.intervening import Intervening, Silent

INFOS = (
    {"is_intervention": True},
    {"is_intervention": "yes"},
    {"action_taken": [2.5, 0.0]},
    {"action_taken": [np.nan, 0.0]},
    {"action_taken": [1.0]},
    {"action_taken": "left"},
    {"action_taken": [[1.0], [2.0, 3.0]]},
)


def messages() -> Iterator[tuple[str, str]]:
    reader = ExecutedActions(Box(-2.0, 2.0, (2,)), INTERVENTION_KEYS)
    for info in INFOS:
        try:
            reader.read(info, np.zeros(2))
        except SpaceMismatchError as error:
            yield f"info {info}", str(error)
    yield "PPO", _trained(Intervening(), "PPO")
    yield "a flag without an action", _trained(Silent("continuous", "person"), "SAC")


def _trained(env: Intervening, algorithm: str) -> str:
    with TemporaryDirectory() as directory:
        try:
            asac.train(env, algorithm=algorithm, max_step=50, quiet=True, seed=1, directory=directory)
        except UserError as error:
            return f"{type(error).__name__}, exit code {error.exit_code}\n{error}"
    raise AssertionError("it was trained")
