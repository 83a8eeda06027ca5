"""The learner's answers to its actors, given in the server's event loop, which nothing here blocks."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from algorithm.spec import AgentSpec
from ds.actors import Actors, Verdict
from ds.board import Board
from ds.checking import BadMessage, check_beat, check_parcel
from ds.compatibility import differences, digest
from ds.inbox import Inbox
from ds.members import shown
from ds.protocol import Beat, Bye, Hello, Join, Joined, Parcel, Part, Receipt, Refused, State, Wanted, Welcome

_AT_ONCE: Mapping[Verdict, State] = {
    "taken before": "taken",
    "stale before": "stale",
    "rejected before": "rejected",
    "unknown": "unknown",
    "busy": "again",
}
"""What is answered without a look at the parcel."""

MAX_LANES = 64
MANY = 64
"""Parts of a parcel that take a while to be looked at."""

MAX_DIFFERENCES = 50


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What an actor must fit.

    agreed:       see :func:`ds.compatibility.agreed`
    specs, carry_shapes: by behaviour; of one stored carry, (0,) where none is stored
    max_length:   L of the longest segment
    max_message:  bytes of the largest parcel
    synchronous:  a parcel is answered only when it has been learned from
    room_timeout: seconds that a parcel waits for room before its actor is asked to send it again
    """

    agreed: Mapping[str, Any]
    specs: Mapping[str, AgentSpec]
    carry_shapes: Mapping[str, tuple[int, ...]]
    max_length: int
    max_message: int
    synchronous: bool
    room_timeout: float


