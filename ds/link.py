"""An actor's side of the connection: registration, beats, deliveries, newest weights."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Callable, Mapping
from typing import Any

from ds.backoff import LOOK_S, Backoff, Clock, RealClock, ShowLine, pause
from ds.errors import Busy, LearnerRefused, Unreachable
from ds.parameters import FetchedWeights, WeightFetcher
from ds.protocol import Beat, Bye, Hello, Joined, Receipt, TrajectoryMessage, WeightRequest, Welcome
from ds.session import (
    Caller,
    ConnectionMonitor,
    JoinRequest,
    NothingSentYet,
    Registration,
    Request,
    Response,
    Sender,
    ShutdownState,
)

BYE_S = 2.0


class Link:
    """An actor's connections, with threads that send beats and, unless synchronous, fetch weights.

    connect:  makes a connection; one carries all but the messages, each channel of which gets its own
    hello:    sent first, and again to a learner without this actor
    where:    address of the learner, for a person
    patience: seconds to wait for a learner that does not answer, at the start and later; −1 for ever
    show:     shows a line; called from any thread, one at a time
    stopped:  whether the user wants to end; called while the main thread waits

    The main thread calls ``start``, ``join``, then ``report`` and ``weights`` or ``wait_newer`` as it goes,
    and ``close``. All but the last raise the error of a thread that ends the actor:
    LearnerRefused, or LearnerAway after ``patience`` seconds.
    """

    def __init__(
        self,
        connect: Callable[[], Caller],
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
        self.clock, self.shutdown = clock or RealClock(), ShutdownState()
        self._connect, self._show, self._draw = connect, show, draw
        self._reporting = threading.Lock()
        self._caller = connect()
        self._channels: list[Caller] = []
        self._sender: Sender = NothingSentYet()
        self._monitor = ConnectionMonitor(
            where=where,
            patience=patience,
            show=self.show,
            clock=self.clock,
            dropped=lambda: self._sender.dropped,
        )
        self._registration = Registration(self._caller, self._call, hello, self.show)
        self._fetcher = WeightFetcher(self._weights_newer)
        self._heartbeat, self._synchronous = 0.0, False
        self._steps = self._acting = 0
        self._faults = (0, 0)
        self.warming_up: Mapping[str, bool] = {}
        """Behaviour -> whether it acts at random; empty before the first receipt."""
        self.max_message = 0
        """Bytes of the largest message that the learner takes."""

    @property
    def away(self) -> bool:
        """True if the learner does not answer."""
        return self._monitor.away

    @property
    def finished(self) -> bool:
        """True if the training has ended, and with it the actor."""
        return self.shutdown.finished.is_set()

    def show(self, text: str) -> None:
        """Show one line to a person."""
        with self._reporting:
            self._show(text)

    def backoff(self) -> Backoff:
        """Return pauses for a series of tries."""
        return Backoff(self._draw)

    def start(self) -> Welcome | None:
        """Find the learner and begin to send beats; None if the user stops before there is one."""
        welcome = self._persist(self._registration.hello)
        if welcome is not None:
            self._heartbeat, self._synchronous = welcome.heartbeat, welcome.synchronous
            self.shutdown.start("beats", self._beats)
        return welcome

    def join(self, agreed: Mapping[str, Any], digest: str, sender: Sender) -> None:
        """Join: from here on messages may be delivered, and weights are fetched.

        agreed, digest: see ``ds.compatibility``
        """
        self._sender, self._channels = sender, [self._connect() for _ in sender.taken]
        request = JoinRequest(agreed, digest, sender, lambda: self._fetcher.version)
        joined = self._persist(lambda: self._registration.join(request))
        if joined is None:
            return
        self._joined(joined)
        if not self._synchronous:
            self.shutdown.start("weights", self._fetch_weights)

    def report(self, *, steps: int, version: int, faults: tuple[int, int] = (0, 0)) -> None:
        """Set what the next beats contain: environment steps so far, the version that acts, and faults."""
        self.shutdown.check()
        self._steps, self._acting = steps, version
        self._faults = faults
        self._fetcher.mark_loaded(version)

    def deliver(self, message: TrajectoryMessage) -> Receipt:
        """Send a message in its channel; for that channel's thread.

        Once ``unknown`` has been answered the actor is known again, and the same message is to be sent again.
        Raises Unreachable if that shall be tried later, LearnerRefused and LearnerAway if never.
        """
        epoch = self._registration.epoch
        receipt = self._call(self._channels[message.channel].deliver, message)
        self._hear(receipt, epoch)
        return receipt

    def beat(self) -> None:
        """Send a beat. Raises as :meth:`deliver`.

        In synchronous mode the news of the receipt are left: those of the last message's came with it, and
        this one may have been written before.
        """
        epoch, sender = self._registration.epoch, self._sender
        beat = Beat(
            actor=self.actor,
            version=self._acting,
            steps=self._steps,
            waiting=sender.waiting,
            dropped=sender.dropped,
            faults=self._faults,
        )
        self._hear(self._call(self._caller.beat, beat), epoch, news=not self._synchronous)

    def weights(self) -> FetchedWeights | None:
        """Return the newest weights that have been fetched and not taken yet."""
        self.shutdown.check()
        return self._fetcher.take()

    def wait_newer(self, than: int) -> FetchedWeights | None:
        """Return, in synchronous mode, weights newer than ``than`` if the last receipt announced some.

        None at once if there are none; None too if the actor is to end.
        """
        self._fetcher.mark_loaded(than)
        self._persist(self._fetcher.fetch)
        return self._fetcher.take()

    def close(self, reason: str) -> None:
        """Leave, which takes 2 s at most, and close the connections."""
        self.shutdown.halted.set()
        if self._registration.epoch and not self.away:
            goodbye = threading.Thread(target=self._bye, args=(reason,), name="goodbye", daemon=True)
            goodbye.start()
            goodbye.join(BYE_S)
        for caller in (self._caller, *self._channels):
            caller.close()

    def _weights_newer(self, than: int) -> list[bytes]:
        return self._call(self._caller.weights, WeightRequest(actor=self.actor, newer_than=than))

    def _bye(self, reason: str) -> None:
        with contextlib.suppress(Unreachable, LearnerRefused):  # its slot is freed all the same, but later
            self._caller.bye(Bye(actor=self.actor, reason=reason))

    def _call(self, method: Callable[[Request], Response], request: Request, /) -> Response:
        try:
            response = method(request)
        except Busy:  # it is there all the same
            self._monitor.answered()
            raise
        except Unreachable as error:
            if not self.shutdown.halted.is_set():  # else it was the actor that hung up
                self._monitor.lost(error)
            raise
        self._monitor.answered()
        return response

    def _persist(self, call: Callable[[], Response]) -> Response | None:
        """Retry until there is an answer; None if the actor is to end before."""
        backoff = self.backoff()
        while not (self.stopped() or self.shutdown.halted.is_set()):
            try:
                return call()
            except Unreachable:
                pause(self.clock, self.shutdown.halted, backoff.pause(), self.stopped)
        self.shutdown.check()
        return None

    def _hear(self, receipt: Receipt, epoch: int, *, news: bool = True) -> None:
        """Apply a receipt. epoch: of the registration when the request was sent."""
        if receipt.state == "finished":
            self.shutdown.finish()
        elif receipt.state == "unknown":
            joined = self._registration.again(epoch)
            if joined is not None:
                self._joined(joined)
        elif news:
            self.warming_up = receipt.warming_up
            self._fetcher.announce(receipt.version)

    def _joined(self, joined: Joined) -> None:
        self.max_message = joined.max_message
        self._fetcher.retry_missing()
        if joined.receipt.state != "unknown":
            self._hear(joined.receipt, self._registration.epoch)

    def _beats(self) -> None:
        while not self.clock.wait(self.shutdown.halted, self._heartbeat):
            with contextlib.suppress(
                Unreachable
            ):  # the next one may be answered; ``ConnectionMonitor`` has noted it
                self.beat()

    def _fetch_weights(self) -> None:
        backoff = self.backoff()
        while not self.shutdown.halted.is_set():
            if not self._fetcher.wait_until_behind(LOOK_S):
                continue
            try:
                self._fetcher.fetch()
                backoff.reset()
            except Unreachable:
                self.clock.wait(self.shutdown.halted, backoff.pause())
