"""All Unity players of a vector environment: start, concurrent calls, replacement."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np

from algorithm.core.errors import EnvError, UsageError
from algorithm.core.system.display import has_display
from algorithm.env.base import Fault
from algorithm.env.config import without_team
from algorithm.env.pool.env_group import GroupFailure, RestartBudget
from algorithm.env.request import EnvRequest
from algorithm.extras.unity.player import PlayerError
from algorithm.extras.unity.slot import PlayerMessage, PlayerSlot
from algorithm.extras.unity.spaces import UnityBehaviour, changed_spaces

_T = TypeVar("_T")


class Players:
    """``n`` players, called concurrently by threads; failed ones are replaced while the budget lasts.

    behaviours: of all players at the start, by Unity's names

    Raises UsageError for a window without a display.
    """

    def __init__(self, request: EnvRequest) -> None:
        _check_display(request)
        self.slots = [PlayerSlot(index, request) for index in range(request.n)]
        self.rng = np.random.default_rng(request.seed_of(0, request.since))
        self.behaviours: Mapping[str, UnityBehaviour] = {}
        self._timeout = request.timeout
        self._on_fault = request.on_fault
        self._budget = RestartBudget(request.restarts, request.on_fault)
        self._threads = ThreadPoolExecutor(request.n, thread_name_prefix="unity player")
        try:
            self._start(request)
        except BaseException:
            self.close()
            raise

    def _start(self, request: EnvRequest) -> None:
        """Start all players; report images that are black, and unusual versions of the protocol."""
        self.behaviours = self._wait_for_behaviours(request.behaviours)
        if request.unity.no_graphics and not request.unity.editor and (black := _black_images(self.slots)):
            self._remark(
                "images are black: Unity players have no graphics (base_config.unity_args.no_graphics)",
                where=", ".join(black),
            )
        for slot in self.slots:
            self._remark(slot.player.remark, where=slot.place)

    def close(self) -> None:
        """End all players, within five seconds."""
        # By new threads: those that step may still wait for players after an exception.
        with ThreadPoolExecutor(len(self.slots)) as threads:
            list(threads.map(PlayerSlot.close, self.slots))
        self._threads.shutdown()

    def on_all(
        self, slots: Sequence[PlayerSlot], call: Callable[[PlayerSlot], _T]
    ) -> dict[int, _T | Exception]:
        """Call a function for each player concurrently; return results or exceptions by index."""
        if len(slots) < 2:
            return {slot.index: _caught(call, slot) for slot in slots}
        running = {slot.index: self._threads.submit(_caught, call, slot) for slot in slots}
        return {index: future.result() for index, future in running.items()}

    def survived(
        self, slots: Sequence[PlayerSlot], outcomes: Mapping[int, PlayerMessage | Exception]
    ) -> dict[int, PlayerMessage]:
        """Return the message of each player, by index; replace failed players, return their first one.

        Raises EnvError once the budget of replacements is spent, and other errors at once.
        """
        messages: dict[int, PlayerMessage] = {}
        for slot in slots:
            outcome = outcomes[slot.index]
            while isinstance(outcome, PlayerError):
                self._survive(outcome, slot)
                outcome = _caught(_restart, slot)
            if isinstance(outcome, Exception):
                raise outcome
            messages[slot.index] = outcome
        return messages

    def _survive(self, error: PlayerError, slot: PlayerSlot) -> None:
        """Count a failure. Raises EnvError if the budget is spent."""
        why, _, more = error.why.partition("\n")
        failure = GroupFailure(
            envs=(slot.index,), culprit=None, what=error.what, why=why, trace=f"{error.where}\n{more}"
        )
        try:
            self._budget.survive(failure, slot.place)
        except EnvError as last:
            raise EnvError(
                error.what,
                where=f"{slot.place}\n{error.where}",
                why=error.why,
                fix=f"{error.fix}\n{last.fix}" if self._budget.spent else error.fix,
            ) from error

    def compare(self, slot: PlayerSlot) -> None:
        """Raise EnvError if a player has a new behaviour, or one with other spaces than at the start."""
        for name, behaviour in slot.behaviours.items():
            if name not in self.behaviours:
                raise EnvError(
                    f"the Unity behaviour {name} appeared late",
                    why=f"there are networks for {', '.join(self.behaviours)} only: it was not in the scene "
                    "at the start",
                    fix=(
                        f"announce it, so that the start waits for it: ma_config: {{{without_team(name)}: "
                        "{}}"
                    ),
                )
            before = self.behaviours[name]
            if behaviour.differs(before):
                raise changed_spaces(name, before.describe(), behaviour.describe())
        slot.compared = len(slot.behaviours)

    def _wait_for_behaviours(self, awaited: Sequence[str]) -> dict[str, UnityBehaviour]:
        """Start all players and return their behaviours; step at random until the ``awaited`` have appeared.

        These episodes are dropped: a reset follows. Raises UsageError if a behaviour does not appear in time.
        """
        end = time.monotonic() + self._timeout if self._timeout > 0 else float("inf")
        self._begin()
        while True:
            behaviours = self._present_behaviours()
            there = {*behaviours, *(without_team(name) for name in behaviours)}
            missing = [name for name in awaited if name not in there]
            if behaviours and not missing:
                return dict(sorted(behaviours.items()))
            if time.monotonic() > end:
                raise _absent(missing, behaviours, self._timeout)
            generators = {slot.index: self.rng.spawn(1)[0] for slot in self.slots}
            stepped = self.on_all(self.slots, lambda slot: slot.random_step(generators[slot.index]))  # noqa: B023
            self.survived(self.slots, stepped)

    def _present_behaviours(self) -> dict[str, UnityBehaviour]:
        """Return the behaviours that have appeared. Raises EnvError if players differ in their spaces."""
        behaviours: dict[str, UnityBehaviour] = {}
        for slot in self.slots:
            for name, behaviour in slot.behaviours.items():
                if behaviours.setdefault(name, behaviour).differs(behaviour):
                    raise changed_spaces(name, behaviours[name].describe(), behaviour.describe())
        return behaviours

    def _begin(self) -> None:
        """Start and reset all players; raise the error of one that ends, since a new one would end too."""
        outcomes = self.on_all(self.slots, _restart)
        for outcome in outcomes.values():
            if isinstance(outcome, PlayerError) and outcome.kind != "hangs":
                raise outcome
        self.survived(self.slots, outcomes)

    def _remark(self, text: str, *, where: str) -> None:
        """Report a remark that is not a failure; an empty one is ignored."""
        if text:
            fix = "it continues"  # a training, an evaluation, a check
            self._on_fault(Fault(what=text, where=where, why="", fix=fix))


def _check_display(request: EnvRequest) -> None:
    """Raise UsageError for a player's window on a machine without a display."""
    if request.render and not request.unity.editor and not has_display():
        raise UsageError(
            "the Unity player cannot be shown",
            where="--render",
            why="this machine has no display",
            fix="use --run instead of --watch; ssh -X provides a display, and xvfb-run an invisible one",
        )


