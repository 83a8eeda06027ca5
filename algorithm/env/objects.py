"""Environments that are objects of Python code: an instance, a class, a function, a vector environment."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import gymnasium as gym
from gymnasium.vector import VectorEnv
from gymnasium.vector.utils import CloudpickleWrapper
from typing_extensions import override

from algorithm.core.errors import GYMNASIUM, UsageError, described
from algorithm.core.plugins import mismatch
from algorithm.env.kinds import OBJECT_RUNS
from algorithm.env.lanes.contract import TensorEnv
from algorithm.env.second import copied, second
from algorithm.env.spaces import ONE_AGENT, Space, several_agents
from algorithm.env.wrappers import KeptOpen, LanesKeptOpen


class EnvSource:
    """Source of single environments; called with keyword arguments as a class would be.

    name:  qualified, such as ``__main__.Walk``
    short: for the folder of its runs
    lanes: steps taken at once by a vector environment; 0 for all that is not one
    """

    kind: ClassVar[str]
    lanes: int = 0

    def __init__(self, name: str, short: str) -> None:
        self.name = name
        self.short = short

    def __call__(self, **kwargs: object) -> gym.Env[Any, Any]:
        """Return an environment. Raises UsageError for what is none, and whatever its code raises."""
        raise NotImplementedError

    def another(self) -> EnvSource:
        """Return the source of environments for evaluations, beside those that are trained in."""
        return self

    def copies(self) -> EnvSource:
        """Return a source of any number of environments like this one, which other processes get by value."""
        return self

    def check(self, n: int, workers: int, more: Sequence[str]) -> None:
        """Raise UsageError where environments cannot be had like that.

        n: of them, in so many worker processes; more: what else they are to have
        """


class EnvMaker(EnvSource):
    """A class of environments, or a function that makes them; other processes get it by value.

    name: by default that of the class or function
    """

    kind = "a class or a function"

    def __init__(self, make: Callable[..., gym.Env[Any, Any]], name: str = "") -> None:
        named: Any = getattr(make, "func", make)  # of a functools.partial
        named = named if hasattr(named, "__qualname__") else type(named)
        qualified, short = _names(named.__module__, named.__qualname__)
        super().__init__(name or qualified, short)
        self._make = CloudpickleWrapper(make)

    @override
    def __call__(self, **kwargs: object) -> gym.Env[Any, Any]:
        make, mode = self._make.fn, kwargs.get("render_mode")
        if mode is not None and mismatch(make, **kwargs):
            kwargs.pop("render_mode")
        env: object = make(**kwargs)
        if not isinstance(env, gym.Env):
            raise no_env(env, f"{self.name} has returned it")
        return _rendering(env, mode)

    @override
    def check(self, n: int, workers: int, more: Sequence[str]) -> None:
        if workers:
            try:
                self._make.__getstate__()
            except Exception as error:
                raise UsageError(
                    "a class or function cannot be sent to worker processes",
                    where=self.name,
                    why=described(error),
                    fix="define it without objects of this process, or set base_config.workers: 0",
                ) from error


class LentEnv(EnvSource):
    """One environment, which is never closed here and never made again."""

    kind = "an instance"

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        self.env = env
        super().__init__(*_names_of(env))

    @override
    def __call__(self, **kwargs: object) -> gym.Env[Any, Any]:
        mode = kwargs.pop("render_mode", None)
        if kwargs:
            raise UsageError(
                "an instance takes no arguments",
                where="base_config.env_args",
                why=f"{self.name} was passed as an instance",
                fix="make it with them, or pass its class",
            )
        return KeptOpen(_rendering(self.env, mode))

    @override
    def another(self) -> EnvSource:
        return LentEnv(second(self.env, gym.make))

    @override
    def copies(self) -> EnvSource:
        env = self.env
        return EnvMaker(lambda: second(env, gym.make), self.name)

    @override
    def check(self, n: int, workers: int, more: Sequence[str]) -> None:
        if n > 1 or workers:
            raise UsageError(
                "an instance is one environment, in this process",
                where="base_config.n_envs, base_config.workers",
                why=f"{self.name} was passed as an instance, and n_envs is {n}, workers is {workers}",
                fix="pass its class, or a function that makes it",
            )


class LentLanes(EnvSource):
    """A vector environment, which steps several at once in its own way."""

    kind = "a vector environment"

    def __init__(self, env: VectorEnv) -> None:
        self.env = env
        self.lanes = env.num_envs
        super().__init__(*_names_of(env))

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
        return LentLanes(second(self.env, gym.make_vec))

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
        """Observation and action space of a single one."""
        return self.env.single_observation_space, self.env.single_action_space

    def make(self) -> VectorEnv:
        """Return the vector environment, to be stepped."""
        return LanesKeptOpen(self.env)


class LentTensors(LentLanes):
    """A tensor environment, the same in torch."""

    kind = "a tensor environment"

    def __init__(self, env: TensorEnv) -> None:
        self.tensors = env
        self.lanes = env.num_envs
        EnvSource.__init__(self, *_names(type(env).__module__, type(env).__qualname__))

    @override
    def another(self) -> EnvSource:
        try:
            return LentTensors(copied(self.tensors))
        except Exception as error:
            raise UsageError(
                "evaluations need a second environment, and there is only one",
                where=self.name,
                why=f"a deep copy cannot be made: {described(error)}",
                fix="pass a second one: eval_env=…",
            ) from error

    @property
    @override
    def spaces(self) -> tuple[Space, Space]:
        return self.tensors.observation_space, self.tensors.action_space


@dataclass(frozen=True)
class EnvObject:
    """The environments of a training that were handed in as objects.

    train:    what is trained in
    evaluate: what evaluations are played in
    """

    train: EnvSource
    evaluate: EnvSource

    @classmethod
    def of(cls, given: object, evaluate: object = None) -> EnvObject:
        """Return it for what a person hands in.

        evaluate: None for another one like ``given``
        Raises UsageError for what is no environment, and for an instance that cannot be had twice.
        """
        source = source_of(given)
        return cls(source, source.another() if evaluate is None else source_of(evaluate))

    def source(self, purpose: Literal["train", "evaluate"]) -> EnvSource:
        """Return what the environments for a purpose are had from."""
        return self.train if purpose == "train" else self.evaluate

    @property
    def label(self) -> str:
        """Folder of its runs among those of all tasks: ``object/Walk``."""
        return f"{OBJECT_RUNS}{self.train.short}"

    @property
    def noted(self) -> Mapping[str, str]:
        """Note of it in a run, as JSON."""
        sources = {"train": self.train, "evaluate": self.evaluate}
        return {purpose: f"{one.name}, {one.kind}" for purpose, one in sources.items()}


def source_of(given: object) -> EnvSource:
    """Return the source that an object is. Raises UsageError for what is no environment."""
    if isinstance(given, EnvSource):
        return given
    if isinstance(given, VectorEnv):
        return LentLanes(given)
    if isinstance(given, TensorEnv):
        return LentTensors(given)
    if several_agents(given) or (not callable(given) and not isinstance(given, gym.Env)):
        raise no_env(given, "it was passed as the environment")
    return LentEnv(given) if isinstance(given, gym.Env) else EnvMaker(given)


def no_env(given: object, why: str) -> UsageError:
    """Return the error for an object that is no environment."""
    of_gym = any(base.__module__ == "gym.core" for base in type(given).__mro__)
    several = several_agents(given)
    fix = (
        "pass a gymnasium.Env, its class, a function that returns one, a gymnasium.vector.VectorEnv, a "
        "TensorEnv, or the name of a task"
    )
    return UsageError(
        f"an object of type {type(given).__name__} is not an environment{' of one agent' * bool(several)}",
        where=f"{given!r:.80}",
        why=several or (f"{why}, and it is of gym, not of gymnasium" if of_gym else why),
        fix=ONE_AGENT if several else GYMNASIUM if of_gym else fix,
    )


def _names(module: str, qualified: str) -> tuple[str, str]:
    """Return the qualified name, and a short one that a folder can have."""
    return f"{module}.{qualified}", re.sub(r"[^\w.-]", "", re.split(r"[./:]", qualified)[-1]) or "env"


def _names_of(env: gym.Env[Any, Any] | VectorEnv) -> tuple[str, str]:
    """Return the same of an instance: it is filed under its id, if it has one."""
    own = type(env.unwrapped)
    name, short = _names(own.__module__, own.__qualname__)
    return name, re.split(r"[/:]", env.spec.id)[-1] if env.spec else short


def _rendering(env: gym.Env[Any, Any], mode: object) -> gym.Env[Any, Any]:
    """Return an environment that renders as is asked for. Raises ValueError for any other."""
    if mode is not None and env.render_mode != mode:
        raise ValueError(f"its render_mode is {env.render_mode!r}; make it with {mode!r}, or use its class")
    return env
