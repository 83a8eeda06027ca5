"""Messages that wait to be sent: a bounded number, sent in order by a thread."""

from __future__ import annotations

import threading
from collections import deque
from contextlib import suppress

from msgspec.structs import replace

from ds.net.contact import FIRST_PAUSE_S, LOOK_S, RateLimitedLog
from ds.net.link import Link
from ds.net.protocol import Receipt, StepMessage, Unreachable


class SendQueue:
    """Bounded queue of messages, numbered from 1; each reaches the learner at least once, in this order.

    size:  messages that may wait while the learner is away, the one being sent included; at least one
    ahead: messages that may wait while it answers, likewise

    As long as the learner answers, the actor waits until there are no more, so that it cannot run ahead of a
    slower learner. While the learner is away, a full queue gives up the oldest message that is not
    being sent. A gap in the numbers shows the learner that it never came.
    """

    def __init__(self, link: Link, *, size: int, ahead: int = 1) -> None:
        self._link, self._size, self._ahead = link, max(size, 1), ahead
        self._waiting: deque[StepMessage] = deque()  # without the one that is being sent
        self._changed = threading.Condition()
        self._log = RateLimitedLog(link.show, link.clock.now)
        self._last = 0  # number given last
        self._closed = False
        self.sent = link.sent

    def start(self) -> None:
        """Start the sending thread."""
        self._link.start_thread("sender", self._run)

    def put(self, message: StepMessage, *, until_taken: bool = False) -> None:
        """Add a message; wait, or give up older ones, until there is room.

        until_taken: wait until the learner has it instead, however long that takes
        Returns at once if the actor is to end. Raises what :meth:`~ds.net.link.Link.check` does.
        """
        with self._changed:
            self._append(message)
            while not self._is_over():
                if until_taken or not self._link.away:
                    if self.sent.waiting <= (0 if until_taken else self._ahead):
                        break
                    self._changed.wait(LOOK_S)
                elif self.sent.waiting <= self._size:
                    break
                else:
                    self._give_up_oldest()  # there is one: only one is being sent
        self._link.check()

    def finish(self, seconds: float) -> None:
        """Send what waits, within so many seconds and if the learner answers; the rest is given up."""
        clock, halted = self._link.clock, self._link.halted
        until = clock.now() + seconds
        with self._changed:
            while self.sent.waiting and not (self._link.away or halted.is_set()):
                left = until - clock.now()
                if left <= 0:
                    break
                self._changed.wait(min(left, LOOK_S))
            while self._waiting:
                self._give_up_oldest()
            self._closed = True
            self._changed.notify_all()

    def _is_over(self) -> bool:
        return self._link.stopped() or self._link.halted.is_set()

    def _append(self, message: StepMessage) -> None:
        """Add a message, with its number, while ``_changed`` is held; do nothing once the link is halted."""
        if self._link.halted.is_set():
            return
        self._last += 1
        self._waiting.append(replace(message, actor=self._link.actor, number=self._last))
        self.sent.waiting += 1
        self._changed.notify_all()

    def _give_up_oldest(self) -> None:
        """Give up the oldest message that is not being sent."""
        self.sent.waiting -= 1
        self.sent.dropped += self._waiting.popleft().num_steps

    def _run(self) -> None:
        while (message := self._next()) is not None:
            receipt = self._send(message)
            if receipt is None:
                return
            self._settle(message, receipt)

    def _next(self) -> StepMessage | None:
        """Return the oldest message, as soon as there is one; None once the queue is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed)
            return replace(self._waiting.popleft(), dropped=self.sent.dropped) if self._waiting else None

    def _send(self, message: StepMessage) -> Receipt | None:
        """Send until the learner has answered for it; None if the actor is to end before."""
        halted, clock, backoff = self._link.halted, self._link.clock, self._link.backoff()
        while not halted.is_set():
            asked = clock.now()
            with suppress(Unreachable):  # the monitor has noted it
                receipt = self._link.deliver(message)
                if receipt.state in ("taken", "rejected"):
                    return receipt
                if receipt.state == "again":  # it has waited for room as long as it could, if it could
                    backoff.reset()
                    if clock.now() - asked >= FIRST_PAUSE_S:
                        continue
            clock.wait(halted, backoff.pause())
        return None

    def _settle(self, message: StepMessage, receipt: Receipt) -> None:
        with self._changed:
            self.sent.waiting -= 1
            self.sent.taken = message.number
            if receipt.state == "taken":
                self.sent.taken_steps += message.num_steps
            self._changed.notify_all()
        if receipt.state != "taken":
            self._log.show("rejected", f"{message.num_steps:,} steps were rejected ({receipt.reason})")
