"""Where an environment is looked at: copies of it that are made, reset and stepped as in a training."""

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

from algorithm.data import Bool, Float
from algorithm.env.adapter import Adapter
from algorithm.env.checks.finding import Finding, FindingError, error, note, refusal
from algorithm.env.observations import frame_stack
from algorithm.env.single import SpaceMismatchError, as_bool
from algorithm.errors import UserError

_T = TypeVar("_T")

_TRACE_FRAMES = 8  # of an environment's traceback, the innermost


@dataclass(frozen=True, kw_only=True)
class CheckLimits:
    """How long is looked; whichever comes first.

    steps:   of the long look at random episodes
    compared: steps of episodes that are played twice
    episodes: of the look at what they leave behind
    seconds: of the same; each experiment beside it gets a quarter
    total:   seconds after which no further copy is made, for environments that are slow
    """

    steps: int = 2000
    compared: int = 200
    episodes: int = 60
    seconds: float = 4.0
    total: float = 30.0


@dataclass(frozen=True, kw_only=True)
class CheckConfig:
    """What of the configuration matters here.

    seed_of:      episode -> seed of its reset, as in a training
    options:      given to every reset
    n_envs, workers, length_limit: ``base_config.n_envs``, ``workers`` and ``max_step_each_iter``
    normalised:   ``sac_config.use_normalization``
    rewards_scaled: ``sac_config.reward_scaling``
    reward_scale: ``base_config.reward_scale``
    vector_class: a training steps its copies by a vector class that the environment brings
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
    """What a reset returned."""

    obs: Any
    mask: Bool  # [ΣN]


class StepOutput(NamedTuple):
    """What a step returned."""

    obs: Any
    mask: Bool  # [ΣN]
    reward: Any
    terminated: bool
    truncated: bool


class EnvInstance:
    """One copy of the environment. A call that fails raises FindingError with all there is to know of it.

    seconds, calls: spent in "make", "reset" and "step", and how often
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
        """Begin the episode of ``seed``."""
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
        """Where it stands, for a person."""
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
                    fix="a mask has an entry for each choice, and leaves one open in each branch",
                )
            ) from failure
        return self._all_allowed if mask is None else mask

    def _where(self, action: Float | None) -> str:
        return self.place + ("" if action is None else f", action {format_values(action)}")


class CheckContext:
    """Makes copies and keeps what several checks look at.

    make:  builds the environment with its wrappers, without our adapter; its errors leave
    alarm: told whenever a call begins that may take long
    """

    def __init__(
        self,
        make: Callable[[], gym.Env[Any, Any]],
        setting: CheckConfig,
        limits: CheckLimits,
        *,
        alarm: Callable[[], None] = lambda: None,
    ) -> None:
        self._make, self.config, self.limits, self._alarm = make, setting, limits, alarm
        self._end = time.monotonic() + limits.total
        self._kept: dict[Callable[[CheckContext], Any], Any] = {}

    @contextmanager
    def instance(self) -> Iterator[EnvInstance]:
        """A fresh copy, closed afterwards. Raises FindingError."""
        instance = self._make_instance()
        try:
            yield instance
        except BaseException:
            with suppress(Exception):  # the first failure is the one to tell
                instance.env.close()
            raise
        self._alarm()
        try:
            instance.env.close()
        except Exception as failure:
            raise FindingError(call_failed("close", instance.place, failure)) from failure

    def deadline(self, share: float = 0.25) -> Callable[[], bool]:
        """Tells whether ``share`` of the time is over, counted from now."""
        self._alarm()
        end = time.monotonic() + share * self.limits.seconds
        return lambda: time.monotonic() >= end

    def enough(self, share: float = 1.0) -> Callable[[int], bool]:
        """Tells whether ``share`` of the steps to be compared are there, or the time for them is over."""
        late, steps = self.deadline(0.25 * share), share * self.limits.compared
        return lambda done: done > steps or late()

    def cached(self, look: Callable[[CheckContext], _T]) -> _T:
        """``look(self)``, done only once, whoever asks."""
        if look not in self._kept:
            self._kept[look] = look(self)
        found: _T = self._kept[look]
        return found

    def _make_instance(self) -> EnvInstance:
        if time.monotonic() > self._end:
            raise FindingError(note(f"not looked at: {self.limits.total:g} s are over", why="it is slow"))
        self._alarm()
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
    """The finding of a call that raised."""
    return error(
        f"the environment fails in {call}",
        where=where,
        why=f"{type(failure).__name__}: {failure}",
        fix="mend the environment; a training survives base_config.env_restarts failures and then ends",
        trace=format_trace(failure),
    )


def not_boolean(why: str, place: str = "") -> Finding:
    """The finding for an end that is neither true nor false."""
    return error(
        "whether the episode ended is neither true nor false",
        where=place,
        why=f"{why}: a training ends here, for any text would count as true",
        fix="return bool(terminated) and bool(truncated)",
    )


def wrong_result(call: str, result: object) -> Finding:
    """The finding of a call that returns something else than a Gymnasium environment does."""
    wanted = (
        "(observation, info)" if call == "reset" else "(observation, reward, terminated, truncated, info)"
    )
    count = f"{len(result)} values" if isinstance(result, tuple) else f"a {type(result).__name__}"
    return error(
        f"{call} returns {count} instead of {wanted}",
        where=call,
        why="that is the interface of the old gym package, or a mistake"
        if call == "step"
        else "without the tuple the observation itself would be taken apart",
        fix="return what gymnasium.Env documents; done becomes terminated (the task ended) and truncated "
        "(a limit cut it off)",
    )


def format_trace(failure: BaseException | None) -> str:
    """The innermost frames of a failure's traceback, without our own and Gymnasium's; empty for None."""
    if failure is None:
        return ""
    stack = traceback.TracebackException.from_exception(failure).stack
    frames = [frame for frame in stack if frame.filename != __file__ and not _is_gymnasium(frame)]
    told = [f"{at.filename}:{at.lineno} in {at.name}\n    {at.line}" for at in frames or stack]
    return "\n".join(told[-_TRACE_FRAMES:])


def _is_gymnasium(frame: traceback.FrameSummary) -> bool:
    """Its wrappers stand between us and the environment and tell nothing."""
    return Path(gym.__file__).parent in Path(frame.filename).parents


def format_values(values: Any, most: int = 6) -> str:  # noqa: ANN401 - anything array-like
    """``[0.1, -2]``, with at most ``most`` numbers."""
    flat = np.asarray(values).ravel()
    more = ", …" if flat.size > most else ""
    return f"[{', '.join(f'{part:.4g}' for part in flat[:most].tolist())}{more}]"
