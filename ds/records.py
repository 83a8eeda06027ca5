"""Records of a learner's actors, in its state and while they are here."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import msgspec

from ds.checking import AHEAD
from ds.net.protocol import BadMessage, Beat, Join, ReceiptState, StepMessage

RECENT = 20  # messages whose lag is averaged


class SavedActor(msgspec.Struct, kw_only=True):
    """Record of an actor in a learner's state.

    joined:  its settings have agreed
    stored, stored_steps: the last message that the agents have; environment steps in all of them
    dropped: environment steps that the actor has given up
    faults:  that it has reported, as in a beat
    """

    actor: str
    number: int
    slot: int
    joined: bool = False
    stored: int = 0
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
    joined: bool = False  # since it came
    steps: int = 0
    steps_per_s: float | None = None
    behind: int = 0  # versions, of the weights that it acts with
    waiting: int = 0  # messages
    lags: deque[int] = field(default_factory=lambda: deque(maxlen=RECENT))  # versions, of the last messages
    last_beat: float | None = None

    def beats(self, beat: Beat, lag: int, now: float) -> None:
        """Update from a beat, with weights ``lag`` versions behind."""
        if self.last_beat is not None and now > self.last_beat:
            self.steps_per_s = (beat.steps - self.steps) / (now - self.last_beat)
        self.last_beat = self.seen = now
        self.steps, self.waiting, self.behind = beat.steps, beat.waiting, lag


class ActorRecord(SavedActor, kw_only=True):
    """Record of an actor, kept after it has left.

    received:       number of the last message that has arrived
    received_steps: environment steps in all that have
    busy:           a message is being taken right now
    became:         what became of the last message that has arrived
    """

    received: int = 0
    received_steps: int = 0
    busy: bool = False
    became: ReceiptState = "taken"
    visit: Visit = msgspec.field(default_factory=Visit)

    @property
    def name(self) -> str:
        """Name for a person."""
        return f"actor {self.number} ({self.visit.host}, pid {self.visit.pid})"

    @classmethod
    def of_state(cls, saved: SavedActor) -> ActorRecord:
        """Return the record of a saved actor, as if nothing but stored messages had arrived."""
        return cls(**msgspec.structs.asdict(saved), received=saved.stored, received_steps=saved.stored_steps)

    def state(self) -> SavedActor:
        """Return the part of the record that a checkpoint keeps."""
        return SavedActor(**{name: getattr(self, name) for name in SavedActor.__struct_fields__})

    def go_on_from(self, join: Join) -> int:
        """Advance to the later of the actor's number and the one received here.

        Returns how many of its steps never came here; from now on they count as if they had. Raises
        BadMessage, and changes nothing, for counts that cannot be.
        """
        check_follows("the number of the last message", join.number, self.received)
        check_follows("taken_steps", join.taken_steps, self.received_steps)
        self.joined, self.received = True, max(self.received, join.number)
        lost = max(0, join.taken_steps - self.received_steps)
        self.received_steps += lost
        self.stored_steps += lost
        return lost

    def accept(self, message: StepMessage) -> ReceiptState | None:
        """Return the answer to a message that is not to be stored; None, and busy from now on, for another.

        Raises BadMessage for counts that cannot be.
        """
        check_follows("number", message.number, self.received, least=1)
        check_follows("dropped", message.dropped, self.dropped)
        if self.busy:
            return "again"
        if message.number <= self.received:
            return self.became if message.number == self.received else "taken"
        self.busy = True
        return None

    def advance(self, message: StepMessage, became: ReceiptState) -> int:
        """Advance past this message; return the numbers that never came."""
        self.became = became
        gaps = max(0, message.number - self.received - 1)
        self.received = max(self.received, message.number)
        if became == "taken":
            self.received_steps += message.num_steps
        return gaps

    def give_up(self, dropped: int) -> int:
        """Set the steps that it has given up so far; return how many are new."""
        new = max(0, dropped - self.dropped)
        self.dropped += new
        return new

    def new_faults(self, faults: tuple[int, int]) -> tuple[int, int]:
        """Set the faults so far; return how many of each kind are new."""
        new = (max(0, faults[0] - self.faults[0]), max(0, faults[1] - self.faults[1]))
        self.faults = (self.faults[0] + new[0], self.faults[1] + new[1])
        return new

    def row(self, now: float) -> tuple[str, str]:
        """Return a line for a panel: name and status."""
        visit = self.visit
        rate = "–" if visit.steps_per_s is None else f"{visit.steps_per_s:,.0f}"
        text = (
            f"{visit.host}:{visit.pid} · last message {max(0.0, now - visit.seen):.0f} s ago · {rate} "
            f"steps/s · {visit.behind} versions behind · {visit.waiting} waiting · {self.dropped} dropped"
        )
        return f"actor {self.number}", text


def shown(text: str) -> str:
    """Return an actor's text, fit for a log: short and printable."""
    return "".join(letter if letter.isprintable() else "?" for letter in text[:200])


def check_follows(what: str, count: int, known: int, *, least: int = 0) -> None:
    """Raise BadMessage for a count that is impossible; ``known``: the last known one."""
    if not least <= count <= known + AHEAD:
        raise BadMessage(f"{what} is {count}, and here it is {known}")
