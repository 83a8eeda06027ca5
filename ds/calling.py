"""What an actor asks of its learner, and how it becomes known to it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from ds.errors import LearnerRefused
from ds.patience import Tell
from ds.protocol import Beat, Bye, Hello, Join, Joined, Parcel, Receipt, Wanted, Welcome

Message = TypeVar("Message")
Answer = TypeVar("Answer")


class Caller(Protocol):
    """What is used of :class:`~ds.client.Client`. Unreachable may pass, LearnerRefused will not."""

    def hello(self, hello: Hello) -> Welcome: ...  # noqa: D102 - the messages say what each is for
    def join(self, join: Join) -> Joined: ...  # noqa: D102
    def deliver(self, parcel: Parcel) -> Receipt: ...  # noqa: D102
    def beat(self, beat: Beat) -> Receipt: ...  # noqa: D102
    def weights(self, wanted: Wanted) -> list[bytes]: ...  # noqa: D102
    def bye(self, bye: Bye) -> None: ...  # noqa: D102
    def close(self) -> None: ...  # noqa: D102


class Call(Protocol):
    """Asks, and takes note of whether there was an answer."""

    def __call__(self, ask: Callable[[Message], Answer], message: Message, /) -> Answer: ...  # noqa: D102


class Sender(Protocol):
    """What a learner is told of the parcels."""

    @property
    def taken(self) -> tuple[int, ...]:
        """Of each lane the number of the last parcel that a learner has answered for."""
        ...

    @property
    def taken_steps(self) -> int:
        """Environment steps in the parcels that a learner took."""
        ...

    @property
    def waiting(self) -> int:
        """Parcels that wait to be sent."""
        ...

    @property
    def dropped(self) -> int:
        """Environment steps given up so far."""
        ...


@dataclass(frozen=True)
class NothingSent:
    """Before there is anything to send."""

    taken: tuple[int, ...] = ()
    taken_steps: int = 0
    waiting: int = 0
    dropped: int = 0


@dataclass(frozen=True)
class Papers:
    """What is shown at every join: see :class:`~ds.protocol.Join`."""

    agreed: Mapping[str, Any]
    digest: str
    sender: Sender
    version: Callable[[], int]  # of the newest weights seen


class Acquaintance:
    """Makes the actor known to whichever learner answers, once however many threads notice that it is not."""

    def __init__(self, caller: Caller, call: Call, hello: Hello, tell: Tell) -> None:
        self._caller, self._call, self._hello, self._tell = caller, call, hello, tell
        self._lock = threading.Lock()
        self._papers: Papers | None = None
        self._synchronous = False
        self._learner = ""
        self.epoch = 0
        """Times that a learner has come to know this actor."""

    def hello(self) -> Welcome:
        """Say who is there; to be said once. Raises Unreachable, LearnerRefused, LearnerAway."""
        with self._lock:
            welcome = self._call(self._caller.hello, self._hello)
            self._learner, self._synchronous = welcome.learner, welcome.synchronous
            self.epoch += 1
            return welcome

    def join(self, papers: Papers) -> Joined:
        """Be ready to act; raises as :meth:`hello`. If the learner is another one by now, say hello again."""
        with self._lock:
            joined = self._join(papers)
            if joined.receipt.state == "unknown":
                self._hello_again()
                joined = self._join(papers)
            self._papers = papers
            return joined

    def again(self, epoch: int) -> Joined | None:
        """What began in ``epoch`` was answered with unknown: say hello and join again, if nobody has since.

        Seeds, streams of random numbers and noise stay as they are, whatever slot and number the actor gets
        now. Returns None before the first join. Raises as :meth:`hello`.
        """
        with self._lock:
            if epoch != self.epoch:
                return None
            self._hello_again()
            return self._join(self._papers) if self._papers else None

    def _hello_again(self) -> None:
        welcome = self._call(self._caller.hello, self._hello)
        if welcome.synchronous != self._synchronous:
            raise LearnerRefused(
                "the learner was started anew with another net_config.synchronous",
                fix="start this actor anew",
            )
        if welcome.learner != self._learner:
            self._tell(f"the learner was started anew (run {welcome.run})")
            self._learner = welcome.learner
        self.epoch += 1

    def _join(self, papers: Papers) -> Joined:
        join = Join(
            actor=self._hello.actor,
            agreed=papers.agreed,
            digest=papers.digest,
            version=papers.version(),
            lanes=papers.sender.taken,
            taken_steps=papers.sender.taken_steps,
        )
        return self._call(self._caller.join, join)
