"""Records of a learner's actors, and rate-limited log lines about them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ds.protocol import Beat

PastVerdict = Literal["taken before", "stale before", "rejected before"]
"""Earlier outcome of a message that arrives again."""

RECENT = 20  # messages whose lag is averaged


@dataclass
class ActorStatus:
    """Status of a living actor. Times in seconds of the learner's clock."""

    host: str = "?"
    pid: int = 0
    seen: float = 0.0
    joined: bool = False  # its settings agree
    steps: int = 0
    steps_per_s: float | None = None
    behind: int = 0  # versions, of the weights that it acts with
    waiting: int = 0  # messages
    lags: deque[int] = field(default_factory=lambda: deque(maxlen=RECENT))  # versions, of the last messages
    _last_beat: float | None = None

    def beats(self, beat: Beat, lag: int, now: float) -> None:
        """Update from a beat."""
        if self._last_beat is not None and now > self._last_beat:
            self.steps_per_s = (beat.steps - self.steps) / (now - self._last_beat)
        self._last_beat = self.seen = now
        self.steps, self.waiting, self.behind = beat.steps, beat.waiting, lag


@dataclass
class ActorRecord:
    """Record of an actor, kept after it has left.

    channels, came_steps:    of each channel the last message that has come; environment steps in all of them
    stored, stored_steps: the same of those that the agents have
    dropped:              environment steps that the actor has given up
    faults:               that it has reported, as in a beat
    busy:                 channels of which a message is being taken right now
    became:               of each channel what became of the last message that has come
    """

    actor: str
    number: int
    slot: int
    channels: list[int] = field(default_factory=list)
    stored: list[int] = field(default_factory=list)
    came_steps: int = 0
    stored_steps: int = 0
    dropped: int = 0
    faults: list[int] = field(default_factory=lambda: [0, 0])
    busy: set[int] = field(default_factory=set)
    became: dict[int, PastVerdict] = field(default_factory=dict)
    live: ActorStatus = field(default_factory=ActorStatus)

    def go_on_from(self, channels: Sequence[int], taken_steps: int) -> int:
        """Advance each channel to the later of the actor's number and the one that came here.

        Returns how many of its ``taken_steps`` never came here; from now on they count as if they had.
        """
        more = [0] * (len(channels) - len(self.channels))
        self.channels += more
        self.stored += more
        for channel, number in enumerate(channels):
            self.channels[channel] = max(self.channels[channel], number)
        lost = max(0, taken_steps - self.came_steps)
        self.came_steps += lost
        self.stored_steps += lost
        return lost

    def state(self) -> dict[str, Any]:
        """Return the state as JSON."""
        return {
            "actor": self.actor,
            "number": self.number,
            "slot": self.slot,
            "stored": list(self.stored),
            "stored_steps": self.stored_steps,
            "dropped": self.dropped,
            "faults": list(self.faults),
        }

    @classmethod
    def of_state(cls, state: Mapping[str, Any]) -> ActorRecord:
        """Return the record of a state; messages under way are not part of it."""
        stored = [int(number) for number in state["stored"]]
        env_restarts, non_finite = map(int, state["faults"])
        return cls(
            actor=str(state["actor"]),
            number=int(state["number"]),
            slot=int(state["slot"]),
            channels=list(stored),
            stored=stored,
            came_steps=int(state["stored_steps"]),
            stored_steps=int(state["stored_steps"]),
            dropped=int(state["dropped"]),
            faults=[env_restarts, non_finite],
        )


def row(record: ActorRecord, now: float) -> tuple[str, str]:
    """Return a line for a panel: name and status."""
    live = record.live
    rate = "–" if live.steps_per_s is None else f"{live.steps_per_s:,.0f}"
    text = (
        f"{live.host}:{live.pid} · heard of {max(0.0, now - live.seen):.0f} s ago · {rate} steps/s · "
        f"{live.behind} versions behind · {live.waiting} waiting · {record.dropped} dropped"
    )
    return f"actor {record.number}", text


def shown(text: str) -> str:
    """Return an actor's text, fit for a log: short and printable."""
    return "".join(one if one.isprintable() else "?" for one in text[:200])


INTERVAL_S = 60.0
"""Seconds between two lines of the same kind."""

BURST = 64
"""Maximum number of lines a minute on actors that come and leave."""


class FaultLog:
    """Rate-limited log of faults: at most one line a kind in :data:`INTERVAL_S`.

    Safe to use from several threads. A million wrong messages cost a number and a line a minute.
    """

    def __init__(self, log: Callable[[str], None], clock: Callable[[], float]) -> None:
        self._log = log
        self._clock = clock
        self._lock = threading.Lock()
        self._counts: dict[str, int] = {}
        self._last_shown: dict[str, tuple[float, int]] = {}

    def __call__(self, kind: str, what: str) -> None:
        """Count a fault. kind: one of few words; what: the peer and the reason, on one line."""
        with self._lock:
            count = self._counts[kind] = self._counts.get(kind, 0) + 1
            now = self._clock()
            last, counted = self._last_shown.get(kind, (float("-inf"), 0))
            if now - last < INTERVAL_S:
                return
            self._last_shown[kind] = (now, count)
        more = count - counted - 1
        self._log(f"{kind}: {what}" + (f" · {more} more since the last such line" if more else ""))

    @property
    def counts(self) -> dict[str, int]:
        """Number of faults of each kind so far."""
        with self._lock:
            return dict(self._counts)


class ArrivalLog:
    """Lines on arrivals and departures: :data:`BURST` a minute, then one with how many more.

    Not safe to use from several threads.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lines: deque[str] = deque()
        self._begun, self._minute_lines, self._left_out = float("-inf"), 0, 0

    def add(self, line: str) -> None:
        """Add a line."""
        self._begin()
        self._minute_lines += 1
        if self._minute_lines <= BURST:
            self._lines.append(line)
        else:
            self._left_out += 1

    def take(self) -> list[str]:
        """Return the lines since the last call."""
        self._begin()
        found = list(self._lines)
        self._lines.clear()
        return found

    def _begin(self) -> None:
        """Start the next minute if it is time."""
        now = self._clock()
        if now - self._begun >= INTERVAL_S:
            if self._left_out:
                self._lines.append(f"actors have come, left or lost something {self._left_out:,} times more")
            self._begun, self._minute_lines, self._left_out = now, 0, 0
