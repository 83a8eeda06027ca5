"""Who acts for a learner: slots, numbers, which parcels have come, and what became of them."""

from __future__ import annotations

import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Literal

from ds.checking import AHEAD
from ds.faults import Faults, Visitors
from ds.members import Became, Live, Member, row, shown
from ds.protocol import PROTOCOL, Beat, Bye, Hello, Join, Parcel, Refused, Welcome

Verdict = Literal["new", "stale", "busy", "unknown", "no lane", "no count", Became]
"""new: store it · stale: its weights are too old · busy: it is being taken now · unknown: say hello first ·
no lane: it names one that its actor does not have · no count: its numbers do not follow from those before ·
… before: it has come, and that is what became of it"""

MISSED = 3  # heartbeats
MAX_LIVING = 2**14
MAX_DEPARTED = 1024  # that are remembered, of those that have joined
MAX_NEWS = 100
MAX_NAME = 64  # characters; names are remembered, and saved
MAX_PID = 2**32
UNKNOWN = 1000  # actors that may have come after a checkpoint: none gets a number that another still has

COUNTED = ("dropped", "lost", "stale", "rejected", "duplicates", "gaps")
"""dropped: environment steps that actors gave up · lost: those that an earlier learner took and this one does
not have · stale: those made with weights too old · messages: rejected, duplicates, gaps (never came)"""


