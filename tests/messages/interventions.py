"""Messages about actions that were executed in place of the policy's."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from gymnasium.spaces import Box

import asac
from algorithm.env.config import INTERVENTION_KEYS
from algorithm.env.executed import ExecutedActions
from algorithm.env.outputs import SpaceMismatchError
from tests.messages import refusal
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
        with pytest.raises(SpaceMismatchError) as caught:
            reader.read(info, np.zeros(2))
        yield f"info {info}", str(caught.value)
    with TemporaryDirectory() as directory:
        train = partial(asac.train, max_step=50, quiet=True, seed=1, directory=directory)
        yield "PPO", refusal(lambda: train(Intervening(), algorithm="PPO"), coded=True)
        silent = Silent("continuous", "person")
        yield "a flag without an action", refusal(lambda: train(silent, algorithm="SAC"), coded=True)
