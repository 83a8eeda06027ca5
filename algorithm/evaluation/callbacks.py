"""Who looks on while episodes are played: nobody, a function, a recording, a film."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

from algorithm.data import Segment
from algorithm.env.base import VecEnv
from algorithm.run.non_finite import OnNonFinite
from algorithm.run.rollout import Episode, Player, Recorder, Rollout


class Watcher(Protocol):
    """Told of what happens; it must leave environments and arrays as they are."""

    def recorder(self, behaviour: str) -> Recorder | None:
        """Who is told of every step of the agents of a behaviour; None if nobody wants to know.

        ``add`` gets a :class:`~algorithm.data.Segment` of one transition per agent and step: what it saw
        before and after (``obs`` name -> [2, ...], ``action_mask`` [2, ΣN]), its hidden state before each of
        these (``carry`` [2, *C], of width 0 without memory), what it did (flat ``action`` [1, A]) and got
        (``reward``, ``terminated``, ``truncated`` [1]). ``stream`` is the agent's id, ``start_step`` the step
        in its episode. ``close`` says that an agent's episode was lost without an end.
        """
        ...

    def begin(self) -> None:
        """The environments stand at their first observations."""
        ...

    def step(self, ended: Sequence[Episode]) -> None:
        """All environments took a step; ``ended`` are the episodes that it finished."""
        ...

    def end(self) -> None:
        """Nothing follows, be it that all was played, or that an error or a signal ended it."""
        ...


class Nobody:
    """No one looks on, which costs nothing; also the base of who wants only a part of it."""

    def recorder(self, behaviour: str) -> Recorder | None:
        """Nobody."""
        return None

    def begin(self) -> None:
        """Nothing."""

    def step(self, ended: Sequence[Episode]) -> None:
        """Nothing."""

    def end(self) -> None:
        """Nothing."""


NOBODY = Nobody()


class Callback(Nobody):
    """Calls ``told(behaviour, segment)`` for every transition of every agent; see :class:`Watcher`."""

    def __init__(self, told: Callable[[str, Segment], None]) -> None:
        self._told = told

    def recorder(self, behaviour: str) -> Recorder:
        """One that calls back."""
        return _CallingBack(behaviour, self._told)


class Audience:
    """Several who look on, told in their order."""

    def __init__(self, *watchers: Watcher) -> None:
        self._watchers = watchers

    def recorder(self, behaviour: str) -> Recorder | None:
        """All of those who want to know."""
        found = [watcher.recorder(behaviour) for watcher in self._watchers]
        recorders = [recorder for recorder in found if recorder is not None]
        return _Recorders(recorders) if recorders else None

    def begin(self) -> None:
        """To all."""
        for watcher in self._watchers:
            watcher.begin()

    def step(self, ended: Sequence[Episode]) -> None:
        """To all."""
        for watcher in self._watchers:
            watcher.step(ended)

    def end(self) -> None:
        """To all, even where one of them fails."""
        _end(self._watchers)


class Show:
    """A rollout with who looks on; made by :func:`shown`."""

    def __init__(self, rollout: Rollout, watcher: Watcher) -> None:
        self.rollout, self._watcher = rollout, watcher

    def step(self) -> list[Episode]:
        """See :meth:`~algorithm.run.rollout.Rollout.step`."""
        ended = self.rollout.step()
        self._watcher.step(ended)
        return ended


@contextmanager
def shown(
    env: VecEnv,
    players: Mapping[str, Player],
    watcher: Watcher,
    *,
    num_envs: int | None = None,
    length_limit: int = -1,
    on_non_finite: OnNonFinite | None = None,
) -> Iterator[Show]:
    """A rollout from episode 0 on; the watcher is told its end, however that comes.

    num_envs, length_limit, on_non_finite: see :class:`~algorithm.run.rollout.Rollout`
    """
    try:
        found = {name: watcher.recorder(name) for name in players}
        recorders = {name: recorder for name, recorder in found.items() if recorder is not None}
        rollout = Rollout(
            env,
            players,
            recorders,
            num_envs=num_envs,
            length_limit=length_limit,
            on_non_finite=on_non_finite,
        )
        watcher.begin()
        yield Show(rollout, watcher)
    finally:
        watcher.end()


def _end(watchers: Sequence[Watcher]) -> None:
    if watchers:
        try:
            watchers[0].end()
        finally:
            _end(watchers[1:])


class _CallingBack:
    def __init__(self, behaviour: str, told: Callable[[str, Segment], None]) -> None:
        self._behaviour, self._told = behaviour, told

    def add(self, segment: Segment) -> None:
        self._told(self._behaviour, segment)

    def close(self, stream: int) -> None:
        """The next transition of this agent begins with ``start_step`` 0, which says the same."""


class _Recorders:
    def __init__(self, recorders: Sequence[Recorder]) -> None:
        self._recorders = recorders

    def add(self, segment: Segment) -> None:
        for recorder in self._recorders:
            recorder.add(segment)

    def close(self, stream: int) -> None:
        for recorder in self._recorders:
            recorder.close(stream)
