"""Sources of environments that Python code passed: instances, classes, functions, also of PettingZoo."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Protocol

import gymnasium as gym
from gymnasium.vector import VectorEnv
from gymnasium.vector.utils import CloudpickleWrapper
from typing_extensions import override

from algorithm.core.errors import GYMNASIUM, UsageError, described
from algorithm.core.plugins import mismatch
from algorithm.env.second import another_env, deep_copy
from algorithm.env.spaces import ONE_AGENT, is_game, several_agents
from algorithm.env.wrappers import KeptOpen


class ManyAgents(Protocol):
    """An environment of PettingZoo."""

    possible_agents: list[Any]


class GamePassedError(UsageError):
    """An environment of PettingZoo where one of Gymnasium was expected."""


class EnvSource:
    """Source of single environments; calling it makes one, with keyword arguments like a class.

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
        """Return an environment. Raises UsageError for another object, and whatever its code raises."""
        raise NotImplementedError

    def another(self) -> EnvSource:
        """Return a source for evaluations, whose environments are others than those of the training."""
        return self

    def copies(self) -> EnvSource:
        """Return a source that makes any number of such environments, and can be pickled."""
        return self

    def check(self, n: int, workers: int, more: Sequence[str]) -> None:
        """Raise UsageError if the source cannot make the environments of a training.

        n: number of environments, in ``workers`` processes; more: further features that they are to have
        """


class EnvMaker(EnvSource):
    """A class of environments, or a function that makes them; it is pickled for other processes.

    name: by default that of the class or function
    """

    kind = "a class or a function"

    def __init__(self, make: Callable[..., gym.Env[Any, Any]], name: str = "") -> None:
        named: Any = getattr(make, "func", make)  # of a functools.partial
        named = named if hasattr(named, "__qualname__") else type(named)
        qualified, short = qualified_names(named.__module__, named.__qualname__)
        super().__init__(name or qualified, short)
        self._make = CloudpickleWrapper(make)

    @override
    def __call__(self, **kwargs: object) -> gym.Env[Any, Any]:
        make, mode = self._make.fn, kwargs.get("render_mode")
        if mode is not None and mismatch(make, **kwargs):
            kwargs.pop("render_mode")
        env: object = make(**kwargs)
        if not isinstance(env, gym.Env):
            raise not_an_env(env, f"{self.name} has returned it")
        return _rendering(env, mode)

    @property
    def game(self) -> GameSource:
        """The same class or function as a source of PettingZoo environments."""
        return GameSource(self._make.fn)

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


class ExternalEnv(EnvSource):
    """One environment of the user, which is never closed and cannot be made again."""

    kind = "an instance"

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        self.env = env
        super().__init__(*names_of(env))

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
        return ExternalEnv(another_env(self.env, gym.make))

    @override
    def copies(self) -> EnvSource:
        env = self.env
        return EnvMaker(lambda: another_env(env, gym.make), self.name)

    @override
    def check(self, n: int, workers: int, more: Sequence[str]) -> None:
        if n > 1 or workers:
            raise _only_one(self.name, n, workers)


class GameSource(EnvSource):
    """A PettingZoo environment, its class, or a function that makes it; an instance is never closed."""

    kind = "a PettingZoo environment"

    def __init__(self, env: Any) -> None:  # noqa: ANN401 - PettingZoo brings no types
        self._env, self.kept = env, not callable(env)
        named = type(env) if self.kept else env
        label = getattr(env, "metadata", {}).get("name") if self.kept else None  # wrappers hide the class
        super().__init__(*qualified_names(named.__module__, label or named.__qualname__))

    @override
    def __call__(self, **kwargs: object) -> gym.Env[Any, Any]:
        raise not_an_env(self._env, "it was passed as the environment")

    def make(self, **kwargs: object) -> Any:  # noqa: ANN401 - PettingZoo brings no types
        """Return an environment. Raises ValueError if an instance has another render mode."""
        return self._env(**kwargs) if not self.kept else _rendering(self._env, kwargs.get("render_mode"))

    @override
    def another(self) -> EnvSource:
        return GameSource(copied(self._env, self.name)) if self.kept else self

    @override
    def check(self, n: int, workers: int, more: Sequence[str]) -> None:
        able = ("window", "film", *["arguments"] * (not self.kept))
        lacking = [*(what for what in more if what not in able), *["workers"] * bool(workers)]
        if lacking:
            raise UsageError(
                f"a PettingZoo environment passed as an object has no {' and no '.join(lacking)}",
                where=self.name,
                why="its agents are stepped together, in this process",
                fix="leave that out, or build it into the environment",
            )
        if self.kept and n > 1:
            raise _only_one(self.name, n, workers)


def not_an_env(value: object, why: str) -> UsageError:
    """Return the error for an object that is no environment."""
    of_gym = any(base.__module__ == "gym.core" for base in type(value).__mro__)
    several = several_agents(value)
    fix = (
        "pass a gymnasium.Env, its class, a function that returns one, a gymnasium.vector.VectorEnv, a "
        "TensorEnv, or the name of a task"
    )
    return (GamePassedError if is_game(value) else UsageError)(
        f"an object of type {type(value).__name__} is not an environment{' of one agent' * bool(several)}",
        where=f"{value!r:.80}",
        why=several or (f"{why}, and it is of gym, not of gymnasium" if of_gym else why),
        fix=ONE_AGENT if several else GYMNASIUM if of_gym else fix,
    )


def _only_one(name: str, n: int, workers: int) -> UsageError:
    """Return the error for several environments, or workers, of an object that is one in this process."""
    return UsageError(
        "an instance is one environment, in this process",
        where="base_config.n_envs, base_config.workers",
        why=f"{name} was passed as an instance, and n_envs is {n}, workers is {workers}",
        fix="pass its class, or a function that makes it",
    )


def copied(env: Any, name: str) -> Any:  # noqa: ANN401 - any environment
    """Return a deep copy for evaluations. Raises UsageError if there cannot be one."""
    try:
        return deep_copy(env)
    except Exception as error:
        raise UsageError(
            "evaluations need a second environment, and there is only one",
            where=name,
            why=f"a deep copy cannot be made: {described(error)}",
            fix="pass a second one: eval_env=…",
        ) from error


def qualified_names(module: str, qualified: str) -> tuple[str, str]:
    """Return the qualified name, and a short one that a folder can have."""
    return f"{module}.{qualified}", re.sub(r"[^\w.-]", "", re.split(r"[./:]", qualified)[-1]) or "env"


def names_of(env: gym.Env[Any, Any] | VectorEnv) -> tuple[str, str]:
    """Return the qualified name of an instance's class, and a short one: its id, if it has one."""
    env_class = type(env.unwrapped)
    name, short = qualified_names(env_class.__module__, env_class.__qualname__)
    return name, re.split(r"[/:]", env.spec.id)[-1] if env.spec else short


def _rendering(env: gym.Env[Any, Any], mode: object) -> gym.Env[Any, Any]:
    """Return the environment if its render mode is ``mode``. Raises ValueError for another mode."""
    if mode is not None and env.render_mode != mode:
        raise ValueError(f"its render_mode is {env.render_mode!r}; make it with {mode!r}, or use its class")
    return env
