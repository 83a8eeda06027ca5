"""One actor as its learner knows it: what is remembered when it leaves, and what is not."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ds.protocol import Beat

Became = Literal["taken before", "stale before", "rejected before"]
"""What became of a parcel that comes once more."""

RECENT = 20  # parcels whose lag is averaged


@dataclass
class Live:
    """What is known of an actor only while it lives. Times in seconds of the learner's clock."""

    host: str = "?"
    pid: int = 0
    seen: float = 0.0
    joined: bool = False  # its settings agree
    steps: int = 0
    steps_per_s: float | None = None
    behind: int = 0  # versions, of the weights that it acts with
    waiting: int = 0  # parcels
    lags: deque[int] = field(default_factory=lambda: deque(maxlen=RECENT))  # versions, of the last parcels
    _last_beat: float | None = None

    def beats(self, beat: Beat, newest: int, now: float) -> None:
        """It lives, and says how it is."""
        if self._last_beat is not None and now > self._last_beat:
            self.steps_per_s = (beat.steps - self.steps) / (now - self._last_beat)
        self._last_beat = self.seen = now
        self.steps, self.waiting, self.behind = beat.steps, beat.waiting, max(0, newest - beat.version)


@dataclass
class Member:
    """What is remembered of an actor.

    lanes, came_steps:    of each lane the last parcel that has come; environment steps in all of them
    stored, stored_steps: the same of those that the agents have
    dropped:              environment steps that the actor has given up
    busy:                 lanes of which a parcel is being taken right now
    became:               of each lane what became of the last parcel that has come
    """

    actor: str
    number: int
    slot: int
    lanes: list[int] = field(default_factory=list)
    stored: list[int] = field(default_factory=list)
    came_steps: int = 0
    stored_steps: int = 0
    dropped: int = 0
    busy: set[int] = field(default_factory=set)
    became: dict[int, Became] = field(default_factory=dict)
    live: Live = field(default_factory=Live)

    def go_on_from(self, lanes: Sequence[int], taken_steps: int) -> int:
        """Of each lane the later of what the actor says and what has come here.

        Returns how many of its ``taken_steps`` never came here; from now on they count as if they had.
        """
        more = [0] * (len(lanes) - len(self.lanes))
        self.lanes += more
        self.stored += more
        for lane, number in enumerate(lanes):
            self.lanes[lane] = max(self.lanes[lane], number)
        lost = max(0, taken_steps - self.came_steps)
        self.came_steps += lost
        self.stored_steps += lost
        return lost

    def state(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "actor": self.actor,
            "number": self.number,
            "slot": self.slot,
            "stored": list(self.stored),
            "stored_steps": self.stored_steps,
            "dropped": self.dropped,
        }

    @classmethod
    def of_state(cls, state: Mapping[str, Any]) -> Member:
        """The reverse; what was under way is not known any more."""
        stored = [int(number) for number in state["stored"]]
        return cls(
            actor=str(state["actor"]),
            number=int(state["number"]),
            slot=int(state["slot"]),
            lanes=list(stored),
            stored=stored,
            came_steps=int(state["stored_steps"]),
            stored_steps=int(state["stored_steps"]),
            dropped=int(state["dropped"]),
        )


def row(member: Member, now: float) -> tuple[str, str]:
    """For a panel: who, and how it is."""
    live = member.live
    rate = "–" if live.steps_per_s is None else f"{live.steps_per_s:,.0f}"
    text = (
        f"{live.host}:{live.pid} · heard of {max(0.0, now - live.seen):.0f} s ago · {rate} steps/s · "
        f"{live.behind} versions behind · {live.waiting} waiting · {member.dropped} dropped"
    )
    return f"actor {member.number}", text


def shown(text: str) -> str:
    """Words of an actor, fit for a line of a log: short, and nothing that moves a cursor."""
    return "".join(one if one.isprintable() else "?" for one in text[:200])