def _caught(call: Callable[[PlayerSlot], _T], slot: PlayerSlot) -> _T | Exception:
    """Return the result of a call, or the exception that it raised."""
    try:
        return call(slot)
    except Exception as error:
        return error


def _restart(slot: PlayerSlot) -> PlayerMessage:
    """Start a new player; return its first message. Raises as :class:`Player`."""
    slot.start()
    return slot.reset()


def behaviour_names(names: Iterable[str], awaited: Sequence[str], *, shared: bool = False) -> dict[str, str]:
    """Return Unity's name -> ours: without the team, unless there are several or ``awaited`` names it.

    shared: whether teams share a behaviour, which has no team in its name then
    """
    plain = [without_team(name) for name in names]
    return {
        name: short if shared or (plain.count(short) == 1 and name not in awaited) else name
        for name, short in zip(names, plain, strict=True)
    }


def _absent(missing: Sequence[str], present: Iterable[str], timeout: float) -> EnvError | UsageError:
    """Return the error of behaviours that have not appeared within ``timeout`` seconds."""
    if not missing:
        return EnvError(
            "the Unity scene has no agents",
            why=f"no behaviour appeared within {timeout:g} s",
            fix="put an agent into the scene whose Behavior Type is Default",
        )
    return UsageError(
        f"ma_config names {', '.join(map(repr, missing))}, which the Unity scene does not have",
        where="ma_config",
        why=f"within {timeout:g} s (base_config.env_timeout) only {', '.join(map(repr, present))} appeared",
        fix="rename or remove that part of ma_config, or raise env_timeout if it appears later",
    )


def _black_images(slots: Sequence[PlayerSlot]) -> list[str]:
    """Return the names of image sensors whose last images are black in all players."""
    lit: dict[str, bool] = {}
    for slot in slots:
        for name, behaviour in slot.behaviours.items():
            asking, _ = slot.player.env.get_steps(name)
            for sensor in behaviour.seen.values() if len(asking) else ():
                if sensor.axes:
                    what = f"{sensor.name} of {name}"
                    lit[what] = lit.get(what, False) or bool(asking.obs[sensor.name].any())
    return [what for what, seen in lit.items() if not seen]
