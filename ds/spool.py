"""Parcels on their way to the learner: a bounded number of them, sent in order by a thread for each lane."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from ds.ending import Ending
from ds.errors import Unreachable
from ds.packing import Key, Packed
from ds.patience import FIRST_PAUSE_S, LOOK_S, Backoff, Clock, Rarely
from ds.protocol import Parcel, Part, Receipt

MAX_TORN = 500
"""Ends of episodes that go with a parcel; each takes bytes of it."""


class Carrier(Protocol):
    """What a spool needs of :class:`~ds.link.Link`."""

    actor: str
    ending: Ending
    clock: Clock

    @property
    def away(self) -> bool: ...  # noqa: D102 - see Link
    def stopped(self) -> bool: ...  # noqa: D102
    def tell(self, text: str) -> None: ...  # noqa: D102
    def backoff(self) -> Backoff: ...  # noqa: D102
    def deliver(self, parcel: Parcel) -> Receipt: ...  # noqa: D102


@dataclass(frozen=True)
class _Waiting:
    packed: Packed
    number: int
    arrival: int  # over all lanes


class _Lane:
    """What waits to be sent, oldest first, and what came of the rest."""

    def __init__(self) -> None:
        self.queue: deque[_Waiting] = deque()
        self.flying = 0  # 1 while a parcel is being sent
        self.last = 0  # number given last
        self.taken = 0  # number of the last parcel that a learner answered for
        self.torn: dict[Key, None] = {}  # agents of whom something is missing since the last parcel, in order


class Spool:
    """Numbers parcels from 1 in each lane and sees to it that each reaches the learner at least once.

    size: parcels that may wait while the learner is away, those being sent included; fewer than lanes count
        as that many

    As long as the learner answers, the actor waits until nothing stands before its parcel in the lane: it
    must not run ahead of a learner that is slower. While it does not, the oldest parcel that nobody has begun
    to send is given up for one that has no room. What follows an agent's lost transitions must not be taken
    for their continuation: the next parcel of the lane begins with the end of that agent's episode.

    ``taken``, ``taken_steps``, ``waiting`` and ``dropped`` are those of :class:`~ds.calling.Sender`;
    ``stale`` and ``rejected`` are environment steps that the learner did not want.
    """

    def __init__(self, carrier: Carrier, *, lanes: int, size: int) -> None:
        """Raises ValueError unless both numbers are positive."""
        if lanes < 1 or size < 1:
            raise ValueError(f"a spool needs a lane and room for a parcel, not {lanes} and {size}")
        self._carrier, self._size = carrier, max(size, lanes)
        self._lanes = tuple(_Lane() for _ in range(lanes))
        self._changed = threading.Condition()
        self._rarely = Rarely(carrier.tell, carrier.clock)
        self._arrivals = 0
        self._closed = False
        self.taken_steps = self.dropped = self.stale = self.rejected = 0

    @property
    def taken(self) -> tuple[int, ...]:
        """Of each lane the number of the last parcel that a learner has answered for."""
        return tuple(lane.taken for lane in self._lanes)

    @property
    def waiting(self) -> int:
        """Parcels that wait, those being sent included."""
        return sum(len(lane.queue) + lane.flying for lane in self._lanes)

    def start(self) -> None:
        """Begin to send."""
        for number in range(len(self._lanes)):
            self._carrier.ending.start(f"lane {number}", partial(self._run, number))

    def put(self, packed: Packed) -> None:
        """Take a parcel; wait, or give up older ones, until there is room.

        Returns at once if the actor is to end. Raises what :meth:`~ds.ending.Ending.check` does.
        """
        with self._changed:
            self._append(packed)
            while not (self._has_room(packed.lane) or self._is_over()):
                if self._carrier.away:
                    self._give_up_oldest()  # there is one: no more are being sent than there are lanes
                else:
                    self._changed.wait(LOOK_S)
        self._carrier.ending.check()

    def hand_over(self, packed: Packed) -> None:
        """Take a parcel and wait until the learner has it, however long that takes. Else as :meth:`put`."""
        with self._changed:
            self._append(packed)
            while self.waiting and not self._is_over():
                self._changed.wait(LOOK_S)
        self._carrier.ending.check()

    def finish(self, seconds: float) -> None:
        """Send what waits, within so many seconds and if the learner is there; what is left is given up."""
        clock, ending = self._carrier.clock, self._carrier.ending
        until = clock.now() + seconds
        with self._changed:
            while self.waiting and not (self._carrier.away or ending.halted.is_set()):
                left = until - clock.now()
                if left <= 0:
                    break
                self._changed.wait(min(left, LOOK_S))
            while self._give_up_oldest():
                pass
            self._closed = True
            self._changed.notify_all()

    def _has_room(self, lane: int) -> bool:
        """Whether the actor may go on, now that its parcel stands in ``lane``."""
        if self._carrier.away:
            return self.waiting <= self._size
        return len(self._lanes[lane].queue) + self._lanes[lane].flying <= 1

    def _is_over(self) -> bool:
        return self._carrier.stopped() or self._carrier.ending.halted.is_set()

    def _append(self, packed: Packed) -> None:
        if self._carrier.ending.halted.is_set():
            return
        lane = self._lanes[packed.lane]
        lane.last += 1
        self._arrivals += 1
        lane.queue.append(_Waiting(packed, lane.last, self._arrivals))
        self._changed.notify_all()

    def _give_up_oldest(self) -> bool:
        """Of those that are not being sent. Returns whether there was one."""
        lane = min(
            (lane for lane in self._lanes if lane.queue), key=lambda lane: lane.queue[0].arrival, default=None
        )
        if lane is None:
            return False
        packed = lane.queue.popleft().packed
        self.dropped += packed.steps
        self._tear(lane, packed.parts)
        return True

    @staticmethod
    def _tear(lane: _Lane, parts: tuple[Part, ...]) -> None:
        lane.torn |= {(part.behaviour, part.agent): None for part in parts}

    @staticmethod
    def _mended(lane: _Lane, packed: Packed) -> tuple[Part, ...]:
        """The ends of torn episodes that go with a parcel: of its own agents all, of others not too many."""
        own = {(part.behaviour, part.agent) for part in packed.parts}
        others = set([key for key in lane.torn if key not in own][:MAX_TORN])
        found = [key for key in lane.torn if key in own or key in others]
        for key in found:
            del lane.torn[key]
        return tuple(Part(*key, None) for key in found)

    def _run(self, number: int) -> None:
        while (parcel := self._next(number)) is not None:
            receipt = self._send(parcel)
            if receipt is None:
                return
            self._settle(parcel, receipt)

    def _next(self, number: int) -> Parcel | None:
        """The lane's oldest parcel, as soon as there is one; None once the spool is closed."""
        lane = self._lanes[number]
        with self._changed:
            self._changed.wait_for(lambda: lane.queue or self._closed)
            if not lane.queue:
                return None
            waiting, lane.flying = lane.queue.popleft(), 1
            packed, torn = waiting.packed, self._mended(lane, waiting.packed)
            return Parcel(
                actor=self._carrier.actor,
                lane=number,
                number=waiting.number,
                version=packed.version,
                steps=packed.steps,
                stride=packed.stride,
                parts=torn + packed.parts,
                episodes=packed.episodes,
                dropped=self.dropped,
            )

    def _send(self, parcel: Parcel) -> Receipt | None:
        """Until the learner has answered for it; None if the actor is to end before."""
        ending, clock, backoff = self._carrier.ending, self._carrier.clock, self._carrier.backoff()
        while not ending.halted.is_set():
            asked = clock.now()
            try:
                receipt = self._carrier.deliver(parcel)
            except Unreachable:
                with self._changed:  # who waits for room may give parcels up now
                    self._changed.notify_all()
            else:
                if receipt.state in ("taken", "rejected", "stale"):
                    return receipt
                if receipt.state == "again":  # it has waited for room as long as it could, if it could
                    backoff.reset()
                    if clock.now() - asked >= FIRST_PAUSE_S:
                        continue
            clock.wait(ending.halted, backoff.pause())
        return None

    def _settle(self, parcel: Parcel, receipt: Receipt) -> None:
        lane = self._lanes[parcel.lane]
        with self._changed:
            lane.flying, lane.taken = 0, parcel.number
            if receipt.state == "taken":
                self.taken_steps += parcel.steps
            elif receipt.state == "stale":
                self.stale += parcel.steps
                self._tear(lane, parcel.parts)
            else:
                self.rejected += parcel.steps
                self._tear(lane, parcel.parts)
            self._changed.notify_all()
        if receipt.state != "taken":
            what = "not used: made with weights too old" if receipt.state == "stale" else "rejected"
            self._rarely.say(receipt.state, f"{parcel.steps:,} steps were {what} ({receipt.reason})")
