"""The register of a learner's actors: slots, numbers, received messages and their outcomes."""

from __future__ import annotations

import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from ds.checking import AHEAD
from ds.protocol import PROTOCOL, Beat, Bye, Hello, Join, Refused, TrajectoryMessage, Welcome
from ds.records import ActorRecord, ActorStatus, ArrivalLog, FaultLog, PastVerdict, row, shown

Verdict = Literal["new", "stale", "busy", "unknown", "no channel", "no count", PastVerdict]
"""new: store it · stale: its weights are too old · busy: it is being taken now · unknown: Hello first ·
no channel: its actor has no such channel · no count: its numbers do not follow from those before ·
… before: the verdict when it came first"""

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


class ActorRegistry:
    """Actors of a learner: slots, numbers, message counts. All methods are quick and thread-safe.

    run, seed: of the run, sent to every actor
    limit:     of actors at a time, −1 for none; one in synchronous mode
    heartbeat: seconds; an actor without beats for three of them has left
    max_lag:   versions of weights that a message may be behind the newest; −1 for any
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
        self._living: dict[str, ActorRecord] = {}
        self._departed: dict[str, ActorRecord] = {}  # the one that left last is the last
        self._awaited: dict[str, float] = {}  # who lived when the state was taken, and since when we wait
        self._next_number, self._skipped = 0, 0
        self._counts = dict.fromkeys(COUNTED, 0)
        self._new_faults = [0, 0]  # of actors, in the order of a beat
        self._visitors = ArrivalLog(clock)
        self._faulty: deque[str] = deque(maxlen=MAX_NEWS)
        self._faults = FaultLog(self._faulty.append, clock)

    def hello(self, hello: Hello) -> Welcome | Refused:
        """Give a slot to a new or returning actor; a living one keeps its own."""
        if hello.protocol != PROTOCOL:
            reason = f"the actor speaks protocol {hello.protocol}, the learner {PROTOCOL}"
            return Refused(why="protocol", reason=reason, fix="run the same version on both sides")
        if not 1 <= len(hello.actor) <= MAX_NAME:
            return Refused(why="malformed", reason=f"an actor's name has 1 to {MAX_NAME} characters")
        if not 0 <= hello.pid <= MAX_PID:
            return Refused(why="malformed", reason=f"no process has the number {hello.pid}")
        with self._lock:
            record = self._living.get(hello.actor)
            if record is None:
                if 0 <= self._limit <= len(self._living) or len(self._living) >= MAX_LIVING:
                    return self._full()
                record = self._enter(hello)
            record.live.seen = self._clock()
            return Welcome(
                run=self._run,
                learner=self._learner,
                seed=self._seed,
                slot=record.slot,
                number=record.number,
                synchronous=self._synchronous,
                heartbeat=self._heartbeat,
            )

    def joined(self, join: Join) -> tuple[int, ...] | None:
        """Advance each channel to the later of the actor's and this learner's number; return these numbers.

        None for an unknown actor. Steps that only an earlier learner took are lost.
        """
        with self._lock:
            record = self._living.get(join.actor)
            if record is None:
                return None
            record.live.seen, record.live.joined = self._clock(), True
            lost = record.go_on_from(join.channels, join.taken_steps)
            self._counts["lost"] += lost
            if lost:
                self._visitors.add(f"{_name(record)}: {lost} steps that an earlier learner had are lost")
            return tuple(record.channels[: len(join.channels)])

    def impossible_counts(self, join: Join) -> str:
        """Return why its counts are impossible; empty if they may be true or the actor is not known."""
        with self._lock:
            record = self._living.get(join.actor)
            if record is None:
                return ""
            known = [*record.channels, *(0 for _ in join.channels)]
            for channel, number in enumerate(join.channels):
                if not _follows(number, known[channel]):
                    return f"channel {channel}: the actor says message {number}, here it is {known[channel]}"
            if not _follows(join.taken_steps, record.came_steps):
                return f"{join.taken_steps} steps are said to have been taken; {record.came_steps} came here"
            return ""

    def dropped(self, actor: str) -> int:
        """Return the environment steps that an actor has given up, as far as reported."""
        with self._lock:
            record = self._living.get(actor)
            return 0 if record is None else record.dropped

    def accept(self, message: TrajectoryMessage, lag: int) -> Verdict:
        """Return the verdict on a message, whose weights are ``lag`` versions behind the newest.

        After ``new`` and ``stale`` its channel is busy until it is :meth:`queued`, :meth:`not_queued` or
        :meth:`rejected`.
        """
        with self._lock:
            record = self._living.get(message.actor)
            if record is None or not record.live.joined:
                return "unknown"
            record.live.seen = self._clock()
            if not 0 <= message.channel < len(record.channels):
                return "no channel"
            if not _follows(message.number, record.channels[message.channel], least=1) or not _follows(
                message.dropped, record.dropped
            ):
                return "no count"
            if message.channel in record.busy:
                return "busy"
            if message.number <= record.channels[message.channel]:
                self._counts["duplicates"] += 1
                latest = message.number == record.channels[message.channel]
                return record.became.get(message.channel, "taken before") if latest else "taken before"
            record.busy.add(message.channel)
            return "stale" if 0 <= self._max_lag < lag else "new"

    def queued(self, message: TrajectoryMessage, lag: int, *, stale: bool = False) -> None:
        """Note that a message is in the queue; of a ``stale`` one only the ends of episodes."""
        with self._lock:
            self._counts["stale"] += message.steps * stale
            self._passed(message, "stale before" if stale else "taken before")
            record = self._record(message.actor)
            if record is not None and not stale:
                record.came_steps += message.steps
                record.live.lags.append(lag)
                self._count_dropped(record, message.dropped)

    def not_queued(self, message: TrajectoryMessage) -> None:
        """Note that there was no room: the message will come again."""
        with self._lock:
            record = self._record(message.actor)
            if record is not None:
                record.busy.discard(message.channel)

    def rejected(self, message: TrajectoryMessage, reason: str) -> None:
        """Count a message that cannot be used and will not be sent again."""
        with self._lock:
            self._counts["rejected"] += 1
            record = self._record(message.actor)
            who = "an unknown actor" if record is None else _name(record)
            self._faults("rejected", f"{who}: {reason}")
            if record is not None and message.channel in record.busy:
                self._passed(message, "rejected before")

    def count_fault(self, kind: str, what: str) -> None:
        """Count bytes that are no message, or a refused connection; logged now and then."""
        with self._lock:
            self._counts["rejected"] += 1
        self._faults(kind, shown(what))

    def stored(self, message: TrajectoryMessage, *, outdated: int = 0) -> None:
        """Note that the agents have a message: from here on it is in the state.

        outdated: transitions in it that were left out, made with weights too old for what learns from them
        """
        with self._lock:
            self._counts["stale"] += outdated
            record = self._record(message.actor)
            if record is not None:
                record.stored[message.channel] = max(record.stored[message.channel], message.number)
                record.stored_steps += message.steps

    def beat(self, beat: Beat, lag: int) -> bool:
        """Update from a beat, with weights ``lag`` versions behind; return whether the actor is known."""
        with self._lock:
            record = self._living.get(beat.actor)
            if record is None:
                return False
            record.live.beats(beat, lag, self._clock())
            self._count_dropped(record, beat.dropped)
            self._count_faults(record, beat.faults)
            return True

    def bye(self, bye: Bye) -> int | None:
        """Free the slot; return the actor's number, or None for one that is not here or has sent nothing."""
        with self._lock:
            record = self._living.get(bye.actor)
            if record is None:
                return None
            self._depart(record, f"has left: {shown(bye.reason)}")
            return record.number if record.channels else None

    def expire(self) -> list[int]:
        """Remove actors that missed three heartbeats; return their numbers."""
        with self._lock:
            before = self._clock() - MISSED * self._heartbeat
            silent = [record for record in self._living.values() if record.live.seen < before]
            for record in silent:
                self._depart(record, f"has been silent for {MISSED} heartbeats: its slot is free")
            missed = [actor for actor, since in self._awaited.items() if since < before]
            for actor in missed:
                del self._awaited[actor]
            back = [self._departed[actor] for actor in missed if actor in self._departed]
            return [record.number for record in (*silent, *back) if record.channels]

    @property
    def awaited(self) -> frozenset[int]:
        """Numbers of actors that lived when the state was taken and may still return."""
        with self._lock:
            return frozenset(self._departed[actor].number for actor in self._awaited)

    def number(self, actor: str) -> int | None:
        """Return the actor's number in the run; None for one that is not here."""
        with self._lock:
            record = self._living.get(actor)
            return None if record is None else record.number

    def rows(self) -> list[tuple[str, str]]:
        """Return a panel's lines, one per living actor, by slot."""
        with self._lock:
            now = self._clock()
            return [row(record, now) for record in sorted(self._living.values(), key=lambda one: one.slot)]

    def metrics(self) -> dict[str, float]:
        """Return values to log: living actors, lag of the last messages, and :data:`COUNTED`."""
        with self._lock:
            lags = [lag for record in self._living.values() for lag in record.live.lags]
            found = {"ds/actors": float(len(self._living))}
            if lags:
                found["ds/lag"] = sum(lags) / len(lags)
            return found | {f"ds/{name}": float(n) for name, n in self._counts.items()}

    def news(self) -> list[str]:
        """Return log lines on arrivals, departures and refusals since the last call, at most the last 100."""
        with self._lock:
            found = [*self._visitors.take(), *self._faulty]
            self._faulty.clear()
            return found

    def take_faults(self) -> list[int]:
        """Return the faults of actors since the last call, in the order of a beat."""
        with self._lock:
            found, self._new_faults = self._new_faults, [0, 0]
            return found

    def state(self) -> dict[str, Any]:
        """Return, as JSON, what has been stored, never what waits."""
        with self._lock:
            records = [*self._departed.values(), *self._living.values()]
            return {
                "next_number": self._next_number,
                "counts": dict(self._counts),
                "living": [*self._living, *self._awaited],
                "members": [record.state() for record in records],
            }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore; actors that lived are awaited for three heartbeats.

        Raises KeyError, TypeError or ValueError for what is no such state.
        """
        records = [ActorRecord.of_state(one) for one in state["members"]]
        with self._lock:
            self._living = {}
            self._departed = {record.actor: record for record in records}
            self._awaited = dict.fromkeys(state["living"], self._clock())
            self._next_number, self._skipped = int(state["next_number"]), UNKNOWN
            self._counts = {name: int(state["counts"][name]) for name in COUNTED}

    def _enter(self, hello: Hello) -> ActorRecord:
        """Return a record, in the actor's former slot if that is free, else in the first free one."""
        self._awaited.pop(hello.actor, None)
        record = self._departed.pop(hello.actor, None)
        comes = "is back" if record is not None else "has come"
        if record is None:
            self._next_number, self._skipped = self._next_number + self._skipped, 0
            record = ActorRecord(hello.actor, self._next_number, slot=-1)
            self._next_number += 1
        taken = {one.slot for one in self._living.values()}
        if record.slot < 0 or record.slot in taken:
            record.slot = next(slot for slot in range(len(taken) + 1) if slot not in taken)
        record.live = ActorStatus(shown(hello.host), hello.pid, self._clock())
        self._living[hello.actor] = record
        self._visitors.add(f"{_name(record)} {comes}, in slot {record.slot}")
        return record

    def _full(self) -> Refused:
        if self._synchronous:
            reason = "a synchronous learner has one actor, and it is here"
            fix = "set net_config.synchronous to false on the learner"
        else:
            reason = f"{len(self._living)} actors are here, as many as may be"
            fix = "raise base_config.max_actors_each_learner of the learner"
        return Refused(why="full", reason=reason, fix=fix)

    def _depart(self, record: ActorRecord, how: str) -> None:
        del self._living[record.actor]
        record.busy.clear()
        if record.channels:  # else it never joined, and there is nothing to go on from
            self._departed[record.actor] = record
        while len(self._departed) > MAX_DEPARTED:
            forgotten = next(iter(self._departed))
            del self._departed[forgotten]
            self._awaited.pop(forgotten, None)
        self._visitors.add(f"{_name(record)} {how}")

    def _passed(self, message: TrajectoryMessage, became: PastVerdict) -> None:
        """Advance the channel past this message, and count the numbers that never came."""
        record = self._record(message.actor)
        if record is not None:
            record.busy.discard(message.channel)
            record.became[message.channel] = became
            self._counts["gaps"] += max(0, message.number - record.channels[message.channel] - 1)
            record.channels[message.channel] = max(record.channels[message.channel], message.number)

    def _count_dropped(self, record: ActorRecord, dropped: int) -> None:
        self._counts["dropped"] += max(0, dropped - record.dropped)
        record.dropped = max(record.dropped, dropped)

    def _count_faults(self, record: ActorRecord, faults: Sequence[int]) -> None:
        for kind, count in enumerate(faults):
            self._new_faults[kind] += max(0, count - record.faults[kind])
            record.faults[kind] = max(record.faults[kind], count)

    def _record(self, actor: str) -> ActorRecord | None:
        """Return the record, also of an actor that has left while its message was under way."""
        return self._living.get(actor) or self._departed.get(actor)


def _follows(count: int, known: int, *, least: int = 0) -> bool:
    """Return whether a count is possible; ``known``: the last known one."""
    return least <= count <= known + AHEAD


def _name(record: ActorRecord) -> str:
    return f"actor {record.number} ({record.live.host}, pid {record.live.pid})"
