"""The register of a learner's actors: slots, numbers, received messages and their outcomes."""

from __future__ import annotations

import secrets
import threading
import time
from collections import deque
from collections.abc import Callable

from ds.net.contact import RateLimitedLog
from ds.net.protocol import (
    Beat,
    Hello,
    Join,
    ReceiptState,
    Refused,
    StepMessage,
    Welcome,
)
from ds.records import ActorRecord, SavedRegistry, Visit, check_follows, shown

MISSED = 3  # heartbeats
BURST = 64  # lines a minute on actors that come and leave
MAX_LIVING = 2**14
MAX_DEPARTED = 1024  # that are remembered, of those that have joined
MAX_NEWS = 100
UNKNOWN = 1000  # actors that may have come after a checkpoint: none gets a number that another still has

COUNTED = ("dropped", "lost", "stale", "rejected", "duplicates", "gaps")
"""dropped: environment steps that actors gave up · lost: those that an earlier learner took and this one does
not have · stale: those made with weights too old · messages: rejected, duplicates, gaps (never came)"""


class ActorRegistry:
    """Actors of a learner: slots, numbers, message counts. All methods are quick and thread-safe.

    run, seed: of the run, sent to every actor
    limit:     of actors at a time, −1 for none; one in synchronous mode
    heartbeat: seconds; an actor without beats for three of them has left
    left:      called with the number of each actor that has left and had joined
    clock:     monotonic time in seconds
    """

    def __init__(
        self,
        *,
        run: str,
        seed: int,
        limit: int,
        synchronous: bool,
        heartbeat: float,
        left: Callable[[int], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._run, self._seed, self._synchronous = run, seed, synchronous
        self._learner = secrets.token_hex(8)
        self._limit = 1 if synchronous else limit
        self._heartbeat, self._left, self._clock = heartbeat, left, clock
        self._lock = threading.RLock()
        self._living: dict[str, ActorRecord] = {}
        self._departed: dict[str, ActorRecord] = {}  # the one that left first is the first
        self._awaited: dict[str, float] = {}  # lived when the state was taken -> since when it may return
        self._next_number, self._skipped = 0, 0
        self._counts = dict.fromkeys(COUNTED, 0)
        self._new_faults = (0, 0)  # of actors, in the order of a beat
        self._news: deque[str] = deque(maxlen=MAX_NEWS)
        self._log = RateLimitedLog(self._news.append, clock)

    def hello(self, hello: Hello) -> Welcome | Refused:
        """Give a slot to a new or returning actor; a living one keeps its own."""
        with self._lock:
            actor = self._living.get(hello.actor)
            if actor is None:
                if 0 <= self._limit <= len(self._living) or len(self._living) >= MAX_LIVING:
                    return self._full()
                actor = self._enter(hello)
            actor.visit.seen = self._clock()
            return Welcome(
                run=self._run,
                learner=self._learner,
                seed=self._seed,
                slot=actor.slot,
                number=actor.number,
                synchronous=self._synchronous,
                heartbeat=self._heartbeat,
            )

    def join(self, join: Join) -> bool:
        """Go on behind the later of the actor's and this learner's messages; return if it is known.

        Steps that only an earlier learner took are lost. Raises BadMessage, and changes nothing, for counts
        that cannot be.
        """
        with self._lock:
            actor = self._living.get(join.actor)
            if actor is None:
                return False
            lost = actor.go_on_from(join)
            actor.visit.seen, actor.visit.joined = self._clock(), True
            self._counts["lost"] += lost
            if lost:
                self._tell(f"{actor.name}: {lost} steps that an earlier learner had are lost")
            return True

    def accept(self, message: StepMessage) -> ReceiptState | None:
        """Return the answer to a message that is not to be stored, or None for one that is.

        After None it is busy until the message is :meth:`settled`. Raises BadMessage for counts that cannot
        be.
        """
        with self._lock:
            actor = self._living.get(message.actor)
            if actor is None or not actor.visit.joined:
                return "unknown"
            actor.visit.seen = self._clock()
            answer = actor.accept(message)
            self._counts["duplicates"] += answer not in (None, "again")
            return answer

    def settled(self, message: StepMessage, became: ReceiptState, *, lag: int = 0, why: str = "") -> None:
        """Note what became of a message.

        taken: it is in the queue, made with weights ``lag`` versions behind · again: there was no room, it
        will come again · rejected: it cannot be used, see ``why``
        """
        with self._lock:
            actor = self._living.get(message.actor) or self._departed.get(message.actor)
            if became == "rejected":
                self.count_fault("rejected", f"{actor.name if actor else 'an unknown actor'}: {why}")
            if actor is None or (became in ("rejected", "again") and not actor.busy):
                return
            actor.busy = False
            if became != "again":
                self._counts["gaps"] += actor.advance(message, became)
            if became == "taken":
                actor.visit.lags.append(lag)
                self._counts["dropped"] += actor.give_up(message.dropped)

    def count_fault(self, kind: str, what: str) -> None:
        """Count bytes that are no message, or a refused connection; logged now and then."""
        with self._lock:
            self._counts["rejected"] += 1
        self._log.show(kind, f"{kind}: {shown(what)}")

    def stored(self, message: StepMessage, *, outdated: int = 0) -> None:
        """Note that the agents have a message: from here on it is in the state.

        outdated: transitions in it that were left out, made with weights too old for what learns from them
        """
        with self._lock:
            self._counts["stale"] += outdated
            actor = self._living.get(message.actor) or self._departed.get(message.actor)
            if actor is not None:
                actor.stored = max(actor.stored, message.number)
                actor.stored_steps += message.num_steps

    def beat(self, beat: Beat, lag: int) -> bool:
        """Update from a beat, with weights ``lag`` versions behind; return whether the actor is known.

        Raises BadMessage for a count that does not follow from the one before.
        """
        with self._lock:
            actor = self._living.get(beat.actor)
            if actor is None:
                return False
            check_follows("dropped", beat.dropped, actor.dropped)
            actor.visit.beats(beat, lag, self._clock())
            self._counts["dropped"] += actor.give_up(beat.dropped)
            restarts, non_finite = actor.new_faults(beat.faults)
            self._new_faults = (self._new_faults[0] + restarts, self._new_faults[1] + non_finite)
            return True

    def leave(self, name: str, reason: str) -> None:
        """Free the slot, if the actor has one."""
        with self._lock:
            if name in self._living:
                self._depart(self._living[name], f"has left: {shown(reason)}")

    def expire(self) -> None:
        """Remove actors that missed three heartbeats."""
        with self._lock:
            before = self._clock() - MISSED * self._heartbeat
            for actor in [actor for actor in self._living.values() if actor.visit.seen < before]:
                self._depart(actor, f"has been silent for {MISSED} heartbeats: its slot is free")
            for name in [name for name, since in self._awaited.items() if since < before]:
                del self._awaited[name]
                self._left(self._departed[name].number)

    @property
    def awaited(self) -> frozenset[int]:
        """Numbers of actors that were here when the state was taken and may still return."""
        with self._lock:
            return frozenset(self._departed[name].number for name in self._awaited)

    def number(self, name: str) -> int | None:
        """Return the actor's number in the run; None for one that is not here."""
        actor = self._living.get(name)
        return None if actor is None else actor.number

    def rows(self) -> list[tuple[str, str]]:
        """Return a panel's lines, one per living actor, by slot."""
        with self._lock:
            now = self._clock()
            return [actor.row(now) for actor in sorted(self._living.values(), key=lambda actor: actor.slot)]

    def metrics(self) -> dict[str, float]:
        """Return values to log: living actors, lag of the last messages, and :data:`COUNTED`."""
        with self._lock:
            lags = [lag for actor in self._living.values() for lag in actor.visit.lags]
            metrics = {"ds/actors": float(len(self._living))}
            if lags:
                metrics["ds/lag"] = sum(lags) / len(lags)
            return metrics | {f"ds/{name}": float(n) for name, n in self._counts.items()}

    def news(self) -> list[str]:
        """Return log lines on arrivals, departures and refusals since the last call, at most the last 100."""
        return [self._news.popleft() for _ in range(len(self._news))]

    def take_faults(self) -> tuple[int, int]:
        """Return the faults of actors since the last call, in the order of a beat."""
        with self._lock:
            faults, self._new_faults = self._new_faults, (0, 0)
            return faults

    def state(self) -> SavedRegistry:
        """Return actors and counts as of the last stored message; messages that wait are not in it."""
        with self._lock:
            actors = [*self._departed.values(), *self._living.values()]
            return SavedRegistry(
                next_number=self._next_number,
                counts=dict(self._counts),
                living=[*self._living, *self._awaited],
                members=[actor.state() for actor in actors],
            )

    def load_state(self, state: SavedRegistry) -> None:
        """Restore; await actors that were here for three heartbeats. Raises KeyError for another state."""
        with self._lock:
            self._living = {}
            self._departed = {saved.actor: ActorRecord.of_state(saved) for saved in state.members}
            self._awaited = {name: self._clock() for name in state.living if self._departed[name].joined}
            self._next_number, self._skipped = state.next_number, UNKNOWN
            self._counts = {name: state.counts[name] for name in COUNTED}

    def _enter(self, hello: Hello) -> ActorRecord:
        """Return a record, in the actor's former slot if that is free, else in the first free one."""
        self._awaited.pop(hello.actor, None)
        actor = self._departed.pop(hello.actor, None)
        comes = "has reconnected" if actor is not None else "has connected"
        if actor is None:
            number = self._next_number + self._skipped
            self._next_number, self._skipped = number + 1, 0
            actor = ActorRecord(actor=hello.actor, number=number, slot=-1)
        taken = {other.slot for other in self._living.values()}
        if actor.slot < 0 or actor.slot in taken:
            actor.slot = next(slot for slot in range(len(taken) + 1) if slot not in taken)
        actor.visit = Visit(host=shown(hello.host), pid=hello.pid, seen=self._clock())
        self._living[hello.actor] = actor
        self._tell(f"{actor.name} {comes}, in slot {actor.slot}")
        return actor

    def _full(self) -> Refused:
        reason = f"{len(self._living)} actors are connected, the maximum"
        fix = "raise base_config.max_actors_each_learner of the learner"
        if self._synchronous:
            reason = "a synchronous learner has one actor, and it is connected"
            fix = "set net_config.synchronous to false on the learner"
        return Refused(why="full", reason=reason, fix=fix)

    def _depart(self, actor: ActorRecord, how: str) -> None:
        """Free the slot; one that has never joined is forgotten."""
        del self._living[actor.actor]
        actor.busy = False
        self._tell(f"{actor.name} {how}")
        if not actor.joined:
            return
        self._departed[actor.actor] = actor
        if len(self._departed) > MAX_DEPARTED:
            forgotten = next(iter(self._departed))
            del self._departed[forgotten]
            self._awaited.pop(forgotten, None)
        self._left(actor.number)

    def _tell(self, line: str) -> None:
        self._log.show("actors", line, most=BURST)
