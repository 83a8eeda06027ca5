"""Messages that wait to be sent: a bounded number, sent in order by a thread for each channel."""

from __future__ import annotations

import threading
from collections import deque
from functools import partial

from msgspec.structs import replace

from ds.net.contact import FIRST_PAUSE_S, LOOK_S, RateLimitedLog, Sent
from ds.net.link import Link
from ds.net.protocol import Receipt, TrajectoryMessage, Unreachable


class _Channel:
    """One channel: messages that wait, oldest first."""

    def __init__(self) -> None:
        self.queue: deque[tuple[int, TrajectoryMessage]] = deque()  # arrival over all channels, message
        self.flying = 0  # 1 while a message is being sent
        self.last = 0  # number given last


class SendQueue:
    """Bounded queue of messages, numbered from 1 in each channel; each reaches the learner at least once.

    size: messages that may wait while the learner is away, those being sent included; at least one a channel

    As long as the learner answers, the actor waits until no message is before its own in the channel, so that
    it cannot run ahead of a slower learner. While the learner is away, a full queue gives up the oldest
    message that is not being sent. The numbers tell the learner that it never came.
    """

    def __init__(self, link: Link, *, channels: int, size: int) -> None:
        self._link, self._size = link, max(size, channels)
        self._channels = tuple(_Channel() for _ in range(channels))
        self._changed = threading.Condition()
        self._log = RateLimitedLog(link.show, link.clock.now)
        self._arrivals = 0
        self._closed = False
        self.sent = Sent(taken=[0] * channels)

    def start(self) -> None:
        """Start the sending threads."""
        for number, channel in enumerate(self._channels):
            self._link.start_thread(f"channel {number}", partial(self._run, channel))

    def put(self, message: TrajectoryMessage) -> None:
        """Add a message; wait, or give up older ones, until there is room.

        Returns at once if the actor is to end. Raises what :meth:`~ds.net.link.Link.check` does.
        """
        channel = self._channels[message.channel]
        with self._changed:
            self._append(channel, message)
            while not self._is_over():
                if not self._link.away:
                    if len(channel.queue) + channel.flying <= 1:
                        break
                    self._changed.wait(LOOK_S)
                elif self.sent.waiting <= self._size:
                    break
                else:
                    self._give_up_oldest()  # there is one: no more are being sent than there are channels
        self._link.check()

    def hand_over(self, message: TrajectoryMessage) -> None:
        """Add a message and wait until the learner has it, however long that takes. Else as :meth:`put`."""
        with self._changed:
            self._append(self._channels[message.channel], message)
            while self.sent.waiting and not self._is_over():
                self._changed.wait(LOOK_S)
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
            while self._give_up_oldest():
                pass
            self._closed = True
            self._changed.notify_all()

    def _is_over(self) -> bool:
        return self._link.stopped() or self._link.halted.is_set()

    def _append(self, channel: _Channel, message: TrajectoryMessage) -> None:
        if self._link.halted.is_set():
            return
        channel.last += 1
        self._arrivals += 1
        numbered = replace(message, actor=self._link.actor, number=channel.last)
        channel.queue.append((self._arrivals, numbered))
        self.sent.waiting += 1
        self._changed.notify_all()

    def _give_up_oldest(self) -> bool:
        """Give up the oldest message that is not being sent; False if there is none."""
        waiting = [channel for channel in self._channels if channel.queue]
        if not waiting:
            return False
        channel = min(waiting, key=lambda one: one.queue[0][0])
        _, message = channel.queue.popleft()
        self.sent.waiting -= 1
        self.sent.dropped += message.steps
        return True

    def _run(self, channel: _Channel) -> None:
        while (message := self._next(channel)) is not None:
            receipt = self._send(message)
            if receipt is None:
                return
            self._settle(channel, message, receipt)

    def _next(self, channel: _Channel) -> TrajectoryMessage | None:
        """Return the channel's oldest message, as soon as there is one; None once the queue is closed."""
        with self._changed:
            self._changed.wait_for(lambda: channel.queue or self._closed)
            if not channel.queue:
                return None
            _, message = channel.queue.popleft()
            channel.flying = 1
            return replace(message, dropped=self.sent.dropped)

    def _send(self, message: TrajectoryMessage) -> Receipt | None:
        """Send until the learner has answered for it; None if the actor is to end before."""
        halted, clock, backoff = self._link.halted, self._link.clock, self._link.backoff()
        while not halted.is_set():
            asked = clock.now()
            try:
                receipt = self._link.deliver(message)
            except Unreachable:
                with self._changed:  # who waits for room may give messages up now
                    self._changed.notify_all()
            else:
                if receipt.state in ("taken", "rejected"):
                    return receipt
                if receipt.state == "again":  # it has waited for room as long as it could, if it could
                    backoff.reset()
                    if clock.now() - asked >= FIRST_PAUSE_S:
                        continue
            clock.wait(halted, backoff.pause())
        return None

    def _settle(self, channel: _Channel, message: TrajectoryMessage, receipt: Receipt) -> None:
        with self._changed:
            channel.flying = 0
            self.sent.waiting -= 1
            self.sent.taken[message.channel] = message.number
            if receipt.state == "taken":
                self.sent.taken_steps += message.steps
            self._changed.notify_all()
        if receipt.state != "taken":
            self._log.say("rejected", f"{message.steps:,} steps were rejected ({receipt.reason})")
