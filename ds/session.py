"""An actor's session with its learner: registration, monitoring of the connection, shutdown."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from ds.backoff import Clock, ShowLine
from ds.errors import LearnerAway, LearnerRefused, Unreachable
from ds.protocol import Beat, Bye, Hello, Join, Joined, Receipt, TrajectoryMessage, WeightRequest, Welcome

Request = TypeVar("Request")
Response = TypeVar("Response")


class Caller(Protocol):
    """The part of :class:`~ds.client.Client` that is used. Unreachable may pass, LearnerRefused will not."""

    def hello(self, hello: Hello) -> Welcome: ...  # noqa: D102 - the messages say what each is for
    def join(self, join: Join) -> Joined: ...  # noqa: D102
    def deliver(self, message: TrajectoryMessage) -> Receipt: ...  # noqa: D102
    def beat(self, beat: Beat) -> Receipt: ...  # noqa: D102
    def weights(self, wanted: WeightRequest) -> list[bytes]: ...  # noqa: D102
    def bye(self, bye: Bye) -> None: ...  # noqa: D102
    def close(self) -> None: ...  # noqa: D102


class Call(Protocol):
    """Call that also notes whether there was an answer."""

    def __call__(self, method: Callable[[Request], Response], request: Request, /) -> Response: ...  # noqa: D102


class Sender(Protocol):
    """Counts of sent messages, for the learner."""

    @property
    def taken(self) -> tuple[int, ...]:
        """Number of the last message that a learner has answered for, by channel."""
        ...

    @property
    def taken_steps(self) -> int:
        """Environment steps in the messages that a learner took."""
        ...

    @property
    def waiting(self) -> int:
        """Messages that wait to be sent."""
        ...

    @property
    def dropped(self) -> int:
        """Environment steps given up so far."""
        ...


@dataclass(frozen=True)
class NothingSentYet:
    """Counts before there is anything to send."""

    taken: tuple[int, ...] = ()
    taken_steps: int = 0
    waiting: int = 0
    dropped: int = 0


@dataclass(frozen=True)
class JoinRequest:
    """Content of every join: see :class:`~ds.protocol.Join`."""

    agreed: Mapping[str, Any]
    digest: str
    sender: Sender
    version: Callable[[], int]  # of the newest weights seen


class Registration:
    """Registration of the actor with the current learner; concurrent calls register once."""

    def __init__(self, caller: Caller, call: Call, hello: Hello, show: ShowLine) -> None:
        self._caller, self._call, self._hello, self._show = caller, call, hello, show
        self._lock = threading.Lock()
        self._request: JoinRequest | None = None
        self._synchronous = False
        self._learner = ""
        self.epoch = 0
        """Number of registrations so far."""

    def hello(self) -> Welcome:
        """Register for the first time. Raises Unreachable, LearnerRefused, LearnerAway."""
        with self._lock:
            welcome = self._call(self._caller.hello, self._hello)
            self._learner, self._synchronous = welcome.learner, welcome.synchronous
            self.epoch += 1
            return welcome

    def join(self, request: JoinRequest) -> Joined:
        """Join; raises as :meth:`hello`. A learner that was restarted gets Hello again first."""
        with self._lock:
            joined = self._join(request)
            if joined.receipt.state == "unknown":
                self._hello_again()
                joined = self._join(request)
            self._request = request
            return joined

    def again(self, epoch: int) -> Joined | None:
        """Register and join again after an answer ``unknown``, unless that happened since ``epoch``.

        Seeds, streams of random numbers and noise stay as they are, whatever slot and number the actor gets
        now. Returns None before the first join. Raises as :meth:`hello`.
        """
        with self._lock:
            if epoch != self.epoch:
                return None
            self._hello_again()
            return self._join(self._request) if self._request else None

    def _hello_again(self) -> None:
        welcome = self._call(self._caller.hello, self._hello)
        if welcome.synchronous != self._synchronous:
            raise LearnerRefused(
                "the learner was started anew with another net_config.synchronous",
                fix="start this actor anew",
            )
        if welcome.learner != self._learner:
            self._show(f"the learner was started anew (run {welcome.run})")
            self._learner = welcome.learner
        self.epoch += 1

    def _join(self, request: JoinRequest) -> Joined:
        join = Join(
            actor=self._hello.actor,
            agreed=json.dumps(request.agreed),
            digest=request.digest,
            version=request.version(),
            channels=request.sender.taken,
            taken_steps=request.sender.taken_steps,
        )
        return self._call(self._caller.join, join)


HICCUP_S = 1.0
"""Seconds of silence before a line, once the learner has answered before."""

QUIET_S = 10.0
"""Seconds between two lines about missing answers."""


class ConnectionMonitor:
    """Availability of the learner, reported by every thread that calls it.

    where:    address of the learner, for a person
    patience: seconds without an answer after which the actor ends; −1 for ever
    dropped:  environment steps given up so far
    """

    def __init__(
        self, *, where: str, patience: float, show: ShowLine, clock: Clock, dropped: Callable[[], int]
    ) -> None:
        self._where, self._patience, self._show, self._clock = where, patience, show, clock
        self._dropped = dropped
        self._lock = threading.Lock()
        self._answered_before = False
        self._reported = False  # that it does not answer
        self._quiet_until = clock.now()
        self._since, self._dropped_then = 0.0, 0
        self.away = False

    def lost(self, error: Unreachable) -> None:
        """Note a call without an answer. Raises LearnerAway after ``patience`` seconds."""
        with self._lock:
            now = self._clock.now()
            if not self.away:
                self.away, self._reported = True, False
                self._since, self._dropped_then = now, self._dropped()
            if (
                not self._reported
                and now >= self._quiet_until
                and (not self._answered_before or now - self._since >= HICCUP_S)
            ):
                self._reported, self._quiet_until = True, now + QUIET_S
                self._show(self._begins_to_wait(error))
            if 0 <= self._patience <= now - self._since:
                raise LearnerAway(
                    f"no learner answered for {now - self._since:.0f} s",
                    where=self._where,
                    why=str(error),
                    fix="start the learner, or correct net_config.learner_host and learner_port; "
                    "net_config.patience says how long an actor waits (-1: for ever)",
                )

    def answered(self) -> None:
        """Note a call that was answered."""
        with self._lock:
            if self.away and self._reported:
                self._show(self._is_back())
            self.away, self._answered_before = False, True

    def _begins_to_wait(self, error: Unreachable) -> str:
        if self._answered_before:
            return f"no answer from the learner ({error}): trying again"
        return f"waiting for the learner at {self._where} ({error})"

    def _is_back(self) -> str:
        seconds = self._clock.now() - self._since
        if not self._answered_before:
            return f"the learner is there after {seconds:.0f} s"
        steps = self._dropped() - self._dropped_then
        return f"the learner is back after {seconds:.0f} s" + (
            f" · {steps:,} steps given up" if steps else ""
        )


class ShutdownState:
    """Reason why an actor's threads end, shared by all of them.

    halted:   no thread sends, beats or fetches any more
    finished: the learner said that the training has ended; the actor ends with exit code 0
    """

    def __init__(self) -> None:
        self.halted, self.finished = threading.Event(), threading.Event()
        self._lock = threading.Lock()
        self._failure: BaseException | None = None

    def finish(self) -> None:
        """Note that the training has ended."""
        self.finished.set()
        self.halted.set()

    def fail(self, error: BaseException) -> None:
        """Note that a thread failed; the first error counts."""
        with self._lock:
            self._failure = self._failure or error
        self.halted.set()

    def check(self) -> None:
        """Raise the error of a thread that failed. For the main thread."""
        if self._failure is not None:
            raise self._failure

    def start(self, name: str, body: Callable[[], None]) -> threading.Thread:
        """Start a daemon thread; :meth:`check` raises its error."""

        def guarded() -> None:
            try:
                body()
            except Exception as error:  # whatever it is, it must not end unseen in a thread
                self.fail(error)

        thread = threading.Thread(target=guarded, name=name, daemon=True)
        thread.start()
        return thread
