"""Protocol of learner and actors: messages, names of gRPC, errors. ``ds.net.wire`` makes bytes of messages.

An actor sends Hello, gets a slot and the run's seed, and builds its environments from them. It sends Join,
then messages of steps, and beats, until it leaves. Actors send every request; the learner only answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

from algorithm.core.data import Double, Int, StepBatch
from algorithm.core.errors import UserError

PROTOCOL = 7
"""Version of the protocol; both sides must have the same."""

MAX_ITEMS = 4096
"""Maximum length of a list in a message: an item costs more than its bytes."""

MAX_COUNT = 2**31 - 1
"""Maximum of an agent, and of each count within a message; counts over a run may be larger."""

MAX_TOTAL = 2**53
"""Maximum of counts over a run: integers up to here are exact in JSON and float64, too."""

MAX_NAMES = 256
"""Maximum length of a mapping with an entry for each observation or behaviour."""

SERVICE = "sac.Learner"

TOKEN_HEADER = "authorization"
"""Name of the metadata that carries ``Bearer <token>``."""

BUSY = "Concurrent RPC limit exceeded"
"""First words of gRPC's text for RESOURCE_EXHAUSTED when all call slots are taken."""

SECOND_MS = 1000


def keepalive() -> list[tuple[str, Any]]:
    """Return gRPC's options that detect a vanished peer after twenty seconds."""
    return [
        ("grpc.keepalive_time_ms", 10 * SECOND_MS),
        ("grpc.keepalive_timeout_ms", 10 * SECOND_MS),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
    ]


def address(host: str, port: int) -> str:
    """Return the address in gRPC's form; an IPv6 address stands in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class LearnerRefused(UserError):  # noqa: N818 - what happened
    """Refusal of this actor as it is: token, certificate, configuration or version."""

    exit_code = 3


class LearnerAway(UserError):  # noqa: N818
    """No answer from a learner within ``net_config.patience``."""

    exit_code = 3


class Unreachable(Exception):  # noqa: N818
    """No answer this time; the next call may succeed. One line."""


class Busy(Unreachable):
    """The learner is there, but takes no more calls at the moment."""


class WireError(ValueError):
    """Bytes that are no message, or a message that cannot become bytes. One line."""


class BadMessage(ValueError):  # noqa: N818 - what it is, not that it is an error
    """Message with a wrong value; one line that names it."""


T = TypeVar("T")
Items = Annotated[tuple[T, ...], Meta(max_length=MAX_ITEMS)]
Names = Annotated[Mapping[str, T], Meta(max_length=MAX_NAMES)]
ActorName = Annotated[str, Meta(min_length=1, max_length=64)]
Count = Annotated[int, Meta(ge=0, le=MAX_COUNT)]
Total = Annotated[int, Meta(ge=0, le=MAX_TOTAL)]

RefusalKind = Literal["protocol", "full", "differs", "malformed", "oversize"]
ReceiptState = Literal["taken", "again", "rejected", "unknown", "finished"]


class Message(
    msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True, forbid_unknown_fields=True
):
    """Base of all messages; a subclass's fields are sent in their order."""


class Hello(Message, frozen=True, kw_only=True):
    """Request for a slot, repeated when the learner no longer has the actor registered."""

    protocol: int
    actor: ActorName  # drawn by the actor's process; the same when it comes back
    host: str
    pid: Annotated[int, Meta(ge=0, le=2**32)]


class Welcome(Message, frozen=True, kw_only=True):
    """Slot of an actor, and the origin of its environments and random numbers."""

    run: str  # for the actor's screen
    learner: str  # drawn by the learner's process: another one after a restart
    seed: int  # of the run
    slot: int  # k: the smallest number that no other living actor has; its noise depends on it
    number: int  # actors welcomed in this run before: seeds and streams depend on it
    synchronous: bool
    heartbeat: float  # seconds between two beats; after three without one the slot is freed


class Join(Message, frozen=True, kw_only=True):
    """Request of an actor that is ready to act; after a :class:`Receipt` ``taken`` messages are taken."""

    actor: str
    agreed: str  # JSON: dotted path -> value of all that must be the same on both sides
    version: Total  # newest weights it has seen, 0 for none
    number: Total  # of the last message that a learner took
    taken_steps: Total  # environment steps in all that learners took


class Refused(Message, frozen=True, kw_only=True):
    """Final refusal: the learner cannot work with this actor as it is."""

    why: RefusalKind
    reason: str  # one line
    differences: Items[str] = ()  # a line each
    fix: str = ""


class Episodes(msgspec.Struct, frozen=True, kw_only=True, array_like=True, forbid_unknown_fields=True):
    """Episodes of one behaviour's agents that have ended, in their order."""

    agents: Int  # [n]
    returns: Double  # [n]
    lengths: Int  # [n]


class StepMessage(Message, frozen=True, kw_only=True):
    """Transitions of all agents of an actor: one step of its environments, or several.

    Messages are numbered from 1 and arrive in that order, each any number of times. A number that is never
    stored was dropped by the actor, refused, or lost with a learner: what is open ends there.
    """

    actor: str
    number: Annotated[int, Meta(ge=1, le=MAX_TOTAL)]
    version: Total  # of the oldest weights that acted in it
    dropped: Total  # transitions that the actor has given up so far
    closed: Names[Int]  # behaviour -> agents whose open episode ends before these steps, as truncated
    steps: Names[StepBatch]  # behaviour -> transitions; ``streams`` are the actor's agents
    episodes: Names[Episodes]  # behaviour -> those that ended with these steps
    agents: Names[Int]  # behaviour -> all that are there after these steps, also who waits

    @property
    def num_steps(self) -> int:
        """Number of transitions."""
        return sum(steps.reward.size for steps in self.steps.values())


class Beat(Message, frozen=True, kw_only=True):
    """Sign of life of an actor."""

    actor: str
    version: Total  # weights it acts with
    steps: Total  # transitions so far
    waiting: Count  # messages that wait to be sent
    dropped: Total  # transitions given up so far
    faults: tuple[Count, Count] = (0, 0)  # so far: environments started anew, episodes dropped as not finite


class Receipt(Message, frozen=True, kw_only=True):
    """Answer to a join, a message and a beat.

    taken: the learner has it now, or had it before · again: there is no room now, send it again ·
    rejected: it cannot be used, for ``reason`` · unknown: send Hello first · finished: the training has
    ended, and so shall the actor
    """

    state: ReceiptState
    version: int  # newest weights
    warming_up: Names[bool] = {}  # behaviour -> act at random
    lessons: Names[str] = {}  # parameter with a curriculum -> name of its lesson
    reason: str = ""


class WeightRequest(Message, frozen=True, kw_only=True):
    """Request for weights, answered by a stream of chunks; see ``ds.weights``."""

    actor: str
    newer_than: int  # only if they are newer than this version


class Bye(Message, frozen=True, kw_only=True):
    """Notice that an actor leaves; its slot is free at once."""

    actor: str
    reason: str


METHODS: Mapping[type[Message], str] = {
    Hello: "Hello",
    Join: "Join",
    StepMessage: "Deliver",
    Beat: "Beat",
    WeightRequest: "Weights",
    Bye: "Bye",
}
"""Request → gRPC's name of the method for it."""