class Service:
    """Actors, inbox and board as the server sees them; see :mod:`ds.protocol` for what is asked."""

    def __init__(self, actors: Actors, inbox: Inbox, board: Board, terms: Terms) -> None:
        self._actors, self._inbox, self._board, self._terms = actors, inbox, board, terms
        self._digest = digest(terms.agreed)
        self._storing: set[asyncio.Task[Receipt]] = set()

    def knows(self, actor: str) -> bool:
        """Whether an actor is here."""
        return self._actors.number(actor) is not None

    def unknown(self, kind: type[Any]) -> Receipt | Joined:
        """It is to say hello first."""
        return self._joined((), "unknown") if kind is Join else self._receipt("unknown")

    async def hello(self, hello: Hello, peer: str) -> Welcome | Refused:
        """Who has been silent for too long makes room first."""
        self._expire()
        return self._actors.hello(hello)

    async def join(self, join: Join) -> Joined | Refused:
        """Refused, and its slot freed, if the actor's settings are others or it counts what cannot be."""
        refused = self._mismatch(join)
        if refused is not None:
            why = "; ".join(refused.differences) or refused.reason
            self._depart(Bye(actor=join.actor, reason=f"it does not fit: {why}"))
            return refused
        lanes = self._actors.joined(join)
        if lanes is None:
            return self._joined(join.lanes, "unknown")
        self._board.seen(join.version)
        return self._joined(lanes, "taken")

    async def deliver(self, parcel: Parcel) -> Receipt:
        """Answered when the parcel is in the inbox, in synchronous mode when it has been learned from.

        An actor that hangs up does not interrupt that: else nobody knew whether the parcel had come in.
        """
        if self._board.finished:
            return self._receipt("finished")
        verdict = self._actors.accept(parcel, self._board.newest)
        if verdict in _AT_ONCE:
            return self._receipt(_AT_ONCE[verdict], "it came before" if "before" in verdict else "")
        if verdict == "no lane":
            return self._reject(parcel, f"lane {parcel.lane} is none of those it joined with")
        if verdict == "no count":
            reason = f"number {parcel.number}, {parcel.dropped} steps given up: neither follows from before"
            return self._reject(parcel, reason)
        storing = asyncio.ensure_future(self._store(parcel, stale=verdict == "stale"))
        self._storing.add(storing)  # a loop keeps no task alive by itself
        storing.add_done_callback(self._storing.discard)
        return await asyncio.shield(storing)

    async def beat(self, beat: Beat) -> Receipt:
        """Whether the actor is known, and the news."""
        try:
            dropped = self._actors.dropped(beat.actor)
            check_beat(beat, version=self._board.furthest, dropped=dropped)
        except BadMessage as error:
            self._actors.turned_away("rejected", f"a beat: {error}")
            return self._receipt("rejected", str(error))
        known = self._actors.beat(beat, self._board.newest)
        self._expire()
        if self._board.finished:
            return self._receipt("finished")
        return self._receipt("taken" if known else "unknown")

    async def bye(self, bye: Bye) -> None:
        """The slot is free at once."""
        self._depart(bye)

    def weights(self, wanted: Wanted) -> tuple[bytes, ...]:
        """The newest weights in pieces; none if the actor has them."""
        return self._board.weights(wanted.than)

    def _mismatch(self, join: Join) -> Refused | None:
        if self._terms.synchronous and len(join.lanes) != 1:
            reason = f"{len(join.lanes)} lanes: a synchronous learner takes parcels from one"
            return Refused(why="malformed", reason=reason)
        doubt = self._doubt(join)
        if doubt:
            self._actors.turned_away("rejected", f"a join: {doubt}")
            return Refused(why="malformed", reason=doubt, fix="start the actor anew")
        if join.digest == self._digest:
            return None
        found = differences(join.agreed, self._terms.agreed)
        return Refused(
            why="differs",
            reason="the actor has other settings than the learner",
            differences=tuple(shown(line) for line in found[:MAX_DIFFERENCES]),
            fix="start the actor with the learner's configuration, networks and versions",
        )

    def _doubt(self, join: Join) -> str:
        """What of an actor's counts cannot be; empty if all may be."""
        if not 1 <= len(join.lanes) <= MAX_LANES:
            return f"{len(join.lanes)} lanes, and there are 1 to {MAX_LANES}"
        furthest = self._board.furthest
        if not 0 <= join.version <= furthest:
            return f"it has weights of version {join.version}, and there can be none above {furthest}"
        return self._actors.doubt(join)

    def _joined(self, lanes: tuple[int, ...], state: State) -> Joined:
        return Joined(max_message=self._terms.max_message, lanes=lanes, receipt=self._receipt(state))

    async def _store(self, parcel: Parcel, *, stale: bool) -> Receipt:
        terms, newest = self._terms, self._board.newest
        try:
            check = partial(
                check_parcel,
                parcel,
                terms.specs,
                terms.carry_shapes,
                max_length=terms.max_length,
                version=self._board.furthest,
            )
            if len(parcel.parts) > MANY:
                await asyncio.to_thread(check)
            else:
                check()
        except BadMessage as error:
            return self._reject(parcel, shown(str(error)))
        number = self._actors.number(parcel.actor)
        stored = without_data(parcel) if stale else parcel
        if number is None or not await self._inbox.put(number, stored, timeout=terms.room_timeout):
            self._actors.not_taken(parcel)
            return self._receipt("finished" if self._board.finished else "again")
        self._actors.took(parcel, newest, stale=stale)
        if terms.synchronous:
            await self._inbox.processed(stored)
        if stale:
            lag = newest - parcel.version
            return self._receipt("stale", f"{lag} versions behind, more than net_config.max_lag")
        return self._receipt("taken")

    def _reject(self, parcel: Parcel, reason: str) -> Receipt:
        self._actors.rejected(parcel, reason)
        return self._receipt("rejected", reason)

    def _receipt(self, state: State, reason: str = "") -> Receipt:
        board = self._board
        return Receipt(state=state, version=board.newest, warming_up=board.warming_up, reason=reason)

    def _depart(self, bye: Bye) -> None:
        number = self._actors.bye(bye)
        if number is not None:
            self._inbox.left(number)

    def _expire(self) -> None:
        for number in self._actors.expire():
            self._inbox.left(number)


def without_data(parcel: Parcel) -> Parcel:
    """What is left of a parcel that is too old: its agents' open episodes end where they are."""
    agents = dict.fromkeys((part.behaviour, part.agent) for part in parcel.parts)
    parts = tuple(Part(behaviour, agent, None) for behaviour, agent in agents)
    return replace(parcel, parts=parts, steps=0, episodes=())
