"""Callbacks, a user's own code at points of a training: passed in Python, or named in the configuration."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from traceback import extract_tb
from typing import TYPE_CHECKING, Any, TypeAlias

from typing_extensions import override

from algorithm.agents.base import Agent
from algorithm.core.console import Evaluation
from algorithm.core.data import Episode
from algorithm.core.errors import UsageError, UserError, described
from algorithm.env.env_id import advice, import_source, resolve_env_id, suggest_name
from algorithm.env.outputs import SpaceMismatchError, as_number
from algorithm.nn.process import others_modes
from algorithm.run.counters import Counters
from algorithm.run.signals import StopRequest

if TYPE_CHECKING:
    from algorithm.config.schema import Config

_KEY = "base_config.callbacks"

_NAME = re.compile(r"\w[\w.-]*(/[\w.-]+)*")
"""Form of a valid name of a callback's metric."""


class CallbackError(UserError):
    """A callback has raised an error. The run has ended and is saved."""

    exit_code = 1


class Training:
    """The running training that callbacks get.

    folder: folder of the run
    config: full configuration
    agents: agents by behavior
    """

    def __init__(
        self,
        folder: Path,
        config: Config,
        agents: Mapping[str, Agent],
        counters: Counters,
        stop: StopRequest,
    ) -> None:
        self.folder, self.config, self.agents = folder, config, agents
        self._counters, self._stop = counters, stop

    @override
    def __repr__(self) -> str:
        return f"Training({str(self.folder)!r}, step={self.step:,}, episodes={self.episodes:,})"

    @property
    def step(self) -> int:
        """Environment steps so far, over all agents."""
        return self._counters.step

    @property
    def updates(self) -> int:
        """Gradient steps so far, over all agents."""
        return sum(agent.updates for agent in self.agents.values())

    @property
    def episodes(self) -> int:
        """Finished episodes so far."""
        return self._counters.episodes

    def log(self, name: str, value: float) -> None:
        """Log a number as the metric callback/NAME.

        name:  letters, digits and . _ - / between them
        value: number, or an array or tensor with one
        Each row of metrics has the mean since the last row, without NaN and infinity. Raises UsageError if
        the value is not a number or the name is not valid.
        """
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            fix = "use letters, digits and . _ - / between them"
            raise UsageError("a metric cannot have that name", where=f"training.log({name!r:.80})", fix=fix)
        try:
            self._counters.log(name, as_number(value, name))
        except SpaceMismatchError as error:
            fix = "log a number: an int, a float, or an array or tensor with one"
            raise UsageError(
                "a metric is not a number", where=f"training.log({name!r})", why=str(error), fix=fix
            ) from None

    def stop(self, why: str = "a callback has ended the training") -> None:
        """Stop the training after this step. It is saved and can be resumed.

        why: reason that the result shows
        """
        self._stop.set(why)


class Callback:
    """Base class of callbacks. All methods are called in the process that learns.

    If a method raises, the run is saved and ends, and the error is shown with its traceback.
    """

    def on_start(self, training: Training) -> None:
        """Before the first step of this process, after a resumed run is restored."""

    def on_step(self, training: Training) -> None:
        """After each step of all environments and its updates."""

    def on_rollout_end(self, training: Training) -> None:
        """After the updates on a rollout (PPO and other on-policy algorithms) or after those of a step."""

    def on_episode(self, training: Training, episode: Episode) -> None:
        """After each finished episode."""

    def on_evaluation(self, training: Training, evaluation: Evaluation) -> None:
        """After an evaluation, once for each behavior: step, mean, confidence interval, episodes."""

    def on_checkpoint(self, training: Training) -> None:
        """After a checkpoint is written below training.folder / "checkpoints"."""

    def on_end(self, training: Training) -> None:
        """At the end, after the last checkpoint, unless an error ended the training."""


_POINTS = {name: method for name, method in vars(Callback).items() if name.startswith("on_")}


class Until(Callback):
    """A callback that ends a call of ``learn`` at a step.

    step: step of the run; at 0 nothing is trained
    """

    def __init__(self, step: int) -> None:
        self.step = step

    @override
    def on_start(self, training: Training) -> None:
        self.on_step(training)

    @override
    def on_step(self, training: Training) -> None:
        if training.step >= self.step:
            training.stop(f"this call of learn ends at step {self.step:,}")


