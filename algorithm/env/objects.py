"""Environments passed as Python objects, for training and evaluations; those that step many at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import gymnasium as gym
from gymnasium.vector import VectorEnv
from typing_extensions import override

from algorithm.core.errors import UsageError
from algorithm.env.kinds import OBJECT_RUNS
from algorithm.env.lanes.contract import TensorEnv
from algorithm.env.second import another_env
from algorithm.env.sources import (
    EnvMaker,
    EnvSource,
    ExternalEnv,
    GameSource,
    copied,
    names_of,
    not_an_env,
    qualified_names,
)
from algorithm.env.spaces import Space, is_game, several_agents
from algorithm.env.wrappers import LanesKeptOpen


class ExternalVectorEnv(EnvSource):
    """A vector environment of the user, which steps several environments at once."""

    kind = "a vector environment"

    def __init__(self, env: VectorEnv) -> None:
        self.env = env
        self.lanes = env.num_envs
        super().__init__(*names_of(env))

    @override
    def __call__(self, **kwargs: object) -> gym.Env[Any, Any]:
        raise UsageError(
            "a vector environment cannot be split into single ones",
            where=self.name,
            why=f"it steps {self.lanes} at once",
            fix="pass a single one: its class, or a function that makes it",
        )

    @override
    def another(self) -> EnvSource:
        return ExternalVectorEnv(another_env(self.env, gym.make_vec))

    @override
    def check(self, n: int, workers: int, more: Sequence[str]) -> None:
        if n != self.lanes or workers:
            raise UsageError(
                f"a vector environment has a fixed number, {self.lanes}, and no workers",
                where="base_config.n_envs, base_config.workers",
                why=f"n_envs is {n}, workers is {workers}",
                fix="leave both out",
            )
        if more:
            raise UsageError(
                f"a vector environment has no {' and no '.join(more)}",
                where=self.name,
                why="it steps all its environments itself",
                fix="build that into it, or pass a class or a function that makes a single one",
            )

    @property
    def spaces(self) -> tuple[Space, Space]:
        """Observation and action space of a single environment."""
        return self.env.single_observation_space, self.env.single_action_space

    def make(self) -> VectorEnv:
        """Return the vector environment, to be stepped."""
        return LanesKeptOpen(self.env)


class ExternalTensorEnv(ExternalVectorEnv):
    """A tensor environment of the user, which steps several environments at once in torch."""

    kind = "a tensor environment"

    def __init__(self, env: TensorEnv) -> None:
        self.tensors = env
        self.lanes = env.num_envs
        EnvSource.__init__(self, *qualified_names(type(env).__module__, type(env).__qualname__))

    @override
    def another(self) -> EnvSource:
        return ExternalTensorEnv(copied(self.tensors, self.name))

    @property
    @override
    def spaces(self) -> tuple[Space, Space]:
        return self.tensors.observation_space, self.tensors.action_space


@dataclass(frozen=True)
class EnvObject:
    """The environments of a training that were passed as objects.

    train:    source of the training environments
    evaluate: source of the environments for evaluations
    """

    train: EnvSource
    evaluate: EnvSource

    @classmethod
    def of(cls, env: object, evaluate: object = None) -> EnvObject:
        """Return the environments for an object that was passed.

        evaluate: environment for evaluations; None for another one like ``env``
        Raises UsageError for an object that is no environment, and for an instance that cannot be copied.
        """
        source = source_of(env)
        return cls(source, source.another() if evaluate is None else source_of(evaluate))

    def source(self, purpose: Literal["train", "evaluate"]) -> EnvSource:
        """Return the source of the environments for a purpose."""
        return self.train if purpose == "train" else self.evaluate

    @property
    def label(self) -> str:
        """Folder of its runs among those of all tasks: ``object/Walk``."""
        return f"{OBJECT_RUNS}{self.train.short}"

    @property
    def as_json(self) -> Mapping[str, str]:
        """Purpose -> name and kind of the object, for a run's manifest."""
        sources = {"train": self.train, "evaluate": self.evaluate}
        return {purpose: f"{source.name}, {source.kind}" for purpose, source in sources.items()}


def source_of(env: object) -> EnvSource:
    """Return an object as a source of environments. Raises UsageError for one that is no environment."""
    if isinstance(env, EnvSource):
        return env
    if isinstance(env, VectorEnv):
        return ExternalVectorEnv(env)
    if isinstance(env, TensorEnv):
        return ExternalTensorEnv(env)
    if is_game(env):
        return GameSource(env)
    if several_agents(env) or (not callable(env) and not isinstance(env, gym.Env)):
        raise not_an_env(env, "it was passed as the environment")
    return ExternalEnv(env) if isinstance(env, gym.Env) else EnvMaker(env)
