"""An actor's connection: registration, beats, deliveries, newest weights, the end."""

from __future__ import annotations

import contextlib
import json
import random
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from ds.net.contact import LOOK_S, Backoff, Clock, ConnectionMonitor, Sent, ShowLine, WeightFetcher
from ds.net.protocol import (
    Beat,
    Busy,
    Bye,
    Hello,
    Join,
    LearnerRefused,
    Message,
    Receipt,
    StepMessage,
    Unreachable,
    WeightRequest,
    Welcome,
)

if TYPE_CHECKING:  # what sends needs no gRPC
    from ds.net.client import Client

BYE_S = 2.0

Answer = TypeVar("Answer", bound=Message)
Response = TypeVar("Response")


class Link:
    """An actor's connection, with threads that send beats and, unless synchronous, fetch weights.

    client:   carries the calls
    hello:    sent first, and again to a learner without this actor
    where:    address of the learner, for a person
    patience: seconds to wait for a learner that does not answer, at the start and later; −1 for ever
    show:     shows a line; called from any thread, one at a time
    stopped:  whether the user has stopped the actor; called while the main thread waits

    ``halted`` is set when no thread may send any more. The main thread calls ``start``, ``join``, then
    ``report`` and ``weights`` or ``wait_newer`` as it goes, and ``close``. All but the last raise what ends
    the actor: LearnerRefused, or LearnerAway after ``patience`` seconds.
    """

    def __init__(
        self,
        client: Client,
        hello: Hello,
        *,
        where: str,
        patience: float,
        show: ShowLine,
        stopped: Callable[[], bool] = lambda: False,
        clock: Clock | None = None,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self.actor, self.stopped = hello.actor, stopped
        self.clock = clock or Clock()
        self.halted = threading.Event()
        self.finished = False  # the training has ended, and so shall the actor
        self.sent = Sent()
        self.warming_up: Mapping[str, bool] = {}  # behaviour -> acts at random; empty before a receipt
        self.lessons: Mapping[str, str] = {}  # parameter -> its lesson; likewise
        self._client, self._hello, self._show, self._draw = client, hello, show, draw
        self._showing, self._registering = threading.Lock(), threading.Lock()
        self._monitor = ConnectionMonitor(
            where, patience, show=self.show, now=self.clock.now, dropped=lambda: self.sent.dropped
        )
        self._fetcher = WeightFetcher(
            lambda than: self._call(partial(client.weights, WeightRequest(actor=self.actor, newer_than=than)))
        )
        self._failure: BaseException | None = None
        self._welcome: Welcome | None = None
        self._agreed = ""  # JSON; empty until the first join
        self._epoch = 0  # registrations so far
        self._acted = (0, 0, (0, 0))  # steps, version and faults for the next beats

    @property
    def away(self) -> bool:
        """True if the learner does not answer."""
        return self._monitor.away

    def show(self, text: str) -> None:
        """Show one line to a person."""
        with self._showing:
            self._show(text)

    def backoff(self) -> Backoff:
        """Return pauses for a series of tries."""
        return Backoff(self._draw)

    def start(self) -> Welcome | None:
        """Find the learner and begin to send beats; None if the user stops before there is one."""
        welcome = self._persist(self._greet)
        if welcome is not None:
            self.start_thread("beats", self._beats)
        return welcome

    def join(self, agreed: Mapping[str, Any]) -> None:
        """Join: from here on messages may be delivered, and weights are fetched.

        agreed: see ``ds.compatibility``
        """
        self._agreed = json.dumps(agreed)
        self._persist(lambda: self._register_again(self._epoch))  # environments were made meanwhile
        if not self._synchronous:
            self.start_thread("weights", self._fetch_weights)

    def report(self, *, steps: int, version: int, faults: tuple[int, int] = (0, 0)) -> None:
        """Set what the next beats contain: environment steps so far, the version that acts, and faults."""
        self.check()
        self._acted = steps, version, faults
        self._fetcher.mark_loaded(version)

    def deliver(self, message: StepMessage) -> Receipt:
        """Send a message; for the thread that sends them.

        Once ``unknown`` has been answered the actor is known again, and the same message is to be sent again.
        Raises Unreachable if that shall be tried later, LearnerRefused and LearnerAway if never.
        """
        epoch = self._epoch
        receipt = self._ask(message, Receipt)
        self._apply(receipt, epoch)
        return receipt

    def beat(self) -> None:
        """Report this actor's counts, and act on the learner's receipt; raises as :meth:`deliver`."""
        epoch, sent, (steps, version, faults) = self._epoch, self.sent, self._acted
        beat = Beat(
            actor=self.actor,
            version=version,
            steps=steps,
            waiting=sent.waiting,
            dropped=sent.dropped,
            faults=faults,
        )
        receipt = self._ask(beat, Receipt)
        # In synchronous mode it may be older than the receipt of the last message, which brought the news.
        self._apply(receipt, epoch, news=not self._synchronous)

    def weights(self) -> list[bytes] | None:
        """Return the newest weights that have been fetched and not taken yet, in pieces."""
        self.check()
        return self._fetcher.take()

    def wait_newer(self, than: int) -> list[bytes] | None:
        """Return, in synchronous mode, weights newer than ``than`` if the last receipt announced some."""
        self._fetcher.mark_loaded(than)
        self._persist(self._fetcher.fetch)
        return self._fetcher.take()

    def check(self) -> None:
        """Raise the error of a thread that failed. For the main thread."""
        if self._failure is not None:
            raise self._failure

    def start_thread(self, name: str, body: Callable[[], None]) -> None:
        """Start a daemon thread; :meth:`check` raises its error."""

        def guarded() -> None:
            try:
                body()
            except Exception as error:  # whatever it is, it must not end unseen in a thread
                self._failure = self._failure or error
                self.halted.set()

        threading.Thread(target=guarded, name=name, daemon=True).start()

    def close(self, reason: str) -> None:
        """Leave, which takes 2 s at most, and close the connections."""
        self.halted.set()
        if self._epoch and not self.away:
            goodbye = threading.Thread(target=self._bye, args=(reason,), name="goodbye", daemon=True)
            goodbye.start()
            goodbye.join(BYE_S)
        self._client.close()

    @property
    def _synchronous(self) -> bool:
        return self._welcome is not None and self._welcome.synchronous

    def _greet(self) -> Welcome:
        """Register.

        Seeds, streams of random numbers and noise stay as they are, whatever slot and number the actor gets
        from a learner that was started anew.
        """
        welcome, before = self._ask(self._hello, Welcome), self._welcome
        if before is not None and welcome.synchronous != before.synchronous:
            raise LearnerRefused(
                "the learner was restarted with another net_config.synchronous",
                fix="restart this actor",
            )
        if before is not None and welcome.learner != before.learner:
            self.show(f"the learner was restarted (run {welcome.run})")
        self._welcome = welcome
        self._epoch += 1
        return welcome

    def _register_again(self, epoch: int) -> None:
        """Register once more and join, unless that happened since ``epoch``."""
        with self._registering:
            if epoch == self._epoch:
                self._greet()
                if self._agreed:
                    self._join()

    def _join(self) -> None:
        join = Join(
            actor=self.actor,
            agreed=self._agreed,
            version=self._fetcher.version,
            number=self.sent.taken,
            taken_steps=self.sent.taken_steps,
        )
        receipt = self._ask(join, Receipt)
        if receipt.state != "unknown":
            self._apply(receipt, self._epoch)

    def _apply(self, receipt: Receipt, epoch: int, *, news: bool = True) -> None:
        """Apply a receipt. epoch: of the registration when the request was sent."""
        if receipt.state == "finished":
            self.finished = True
            self.halted.set()
        elif receipt.state == "unknown":
            self._register_again(epoch)
        elif news:
            self.warming_up = receipt.warming_up
            self.lessons = receipt.lessons
            self._fetcher.announce(receipt.version)

    def _ask(self, message: Message, kind: type[Answer]) -> Answer:
        return self._call(partial(self._client.ask, message, kind))

    def _call(self, call: Callable[[], Response]) -> Response:
        try:
            response = call()
        except Busy:  # it is there all the same
            self._monitor.answered()
            raise
        except Unreachable as error:
            if not self.halted.is_set():  # else it was the actor that hung up
                self._monitor.lost(error)
            raise
        self._monitor.answered()
        return response

    def _persist(self, call: Callable[[], Response]) -> Response | None:
        """Retry until there is an answer; None if the actor is to end before."""
        backoff = self.backoff()
        while not (self.stopped() or self.halted.is_set()):
            try:
                return call()
            except Unreachable:
                until = self.clock.now() + backoff.pause()
            while (left := until - self.clock.now()) > 0 and not self.stopped():
                if self.clock.wait(self.halted, min(left, LOOK_S)):
                    break
        self.check()
        return None

    def _beats(self) -> None:
        assert self._welcome is not None
        while not self.clock.wait(self.halted, self._welcome.heartbeat):
            with contextlib.suppress(Unreachable):  # the monitor has noted it, the next may be answered
                self.beat()

    def _fetch_weights(self) -> None:
        backoff = self.backoff()
        while not self.halted.is_set():
            if not self._fetcher.wait_until_behind(LOOK_S):
                continue
            try:
                self._fetcher.fetch()
                backoff.reset()
            except Unreachable:
                self.clock.wait(self.halted, backoff.pause())

    def _bye(self, reason: str) -> None:
        with contextlib.suppress(Unreachable, LearnerRefused):  # its slot is freed all the same, but later
            self._client.bye(Bye(actor=self.actor, reason=reason))
