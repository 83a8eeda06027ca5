"""An actor's side of the connection: it finds the learner, stays known to it, and hears what it says."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from ds.calling import Acquaintance, Answer, Caller, Message, NothingSent, Papers, Sender
from ds.ending import Ending
from ds.errors import Busy, LearnerRefused, Unreachable
from ds.newest import Newest, Weights
from ds.patience import LOOK_S, Backoff, Clock, RealClock, Tell, pause
from ds.presence import Presence
from ds.protocol import Beat, Bye, Hello, Joined, Parcel, Receipt, Wanted, Welcome

BYE_S = 2.0

Result = TypeVar("Result")


class Link:
    """Owns the connections. Threads of its own beat, and fetch weights unless in synchronous mode.

    connect:  makes a connection; one carries all but the parcels, each lane of which gets its own
    hello:    said first, and again to a learner that does not know this actor
    where:    address of the learner, for a person
    patience: seconds to wait for a learner that does not answer, at the start and later; −1 for ever
    tell:     shows a line; called from any thread, one at a time
    stopped:  whether the user wants to end; asked while the main thread waits

    The main thread calls ``start``, ``join``, then ``report`` and ``weights`` or ``wait_newer`` as it goes,
    and ``close``. All but the last raise what a thread met that ends the actor: LearnerRefused, or
    LearnerAway when patience is at its end.
    """

    def __init__(
        self,
        connect: Callable[[], Caller],
        hello: Hello,
        *,
        where: str,
        patience: float,
        tell: Tell,
        stopped: Callable[[], bool] = lambda: False,
        clock: Clock | None = None,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self.actor, self.stopped = hello.actor, stopped
        self.clock, self.ending = clock or RealClock(), Ending()
        self._connect, self._show, self._draw = connect, tell, draw
        self._telling = threading.Lock()
        self._caller = connect()
        self._lanes: list[Caller] = []
        self._sender: Sender = NothingSent()
        self._presence = Presence(
            where=where,
            patience=patience,
            tell=self.tell,
            clock=self.clock,
            dropped=lambda: self._sender.dropped,
        )
        self._acquaintance = Acquaintance(self._caller, self._call, hello, self.tell)
        self._newest = Newest(self._weights_newer)
        self._heartbeat, self._synchronous = 0.0, False
        self._steps = self._acting = 0
        self.warming_up: Mapping[str, bool] = {}
        """Behaviour -> whether it acts at random; empty before the first receipt."""
        self.max_message = 0
        """Bytes of the largest parcel that the learner takes."""

    @property
    def away(self) -> bool:
        """Whether the learner does not answer."""
        return self._presence.away

    @property
    def finished(self) -> bool:
        """Whether the training has ended; so shall the actor."""
        return self.ending.finished.is_set()

    def tell(self, text: str) -> None:
        """Show one line to a person."""
        with self._telling:
            self._show(text)

    def backoff(self) -> Backoff:
        """Pauses for somebody who tries again."""
        return Backoff(self._draw)

    def start(self) -> Welcome | None:
        """Find the learner and begin to beat; None if the user wants to end before there is one."""
        welcome = self._persist(self._acquaintance.hello)
        if welcome is not None:
            self._heartbeat, self._synchronous = welcome.heartbeat, welcome.synchronous
            self.ending.start("beats", self._beats)
        return welcome

    def join(self, agreed: Mapping[str, Any], digest: str, sender: Sender) -> None:
        """Be ready to act: from here on parcels may be delivered, and weights are fetched.

        agreed, digest: see ``ds.compatibility``
        """
        self._sender, self._lanes = sender, [self._connect() for _ in sender.taken]
        papers = Papers(agreed, digest, sender, lambda: self._newest.version)
        joined = self._persist(lambda: self._acquaintance.join(papers))
        if joined is None:
            return
        self._joined(joined)
        if not self._synchronous:
            self.ending.start("weights", self._fetch_weights)

    def report(self, *, steps: int, version: int) -> None:
        """What the next beats say: environment steps so far, and the version of the weights that act."""
        self.ending.check()
        self._steps, self._acting = steps, version
        self._newest.has(version)

    def deliver(self, parcel: Parcel) -> Receipt:
        """Send a parcel in its lane; for its thread.

        Once ``unknown`` has been answered the actor is known again, and the same parcel is to be sent again.
        Raises Unreachable if that shall be tried later, LearnerRefused and LearnerAway if never.
        """
        epoch = self._acquaintance.epoch
        receipt = self._call(self._lanes[parcel.lane].deliver, parcel)
        self._hear(receipt, epoch)
        return receipt

    def beat(self) -> None:
        """Say that the actor is alive. Raises as :meth:`deliver`.

        In synchronous mode the news of the receipt are left: those of the last parcel's came with it, and
        this one may have been written before.
        """
        epoch, sender = self._acquaintance.epoch, self._sender
        beat = Beat(
            actor=self.actor,
            version=self._acting,
            steps=self._steps,
            waiting=sender.waiting,
            dropped=sender.dropped,
        )
        self._hear(self._call(self._caller.beat, beat), epoch, news=not self._synchronous)

    def weights(self) -> Weights | None:
        """The newest weights that have been fetched and not taken yet."""
        self.ending.check()
        return self._newest.take()

    def wait_newer(self, than: int) -> Weights | None:
        """In synchronous mode, the learner's weights if the last receipt spoke of newer ones than ``than``.

        None at once if there are none; None too if the actor is to end.
        """
        self._newest.has(than)
        self._persist(self._newest.fetch)
        return self._newest.take()

    def close(self, reason: str) -> None:
        """Say goodbye, which takes 2 s at most, and hang up."""
        self.ending.halted.set()
        if self._acquaintance.epoch and not self.away:
            goodbye = threading.Thread(target=self._bye, args=(reason,), name="goodbye", daemon=True)
            goodbye.start()
            goodbye.join(BYE_S)
        for caller in (self._caller, *self._lanes):
            caller.close()

    def _weights_newer(self, than: int) -> list[bytes]:
        return self._call(self._caller.weights, Wanted(actor=self.actor, than=than))

    def _bye(self, reason: str) -> None:
        with contextlib.suppress(Unreachable, LearnerRefused):  # its slot is freed all the same, but later
            self._caller.bye(Bye(actor=self.actor, reason=reason))

    def _call(self, ask: Callable[[Message], Answer], message: Message, /) -> Answer:
        try:
            answer = ask(message)
        except Busy:  # it is there all the same
            self._presence.answered()
            raise
        except Unreachable as error:
            if not self.ending.halted.is_set():  # else it was the actor that hung up
                self._presence.lost(error)
            raise
        self._presence.answered()
        return answer

    def _persist(self, ask: Callable[[], Result]) -> Result | None:
        """Ask until there is an answer; None if the actor is to end before."""
        backoff = self.backoff()
        while not (self.stopped() or self.ending.halted.is_set()):
            try:
                return ask()
            except Unreachable:
                pause(self.clock, self.ending.halted, backoff.pause(), self.stopped)
        self.ending.check()
        return None

    def _hear(self, receipt: Receipt, epoch: int, *, news: bool = True) -> None:
        """``epoch``: when the question was asked."""
        if receipt.state == "finished":
            self.ending.finish()
        elif receipt.state == "unknown":
            joined = self._acquaintance.again(epoch)
            if joined is not None:
                self._joined(joined)
        elif news:
            self.warming_up = receipt.warming_up
            self._newest.heard(receipt.version)

    def _joined(self, joined: Joined) -> None:
        self.max_message = joined.max_message
        self._newest.anew()
        if joined.receipt.state != "unknown":
            self._hear(joined.receipt, self._acquaintance.epoch)

    def _beats(self) -> None:
        while not self.clock.wait(self.ending.halted, self._heartbeat):
            with contextlib.suppress(Unreachable):  # the next one may be answered; ``Presence`` has noted it
                self.beat()

    def _fetch_weights(self) -> None:
        backoff = self.backoff()
        while not self.ending.halted.is_set():
            if not self._newest.wanted(LOOK_S):
                continue
            try:
                self._newest.fetch()
                backoff.reset()
            except Unreachable:
                self.clock.wait(self.ending.halted, backoff.pause())
