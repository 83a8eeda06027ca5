"""The context of checks: environment instances that are built, reset and stepped as in a training."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import gymnasium as gym
import numpy as np

from algorithm.core.data import Bool, Float
from algorithm.core.errors import UserError, described
from algorithm.env.adapter import Adapter
from algorithm.env.checks.finding import Finding, FindingError, error, note, refusal
from algorithm.env.observations import frame_stack
from algorithm.env.single import SpaceMismatchError, as_bool

_T = TypeVar("_T")

_TRACE_FRAMES = 8  # of an environment's traceback, the innermost


@dataclass(frozen=True, kw_only=True)
class CheckLimits:
    """Limits of the checks; whichever comes first.

    steps:   of the random episodes for statistics
    compared: steps of episodes that are played twice
    episodes: for the memory check
    seconds: of the same; each other experiment gets a quarter
    total:   seconds after which no further instance is built, for slow environments
    """

    steps: int = 2000
    compared: int = 200
    episodes: int = 60
    seconds: float = 4.0
    total: float = 30.0


@dataclass(frozen=True, kw_only=True)
class CheckConfig:
    """The part of the configuration that checks need.

    seed_of:      episode -> seed of its reset, as in a training
    options:      passed to every reset
    n_envs, workers, length_limit: ``base_config.n_envs``, ``workers`` and ``max_step_each_iter``
    normalised:   observations are, ``use_normalization``
    rewards_scaled: ``reward_scaling``
    reward_scale: ``base_config.reward_scale``
    vector_class: a training uses the environment's own vector class
    """

    seed_of: Callable[[int], int]
    options: Mapping[str, Any] | None = None
    n_envs: int = 1
    workers: int = 0
    length_limit: int = -1
    normalised: bool = False
    rewards_scaled: bool = False
    reward_scale: float = 1.0
    vector_class: bool = False


class ResetOutput(NamedTuple):
    """Result of a reset."""

    obs: Any
    mask: Bool  # [ΣN]


class StepOutput(NamedTuple):
    """Result of a step."""

    obs: Any
    mask: Bool  # [ΣN]
    reward: Any
    terminated: bool
    truncated: bool


class EnvInstance:
    """One instance of the environment. A call that fails raises FindingError with all details.

    seconds, calls: time and number of calls of "make", "reset" and "step"
    """

    def __init__(self, env: gym.Env[Any, Any], options: Mapping[str, Any] | None, made_in: float) -> None:
        self.env = env
        self.name = env.spec.id if env.spec else type(env.unwrapped).__name__
        self.time_limit = env.spec.max_episode_steps if env.spec else None
        self.adapter = Adapter(env.observation_space, env.action_space, self.name, stack=frame_stack(env))
        self.spec = self.adapter.spec
        self._all_allowed: Bool = self.spec.action.all_allowed()
        self._options = dict(options) if options else None
        self.seconds = {"make": made_in, "reset": 0.0, "step": 0.0}
        self.calls = {"make": 1, "reset": 0, "step": 0}
        self._seed, self._step = 0, 0

    def reset(self, seed: int) -> ResetOutput:
        """Start the episode of ``seed``."""
        self._seed, self._step = seed, 0
        obs, info = self._call("reset", lambda: self.env.reset(seed=seed, options=self._options))
        return ResetOutput(obs, self._mask(obs, info, over=False))

    def step(self, flat: Float) -> StepOutput:
        """Take a flat action [A]."""
        self._step += 1
        action = self.adapter.actions.to_env(flat)
        taken = self._call("step", lambda: self.env.step(action), flat)
        obs, reward, terminated, truncated, info = taken
        try:
            over, cut = as_bool(terminated, "terminated"), as_bool(truncated, "truncated")
        except SpaceMismatchError as failure:
            raise FindingError(not_boolean(str(failure), self.place)) from failure
        return StepOutput(obs, self._mask(obs, info, over=over), reward, over, cut)

    @property
    def place(self) -> str:
        """Current seed and step, for messages."""
        return f"seed {self._seed}, step {self._step}"

    def _call(self, call: str, run: Callable[[], Any], action: Float | None = None) -> Any:  # noqa: ANN401
        began = time.perf_counter()
        try:
            result = run()
        except Exception as failure:
            raise FindingError(call_failed(call, self._where(action), failure)) from failure
        self.seconds[call] += time.perf_counter() - began
        self.calls[call] += 1
        if not isinstance(result, tuple) or len(result) != (2 if call == "reset" else 5):
            raise FindingError(wrong_result(call, result))
        return result

    def _mask(self, obs: Any, info: Any, *, over: bool) -> Bool:  # noqa: ANN401 - a space may hold anything
        try:
            mask = self.adapter.masks.read(obs, info, over=over)
        except (SpaceMismatchError, AttributeError) as failure:
            raise FindingError(
                error(
                    "the action mask does not fit" if isinstance(info, dict) else "the info is no dict",
                    where=self.place,
                    why=str(failure),
                    fix="a mask has an entry for each choice, and allows one in each branch",
                )
            ) from failure
        return self._all_allowed if mask is None else mask

    def _where(self, action: Float | None) -> str:
        return self.place + ("" if action is None else f", action {format_values(action)}")


class CheckContext:
    """A factory of instances, and a cache of results that several checks need.

    make:    builds the environment with its wrappers, without the adapter; its errors leave
    on_call: called before each call that may take long
    """

    def __init__(
        self,
        make: Callable[[], gym.Env[Any, Any]],
        setting: CheckConfig,
        limits: CheckLimits,
        *,
        on_call: Callable[[], None] = lambda: None,
    ) -> None:
        self._make, self.config, self.limits, self._on_call = make, setting, limits, on_call
        self._end = time.monotonic() + limits.total
        self._cache: dict[Callable[[CheckContext], Any], Any] = {}

    @contextmanager
    def instance(self) -> Iterator[EnvInstance]:
        """Provide a new instance, closed afterwards. Raises FindingError."""
        instance = self._make_instance()
        try:
            yield instance
        except BaseException:
            with suppress(Exception):  # the first failure is raised
                instance.env.close()
            raise
        self._on_call()
        try:
            instance.env.close()
        except Exception as failure:
            raise FindingError(call_failed("close", instance.place, failure)) from failure

    def deadline(self, share: float = 0.25) -> Callable[[], bool]:
        """Return a function: whether ``share`` of the time is over, from now."""
        self._on_call()
        end = time.monotonic() + share * self.limits.seconds
        return lambda: time.monotonic() >= end

    def enough(self, share: float = 1.0) -> Callable[[int], bool]:
        """Return a function: whether ``share`` of the compared steps, or of their time, is over."""
        late, steps = self.deadline(0.25 * share), share * self.limits.compared
        return lambda done: done > steps or late()

    def cached(self, measure: Callable[[CheckContext], _T]) -> _T:
        """Return ``measure(self)``, computed once."""
        if measure not in self._cache:
            self._cache[measure] = measure(self)
        found: _T = self._cache[measure]
        return found

    def _make_instance(self) -> EnvInstance:
        if time.monotonic() > self._end:
            raise FindingError(note(f"not checked: {self.limits.total:g} s are over", why="it is slow"))
        self._on_call()
        began = time.perf_counter()
        try:
            env = self._make()
        except UserError as refused:
            raise FindingError(refusal(refused, format_trace(refused.__cause__))) from refused
        except Exception as failure:
            raise FindingError(call_failed("make", type(failure).__name__, failure)) from failure
        try:
            return EnvInstance(env, self.config.options, time.perf_counter() - began)
        except UserError as refused:
            env.close()
            raise FindingError(refusal(refused)) from refused


def call_failed(call: str, where: str, failure: BaseException) -> Finding:
    """Return the finding of a call that raised."""
    return error(
        f"the environment fails in {call}",
        where=where,
        why=described(failure),
        fix="fix the environment; a training survives base_config.env_restarts failures and then ends",
        trace=format_trace(failure),
    )


def not_boolean(why: str, place: str = "") -> Finding:
    """Return the finding for an end that is neither true nor false."""
    return error(
        "whether the episode ended is neither true nor false",
        where=place,
        why=f"{why}: a training ends here, for any text would count as true",
        fix="return bool(terminated) and bool(truncated)",
    )


def wrong_result(call: str, result: object) -> Finding:
    """Return the finding of a call with another result than a Gymnasium environment's."""
    wanted = (
        "(observation, info)" if call == "reset" else "(observation, reward, terminated, truncated, info)"
    )
    count = f"{len(result)} values" if isinstance(result, tuple) else f"a {type(result).__name__}"
    return error(
        f"{call} returns {count} instead of {wanted}",
        where=call,
        why="that is the interface of the old gym package, or a mistake"
        if call == "step"
        else "without the tuple the observation itself would be unpacked",
        fix="return what gymnasium.Env documents; done becomes terminated (the task ended) and truncated "
        "(a limit cut it off)",
    )


def format_trace(failure: BaseException | None) -> str:
    """Format the innermost frames of a traceback, without the project's and Gymnasium's; empty for None."""
    if failure is None:
        return ""
    stack = traceback.TracebackException.from_exception(failure).stack
    frames = [frame for frame in stack if frame.filename != __file__ and not _is_gymnasium(frame)]
    text = [f"{at.filename}:{at.lineno} in {at.name}\n    {at.line}" for at in frames or stack]
    return "\n".join(text[-_TRACE_FRAMES:])


def _is_gymnasium(frame: traceback.FrameSummary) -> bool:
    """Return whether the frame is in one of Gymnasium's own wrappers."""
    return Path(gym.__file__).parent in Path(frame.filename).parents


def format_values(values: Any, most: int = 6) -> str:  # noqa: ANN401 - anything array-like
    """Format ``[0.1, -2]``, with at most ``most`` numbers."""
    flat = np.asarray(values).ravel()
    more = ", …" if flat.size > most else ""
    return f"[{', '.join(f'{part:.4g}' for part in flat[:most].tolist())}{more}]"
