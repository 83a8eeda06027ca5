"""Messages that wait to be sent: a bounded number, sent in order by a thread for each channel."""

from __future__ import annotations

import threading
from collections import deque
from functools import partial
from typing import Protocol

from msgspec.structs import replace

from ds.backoff import FIRST_PAUSE_S, LOOK_S, Backoff, Clock, RateLimitedLog
from ds.errors import Unreachable
from ds.protocol import Receipt, TrajectoryChunk, TrajectoryMessage
from ds.session import ShutdownState
from ds.trajectory import Key

MAX_INTERRUPTED = 500
"""Maximum number of interrupted episodes in a message."""


class SendLink(Protocol):
    """The part of :class:`~ds.link.Link` that a send queue needs."""

    actor: str
    shutdown: ShutdownState
    clock: Clock

    @property
    def away(self) -> bool: ...  # noqa: D102 - see Link
    def stopped(self) -> bool: ...  # noqa: D102
    def show(self, text: str) -> None: ...  # noqa: D102
    def backoff(self) -> Backoff: ...  # noqa: D102
    def deliver(self, message: TrajectoryMessage) -> Receipt: ...  # noqa: D102


class _Channel:
    """One channel: messages that wait, oldest first, and the outcome of the others."""

    def __init__(self) -> None:
        self.queue: deque[tuple[int, TrajectoryMessage]] = deque()  # arrival over all channels, message
        self.flying = 0  # 1 while a message is being sent
        self.last = 0  # number given last
        self.taken = 0  # number of the last message that a learner answered for
        self.interrupted: dict[Key, None] = {}
        """Agents with transitions missing since the last message, in order."""