def end_of_learn(callbacks: Iterable[Callback]) -> int | None:
    """Return the step at which a call of ``learn`` ends; None without one."""
    return next((callback.step for callback in callbacks if isinstance(callback, Until)), None)


class Callbacks:
    """Callbacks of a training, called in order; a point that no callback overrides costs nothing.

    Raises UsageError for an object that is no callback, and for a method ``on_…`` that belongs to no point.

    until: see :func:`end_of_learn`
    """

    def __init__(self, callbacks: Iterable[Callback] = ()) -> None:
        self._all = [_checked(callback) for callback in callbacks]
        self.until = end_of_learn(self._all)
        self._training: Training | None = None
        self._points = {
            name: [
                getattr(callback, name)
                for callback in self._all
                if getattr(type(callback), name) is not method
            ]
            for name, method in _POINTS.items()
        }

    def attach(self, training: Training) -> None:
        """Set the training that callbacks get."""
        self._training = training

    def call(self, point: str, *arguments: object) -> None:
        """Call the methods of a point of all callbacks. Raises CallbackError for whatever they raise."""
        for method in self._points[point]:
            try:
                with others_modes():
                    method(self._training, *arguments)
            except BaseException as error:  # SystemExit and its like are errors of the callback as well
                owner = type(method.__self__).__name__
                raise CallbackError(
                    f"{owner}.{point} raised an error",
                    where=_place(error),
                    why=described(error),
                    fix="fix it and resume: the run is saved; train.log has the traceback",
                ) from error


def load_callbacks(entries: Sequence[Mapping[str, Mapping[str, Any] | None]], folder: Path) -> list[Callback]:
    """Make the callbacks of ``base_config.callbacks``.

    folder: of the task, which is searched first for files
    Raises UsageError for one that cannot be imported or built, or is no :class:`Callback`.
    """
    return [_make(name, kwargs or {}, folder) for entry in entries for name, kwargs in entry.items()]


def _make(name: str, kwargs: Mapping[str, Any], folder: Path) -> Callback:
    """Make a callback from ``module:Class`` or ``file.py:Class``. Raises UsageError."""
    source, colon, wanted = resolve_env_id(name, folder, key=_KEY).rpartition(":")
    if not colon:
        raise _unusable(name, "it does not name a module", "write module:Class or file.py:Class")
    try:
        with others_modes():
            factory = getattr(import_source(source), wanted)
            made = factory(**kwargs)
    except (Exception, SystemExit) as error:
        why = described(error)
        fix = (
            "module:Class and file.py:Class are searched for in the task's folder and on Python's module path"
        )
        raise _unusable(name, why, advice(error, fix)) from error
    return _checked(made, name)


def _checked(callback: object, name: str = "") -> Callback:
    """Return the callback. Raises UsageError for another object, and for a method that nothing would call."""
    if not isinstance(callback, Callback):
        kind = callback.__name__ if isinstance(callback, type) else type(callback).__name__
        fix = "derive it from asac.Callback" + ", and pass an instance" * isinstance(callback, type)
        raise _unusable(name or kind, f"{kind} is not a Callback", fix)
    owner = type(callback)
    for method in dir(owner):
        if method.startswith("on_") and method not in _POINTS and callable(getattr(owner, method)):
            why = f"{method} is not a method of callbacks and would never be called"
            fix = f"rename {owner.__name__}.{method}; {suggest_name(method, [*_POINTS])}"
            raise _unusable(name or owner.__name__, why, fix)
    return callback


def _unusable(name: str, why: str, fix: str) -> UsageError:
    """Return the error for a callback that cannot be used."""
    return UsageError(f"the callback {name!r} cannot be used", where=_KEY, why=why, fix=fix)


def _place(error: BaseException) -> str:
    """Return file and line where an error was raised; empty without a traceback."""
    frames = extract_tb(error.__traceback__)
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""


CallbackLike: TypeAlias = Sequence[Callback] | Callback


def all_callbacks(callbacks: CallbackLike) -> list[Callback]:
    """Return callbacks as a list."""
    return [callbacks] if isinstance(callbacks, Callback) else [*callbacks]
