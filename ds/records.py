"""Records of a learner's actors, in its state and while they are here."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import msgspec

from ds.protocol import ReceiptState

RECENT = 20  # messages whose lag is averaged


class SavedActor(msgspec.Struct, kw_only=True):
    """Record of an actor in a learner's state.

    stored, stored_steps: of each channel the last message that the agents have; environment steps in all of
                          them
    dropped:              environment steps that the actor has given up
    faults:               that it has reported, as in a beat
    """

    actor: str
    number: int
    slot: int
    stored: list[int] = []
    stored_steps: int = 0
    dropped: int = 0
    faults: tuple[int, int] = (0, 0)


class SavedRegistry(msgspec.Struct, kw_only=True):
    """State of a registry: what has been stored, never what waits."""

    next_number: int
    counts: dict[str, int]
    living: list[str]
    members: list[SavedActor]


@dataclass
class Visit:
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
    last_beat: float | None = None


class Actor(SavedActor, kw_only=True):
    """Record of an actor, kept after it has left.

    channels, came_steps: of each channel the last message that has come; environment steps in all of them
    busy:                 channels of which a message is being taken right now
    became:               of each channel what became of the last message that has come
    """

    channels: list[int] = []
    came_steps: int = 0
    busy: set[int] = msgspec.field(default_factory=set)
    became: dict[int, ReceiptState] = {}
    visit: Visit = msgspec.field(default_factory=Visit)

    @property
    def name(self) -> str:
        """Name for a person."""
        return f"actor {self.number} ({self.visit.host}, pid {self.visit.pid})"

    @classmethod
    def of_state(cls, saved: SavedActor) -> Actor:
        """Return the record of a state; messages under way are not part of it."""
        own = {name: getattr(saved, name) for name in SavedActor.__struct_fields__}
        return cls(**own, channels=list(saved.stored), came_steps=saved.stored_steps)

    def state(self) -> SavedActor:
        """Return what outlives the learner."""
        return SavedActor(**{name: getattr(self, name) for name in SavedActor.__struct_fields__})

    def row(self, now: float) -> tuple[str, str]:
        """Return a line for a panel: name and status."""
        visit = self.visit
        rate = "–" if visit.steps_per_s is None else f"{visit.steps_per_s:,.0f}"
        text = (
            f"{visit.host}:{visit.pid} · heard of {max(0.0, now - visit.seen):.0f} s ago · {rate} steps/s · "
            f"{visit.behind} versions behind · {visit.waiting} waiting · {self.dropped} dropped"
        )
        return f"actor {self.number}", text


def shown(text: str) -> str:
    """Return an actor's text, fit for a log: short and printable."""
    return "".join(one if one.isprintable() else "?" for one in text[:200])