class SendQueue:
    """Bounded queue of messages, numbered from 1 in each channel; each reaches the learner at least once.

    size: messages that may wait while the learner is away, those being sent included; at least one a channel

    As long as the learner answers, the actor waits until no message is before its own in the channel, so that
    it cannot run ahead of a slower learner. While the learner is away, a full queue gives up the oldest
    message that is not being sent. After lost transitions the next message of the channel begins with the end
    of that agent's episode, so that later ones are not taken for their continuation.

    ``taken``, ``taken_steps``, ``waiting`` and ``dropped`` are those of :class:`~ds.session.Sender`;
    ``stale`` and ``rejected`` are environment steps that the learner refused.
    """

    def __init__(self, link: SendLink, *, channels: int, size: int) -> None:
        """Make an empty queue. Raises ValueError unless both numbers are positive."""
        if channels < 1 or size < 1:
            raise ValueError(
                f"a send queue needs a channel and room for a message, not {channels} and {size}"
            )
        self._link, self._size = link, max(size, channels)
        self._channels = tuple(_Channel() for _ in range(channels))
        self._changed = threading.Condition()
        self._log = RateLimitedLog(link.show, link.clock)
        self._arrivals = 0
        self._closed = False
        self.taken_steps = self.dropped = self.stale = self.rejected = 0

    @property
    def taken(self) -> tuple[int, ...]:
        """Number of the last message that a learner has answered for, by channel."""
        return tuple(channel.taken for channel in self._channels)

    @property
    def waiting(self) -> int:
        """Number of messages that wait, those being sent included."""
        return sum(len(channel.queue) + channel.flying for channel in self._channels)

    def start(self) -> None:
        """Start the sending threads."""
        for number in range(len(self._channels)):
            self._link.shutdown.start(f"channel {number}", partial(self._run, number))

    def put(self, message: TrajectoryMessage) -> None:
        """Add a message; wait, or give up older ones, until there is room.

        Returns at once if the actor is to end. Raises what :meth:`~ds.session.ShutdownState.check` does.
        """
        with self._changed:
            self._append(message)
            while not (self._has_room(message.channel) or self._is_over()):
                if self._link.away:
                    self._give_up_oldest()  # there is one: no more are being sent than there are channels
                else:
                    self._changed.wait(LOOK_S)
        self._link.shutdown.check()

    def hand_over(self, message: TrajectoryMessage) -> None:
        """Add a message and wait until the learner has it, however long that takes. Else as :meth:`put`."""
        with self._changed:
            self._append(message)
            while self.waiting and not self._is_over():
                self._changed.wait(LOOK_S)
        self._link.shutdown.check()

    def finish(self, seconds: float) -> None:
        """Send what waits, within so many seconds and if the learner answers; the rest is given up."""
        clock, shutdown = self._link.clock, self._link.shutdown
        until = clock.now() + seconds
        with self._changed:
            while self.waiting and not (self._link.away or shutdown.halted.is_set()):
                left = until - clock.now()
                if left <= 0:
                    break
                self._changed.wait(min(left, LOOK_S))
            while self._give_up_oldest():
                pass
            self._closed = True
            self._changed.notify_all()

    def _has_room(self, channel: int) -> bool:
        """Return whether the actor may continue, now that its message stands in ``channel``."""
        if self._link.away:
            return self.waiting <= self._size
        return len(self._channels[channel].queue) + self._channels[channel].flying <= 1

    def _is_over(self) -> bool:
        return self._link.stopped() or self._link.shutdown.halted.is_set()

    def _append(self, message: TrajectoryMessage) -> None:
        if self._link.shutdown.halted.is_set():
            return
        channel = self._channels[message.channel]
        channel.last += 1
        self._arrivals += 1
        numbered = replace(message, actor=self._link.actor, number=channel.last)
        channel.queue.append((self._arrivals, numbered))
        self._changed.notify_all()

    def _give_up_oldest(self) -> bool:
        """Give up the oldest message that is not being sent. Return whether there was one."""
        channel = min(
            (channel for channel in self._channels if channel.queue),
            key=lambda channel: channel.queue[0][0],
            default=None,
        )
        if channel is None:
            return False
        _, message = channel.queue.popleft()
        self.dropped += message.steps
        self._mark_interrupted(channel, message.chunks)
        return True

    @staticmethod
    def _mark_interrupted(channel: _Channel, chunks: tuple[TrajectoryChunk, ...]) -> None:
        channel.interrupted |= {(chunk.behaviour, chunk.agent): None for chunk in chunks}

    @staticmethod
    def _take_interrupted(channel: _Channel, message: TrajectoryMessage) -> tuple[TrajectoryChunk, ...]:
        """Return ends of interrupted episodes: all of the message's agents, a limited number of others."""
        own = {(chunk.behaviour, chunk.agent) for chunk in message.chunks}
        others = set([key for key in channel.interrupted if key not in own][:MAX_INTERRUPTED])
        found = [key for key in channel.interrupted if key in own or key in others]
        for key in found:
            del channel.interrupted[key]
        return tuple(TrajectoryChunk(*key, None) for key in found)

    def _run(self, number: int) -> None:
        while (message := self._next(number)) is not None:
            receipt = self._send(message)
            if receipt is None:
                return
            self._settle(message, receipt)

    def _next(self, number: int) -> TrajectoryMessage | None:
        """Return the channel's oldest message, as soon as there is one; None once the queue is closed."""
        channel = self._channels[number]
        with self._changed:
            self._changed.wait_for(lambda: channel.queue or self._closed)
            if not channel.queue:
                return None
            (_, message), channel.flying = channel.queue.popleft(), 1
            chunks = self._take_interrupted(channel, message) + message.chunks
            return replace(message, chunks=chunks, dropped=self.dropped)

    def _send(self, message: TrajectoryMessage) -> Receipt | None:
        """Send until the learner has answered for it; None if the actor is to end before."""
        shutdown, clock, backoff = self._link.shutdown, self._link.clock, self._link.backoff()
        while not shutdown.halted.is_set():
            asked = clock.now()
            try:
                receipt = self._link.deliver(message)
            except Unreachable:
                with self._changed:  # who waits for room may give messages up now
                    self._changed.notify_all()
            else:
                if receipt.state in ("taken", "rejected", "stale"):
                    return receipt
                if receipt.state == "again":  # it has waited for room as long as it could, if it could
                    backoff.reset()
                    if clock.now() - asked >= FIRST_PAUSE_S:
                        continue
            clock.wait(shutdown.halted, backoff.pause())
        return None

    def _settle(self, message: TrajectoryMessage, receipt: Receipt) -> None:
        channel = self._channels[message.channel]
        with self._changed:
            channel.flying, channel.taken = 0, message.number
            if receipt.state == "taken":
                self.taken_steps += message.steps
            elif receipt.state == "stale":
                self.stale += message.steps
                self._mark_interrupted(channel, message.chunks)
            else:
                self.rejected += message.steps
                self._mark_interrupted(channel, message.chunks)
            self._changed.notify_all()
        if receipt.state != "taken":
            what = "not used: made with weights too old" if receipt.state == "stale" else "rejected"
            self._log.say(receipt.state, f"{message.steps:,} steps were {what} ({receipt.reason})")