class Actors:
    """Every method is quick and may be called from any thread.

    run, seed: of the run, told to everybody
    limit:     of actors at a time, −1 for none; one in synchronous mode
    heartbeat: seconds; who is silent for three of them has left
    max_lag:   versions of weights that a parcel may be behind the newest; −1 for any
    clock:     seconds, never going back
    """

    def __init__(
        self,
        *,
        run: str,
        seed: int,
        limit: int,
        synchronous: bool,
        heartbeat: float,
        max_lag: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._run, self._seed, self._synchronous = run, seed, synchronous
        self._learner = secrets.token_hex(8)
        self._limit = 1 if synchronous else limit
        self._heartbeat, self._max_lag, self._clock = heartbeat, max_lag, clock
        self._lock = threading.Lock()
        self._living: dict[str, Member] = {}
        self._departed: dict[str, Member] = {}  # the one that left last is the last
        self._awaited: dict[str, float] = {}  # who lived when the state was taken, and since when we wait
        self._next_number, self._skipped = 0, 0
        self._counts = dict.fromkeys(COUNTED, 0)
        self._visitors = Visitors(clock)
        self._faulty: deque[str] = deque(maxlen=MAX_NEWS)
        self._faults = Faults(self._faulty.append, clock)

    def hello(self, hello: Hello) -> Welcome | Refused:
        """A slot for a new actor, or for one that comes back; one that lives here keeps its own."""
        if hello.protocol != PROTOCOL:
            reason = f"the actor speaks protocol {hello.protocol}, the learner {PROTOCOL}"
            return Refused(why="protocol", reason=reason, fix="run the same version on both sides")
        if not 1 <= len(hello.actor) <= MAX_NAME:
            return Refused(why="malformed", reason=f"an actor's name has 1 to {MAX_NAME} characters")
        if not 0 <= hello.pid <= MAX_PID:
            return Refused(why="malformed", reason=f"no process has the number {hello.pid}")
        with self._lock:
            member = self._living.get(hello.actor)
            if member is None:
                if 0 <= self._limit <= len(self._living) or len(self._living) >= MAX_LIVING:
                    return self._full()
                member = self._enter(hello)
            member.live.seen = self._clock()
            return Welcome(
                run=self._run,
                learner=self._learner,
                seed=self._seed,
                slot=member.slot,
                number=member.number,
                synchronous=self._synchronous,
                heartbeat=self._heartbeat,
            )

    def joined(self, join: Join) -> tuple[int, ...] | None:
        """Begin, or go on, behind whichever parcel is the later one; of each lane the number of that.

        None for an actor that has not said hello. What an earlier learner took and this one does not know
        of is lost.
        """
        with self._lock:
            member = self._living.get(join.actor)
            if member is None:
                return None
            member.live.seen, member.live.joined = self._clock(), True
            lost = member.go_on_from(join.lanes, join.taken_steps)
            self._counts["lost"] += lost
            if lost:
                self._visitors.tell(f"{_name(member)}: {lost} steps that an earlier learner had are lost")
            return tuple(member.lanes[: len(join.lanes)])

    def doubt(self, join: Join) -> str:
        """What of its counts cannot be; empty if all may be, or the actor is not known."""
        with self._lock:
            member = self._living.get(join.actor)
            if member is None:
                return ""
            known = [*member.lanes, *(0 for _ in join.lanes)]
            for lane, number in enumerate(join.lanes):
                if not _follows(number, known[lane]):
                    return f"lane {lane} is said to be at parcel {number}, and is at {known[lane]} here"
            if not _follows(join.taken_steps, member.came_steps):
                return f"{join.taken_steps} steps are said to have been taken; {member.came_steps} came here"
            return ""

    def dropped(self, actor: str) -> int:
        """Environment steps that an actor has given up, as far as it is known."""
        with self._lock:
            member = self._living.get(actor)
            return 0 if member is None else member.dropped

    def accept(self, parcel: Parcel, newest: int) -> Verdict:
        """What is to become of a parcel, while version ``newest`` of the weights is the newest.

        After ``new`` and ``stale`` its lane is busy until it is :meth:`took`, :meth:`not_taken` or
        :meth:`rejected`.
        """
        with self._lock:
            member = self._living.get(parcel.actor)
            if member is None or not member.live.joined:
                return "unknown"
            member.live.seen = self._clock()
            if not 0 <= parcel.lane < len(member.lanes):
                return "no lane"
            if not _follows(parcel.number, member.lanes[parcel.lane], least=1) or not _follows(
                parcel.dropped, member.dropped
            ):
                return "no count"
            if parcel.lane in member.busy:
                return "busy"
            if parcel.number <= member.lanes[parcel.lane]:
                self._counts["duplicates"] += 1
                latest = parcel.number == member.lanes[parcel.lane]
                return member.became.get(parcel.lane, "taken before") if latest else "taken before"
            member.busy.add(parcel.lane)
            lag = newest - parcel.version
            return "stale" if 0 <= self._max_lag < lag else "new"

    def took(self, parcel: Parcel, newest: int, *, stale: bool = False) -> None:
        """It waits for the learner's main thread now; if it is ``stale``, only what is left of it."""
        with self._lock:
            self._counts["stale"] += parcel.steps * stale
            self._passed(parcel, "stale before" if stale else "taken before")
            member = self._member(parcel.actor)
            if member is not None and not stale:
                member.came_steps += parcel.steps
                member.live.lags.append(max(0, newest - parcel.version))
                self._count_dropped(member, parcel.dropped)

    def not_taken(self, parcel: Parcel) -> None:
        """There was no room: it will come again."""
        with self._lock:
            member = self._member(parcel.actor)
            if member is not None:
                member.busy.discard(parcel.lane)

    def rejected(self, parcel: Parcel, reason: str) -> None:
        """Nobody can use it, and it is not to be sent again."""
        with self._lock:
            self._counts["rejected"] += 1
            member = self._member(parcel.actor)
            who = "an unknown actor" if member is None else _name(member)
            self._faults("rejected", f"{who}: {reason}")
            if member is not None and parcel.lane in member.busy:
                self._passed(parcel, "rejected before")

    def turned_away(self, kind: str, what: str) -> None:
        """Somebody sent what is no message, or was not let in; told of now and then. what: who, and why."""
        with self._lock:
            self._counts["rejected"] += 1
        self._faults(kind, shown(what))

    def stored(self, parcel: Parcel) -> None:
        """The agents have all of it: from here on a state says so."""
        with self._lock:
            member = self._member(parcel.actor)
            if member is not None:
                member.stored[parcel.lane] = max(member.stored[parcel.lane], parcel.number)
                member.stored_steps += parcel.steps

    def beat(self, beat: Beat, newest: int) -> bool:
        """Whether the actor is known; if so it lives."""
        with self._lock:
            member = self._living.get(beat.actor)
            if member is None:
                return False
            member.live.beats(beat, newest, self._clock())
            self._count_dropped(member, beat.dropped)
            return True

    def bye(self, bye: Bye) -> int | None:
        """Frees the slot; the actor's number, or None for one that is not here or has sent nothing."""
        with self._lock:
            member = self._living.get(bye.actor)
            if member is None:
                return None
            self._depart(member, f"has left: {shown(bye.reason)}")
            return member.number if member.lanes else None

    def expire(self) -> list[int]:
        """Numbers of those who have been silent for three heartbeats; their slots are free now."""
        with self._lock:
            before = self._clock() - MISSED * self._heartbeat
            silent = [member for member in self._living.values() if member.live.seen < before]
            for member in silent:
                self._depart(member, f"has been silent for {MISSED} heartbeats: its slot is free")
            missed = [actor for actor, since in self._awaited.items() if since < before]
            for actor in missed:
                del self._awaited[actor]
            back = [self._departed[actor] for actor in missed if actor in self._departed]
            return [member.number for member in (*silent, *back) if member.lanes]

    @property
    def awaited(self) -> frozenset[int]:
        """Numbers of those who lived when the state was taken and may still come back."""
        with self._lock:
            return frozenset(self._departed[actor].number for actor in self._awaited)

    def number(self, actor: str) -> int | None:
        """Which actor of the run this is; None for one that is not here."""
        with self._lock:
            member = self._living.get(actor)
            return None if member is None else member.number

    def rows(self) -> list[tuple[str, str]]:
        """For a panel, a line on each living actor, by slot."""
        with self._lock:
            now = self._clock()
            return [row(member, now) for member in sorted(self._living.values(), key=lambda one: one.slot)]

    def metrics(self) -> dict[str, float]:
        """Values to log: who lives, how old the weights of the last parcels were, and :data:`COUNTED`."""
        with self._lock:
            lags = [lag for member in self._living.values() for lag in member.live.lags]
            found = {"ds/actors": float(len(self._living))}
            if lags:
                found["ds/lag"] = sum(lags) / len(lags)
            return found | {f"ds/{name}": float(n) for name, n in self._counts.items()}

    def news(self) -> list[str]:
        """Lines for a log on who came, left and was refused, since the last call; of many the last 100."""
        with self._lock:
            found = [*self._visitors.take(), *self._faulty]
            self._faulty.clear()
            return found

    def state(self) -> dict[str, Any]:
        """As JSON: what has been stored, never what waits."""
        with self._lock:
            members = [*self._departed.values(), *self._living.values()]
            return {
                "next_number": self._next_number,
                "counts": dict(self._counts),
                "living": [*self._living, *self._awaited],
                "members": [member.state() for member in members],
            }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Nobody lives yet; for three heartbeats those who did are waited for.

        Raises KeyError, TypeError or ValueError for what is no such state.
        """
        members = [Member.of_state(one) for one in state["members"]]
        with self._lock:
            self._living = {}
            self._departed = {member.actor: member for member in members}
            self._awaited = dict.fromkeys(state["living"], self._clock())
            self._next_number, self._skipped = int(state["next_number"]), UNKNOWN
            self._counts = {name: int(state["counts"][name]) for name in COUNTED}

    def _enter(self, hello: Hello) -> Member:
        """Back in its former slot if that is free, else in the first one that is."""
        self._awaited.pop(hello.actor, None)
        member = self._departed.pop(hello.actor, None)
        comes = "is back" if member is not None else "has come"
        if member is None:
            self._next_number, self._skipped = self._next_number + self._skipped, 0
            member = Member(hello.actor, self._next_number, slot=-1)
            self._next_number += 1
        taken = {one.slot for one in self._living.values()}
        if member.slot < 0 or member.slot in taken:
            member.slot = next(slot for slot in range(len(taken) + 1) if slot not in taken)
        member.live = Live(shown(hello.host), hello.pid, self._clock())
        self._living[hello.actor] = member
        self._visitors.tell(f"{_name(member)} {comes}, in slot {member.slot}")
        return member

    def _full(self) -> Refused:
        if self._synchronous:
            reason = "a synchronous learner has one actor, and it is here"
            fix = "set net_config.synchronous to false on the learner"
        else:
            reason = f"{len(self._living)} actors are here, as many as may be"
            fix = "raise base_config.max_actors_each_learner of the learner"
        return Refused(why="full", reason=reason, fix=fix)

    def _depart(self, member: Member, how: str) -> None:
        del self._living[member.actor]
        member.busy.clear()
        if member.lanes:  # else it never joined, and there is nothing to go on from
            self._departed[member.actor] = member
        while len(self._departed) > MAX_DEPARTED:
            forgotten = next(iter(self._departed))
            del self._departed[forgotten]
            self._awaited.pop(forgotten, None)
        self._visitors.tell(f"{_name(member)} {how}")

    def _passed(self, parcel: Parcel, became: Became) -> None:
        """The lane goes on behind this parcel, and counts those that never came."""
        member = self._member(parcel.actor)
        if member is not None:
            member.busy.discard(parcel.lane)
            member.became[parcel.lane] = became
            self._counts["gaps"] += max(0, parcel.number - member.lanes[parcel.lane] - 1)
            member.lanes[parcel.lane] = max(member.lanes[parcel.lane], parcel.number)

    def _count_dropped(self, member: Member, dropped: int) -> None:
        self._counts["dropped"] += max(0, dropped - member.dropped)
        member.dropped = max(member.dropped, dropped)

    def _member(self, actor: str) -> Member | None:
        """Also one that has left while its parcel was under way."""
        return self._living.get(actor) or self._departed.get(actor)


def _follows(count: int, known: int, *, least: int = 0) -> bool:
    """Whether an actor may have come so far; ``known``: how far it was."""
    return least <= count <= known + AHEAD


def _name(member: Member) -> str:
    return f"actor {member.number} ({member.live.host}, pid {member.live.pid})"
