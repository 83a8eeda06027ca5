"""Recipe of environments that are objects, and the error where they are not here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
from typing_extensions import override

from algorithm.core.errors import UsageError
from algorithm.env.gym import GymRecipe
from algorithm.env.objects import EnvSource


@dataclass(frozen=True, kw_only=True)
class ObjectRecipe(GymRecipe):
    """Recipe of environments that were handed in; without a source it names what is missing."""

    source: EnvSource | None = None

    @override
    def _build(self, kwargs: Mapping[str, Any]) -> gym.Env[Any, Any]:
        if self.source is None:
            raise absent(self.env_id)
        return self.source(**kwargs)

    @override
    def _advice(self, error: Exception) -> str:
        return "fix it where it is made; base_config.env_args are its arguments"


def absent(name: str) -> UsageError:
    """Return the error for an environment that was an object of Python code, and is not here."""
    return UsageError(
        "the run's environment was a Python object, which cannot be made from a name",
        where=f"base_config.env_name: {name}",
        why="the run was begun with an instance, a class or a function",
        fix="go on in Python, where the object is: run = asac.Run(FOLDER, env=env), then run.resume(), "
        "run.evaluate(10) or run.policy()",
    )
