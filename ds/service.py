"""The learner's answers to its actors, given in the server's event loop, which nothing here blocks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from msgspec.structs import replace

from algorithm.core.spec import AgentSpec
from ds.checking import BadMessage, check_beat, check_trajectory
from ds.compatibility import differences, digest
from ds.ingest import IngestQueue
from ds.parameters import ParameterStore
from ds.protocol import (
    Beat,
    Bye,
    Hello,
    Join,
    Joined,
    Receipt,
    ReceiptState,
    Refused,
    TrajectoryChunk,
    TrajectoryMessage,
    WeightRequest,
    Welcome,
)
from ds.records import shown
from ds.registry import ActorRegistry, Verdict

_AT_ONCE: Mapping[Verdict, ReceiptState] = {
    "taken before": "taken",
    "stale before": "stale",
    "rejected before": "rejected",
    "unknown": "unknown",
    "busy": "again",
}
"""Answers that do not depend on the message."""

MAX_CHANNELS = 64
MANY = 64
"""Number of chunks from which the check of a message takes a while."""

MAX_DIFFERENCES = 50


@dataclass(frozen=True, kw_only=True)
class Terms:
    """Requirements for an actor.

    agreed:       see :func:`ds.compatibility.agreed`
    specs, carry_shapes: by behaviour; of one stored carry, (0,) where none is stored
    max_length:   L of the longest segment
    max_message:  bytes of the largest message
    synchronous:  a message is answered only when it has been learned from
    room_timeout: seconds that a message waits for room before its actor is asked to send it again
    """

    agreed: Mapping[str, Any]
    specs: Mapping[str, AgentSpec]
    carry_shapes: Mapping[str, tuple[int, ...]]
    max_length: int
    max_message: int
    synchronous: bool
    room_timeout: float


class Service:
    """Answers to actors from registry, queue and published parameters; see :mod:`ds.protocol`."""

    def __init__(
        self, actors: ActorRegistry, queue: IngestQueue, parameters: ParameterStore, terms: Terms
    ) -> None:
        self._actors, self._queue, self._parameters, self._terms = actors, queue, parameters, terms
        self._digest = digest(terms.agreed)
        self._storing: set[asyncio.Task[Receipt]] = set()

    def has_registered(self, actor: str) -> bool:
        """Return whether an actor is registered."""
        return self._actors.number(actor) is not None

    def unknown(self, kind: type[Any]) -> Receipt | Joined:
        """Return the answer that asks for Hello first."""
        return self._joined((), "unknown") if kind is Join else self._receipt("unknown")

    async def hello(self, hello: Hello, peer: str) -> Welcome | Refused:
        """Register an actor, after those that expired."""
        self._expire()
        return self._actors.hello(hello)

    async def join(self, join: Join) -> Joined | Refused:
        """Compare settings and counts; a mismatch is refused, and the slot freed."""
        refused = await self._mismatch(join)
        if refused is not None:
            why = "; ".join(refused.differences) or refused.reason
            self._depart(Bye(actor=join.actor, reason=f"it does not fit: {why}"))
            return refused
        channels = self._actors.joined(join)
        if channels is None:
            return self._joined(join.channels, "unknown")
        self._parameters.seen(join.version)
        return self._joined(channels, "taken")

    async def deliver(self, message: TrajectoryMessage) -> Receipt:
        """Answer when the message is in the queue, in synchronous mode when it has been learned from.

        A broken connection does not interrupt that: else the outcome would be unknown.
        """
        if self._parameters.finished:
            return self._receipt("finished")
        verdict = self._actors.accept(message, self._parameters.lag(message.version))
        if verdict in _AT_ONCE:
            return self._receipt(_AT_ONCE[verdict], "it came before" if "before" in verdict else "")
        if verdict == "no channel":
            return self._reject(message, f"channel {message.channel} is none of those it joined with")
        if verdict == "no count":
            reason = f"number {message.number}, {message.dropped} steps given up: neither follows from before"
            return self._reject(message, reason)
        storing = asyncio.ensure_future(self._store(message, stale=verdict == "stale"))
        self._storing.add(storing)  # a loop keeps no task alive by itself
        storing.add_done_callback(self._storing.discard)
        return await asyncio.shield(storing)

    async def beat(self, beat: Beat) -> Receipt:
        """Return whether the actor is known, with the newest version."""
        try:
            dropped = self._actors.dropped(beat.actor)
            check_beat(beat, version=self._parameters.max_version, dropped=dropped)
        except BadMessage as error:
            self._actors.count_fault("rejected", f"a beat: {error}")
            return self._receipt("rejected", str(error))
        known = self._actors.beat(beat, self._parameters.lag(beat.version))
        self._expire()
        if self._parameters.finished:
            return self._receipt("finished")
        return self._receipt("taken" if known else "unknown")

    async def bye(self, bye: Bye) -> None:
        """Free the slot at once."""
        self._depart(bye)

    def weights(self, wanted: WeightRequest) -> tuple[bytes, ...]:
        """Return the newest weights in pieces; none if the actor has them."""
        return self._parameters.weights(wanted.newer_than)

    async def _mismatch(self, join: Join) -> Refused | None:
        if self._terms.synchronous and len(join.channels) != 1:
            reason = f"{len(join.channels)} channels: a synchronous learner takes messages from one"
            return Refused(why="malformed", reason=reason)
        doubt = self._impossible_counts(join)
        if doubt:
            self._actors.count_fault("rejected", f"a join: {doubt}")
            return Refused(why="malformed", reason=doubt, fix="start the actor anew")
        if join.digest == self._digest:
            return None
        try:
            found = await asyncio.to_thread(_differences, join.agreed, self._terms.agreed)
        except BadMessage as error:
            return Refused(why="malformed", reason=str(error))
        return Refused(
            why="differs",
            reason="the actor has other settings than the learner",
            differences=tuple(shown(line) for line in found[:MAX_DIFFERENCES]),
            fix="start the actor with the learner's configuration, networks and versions",
        )

    def _impossible_counts(self, join: Join) -> str:
        """Return why an actor's counts are impossible; empty if they may be true."""
        if not 1 <= len(join.channels) <= MAX_CHANNELS:
            return f"{len(join.channels)} channels, and there are 1 to {MAX_CHANNELS}"
        max_version = self._parameters.max_version
        if not 0 <= join.version <= max_version:
            return f"it has weights of version {join.version}, and there can be none above {max_version}"
        return self._actors.impossible_counts(join)

    def _joined(self, channels: tuple[int, ...], state: ReceiptState) -> Joined:
        return Joined(max_message=self._terms.max_message, channels=channels, receipt=self._receipt(state))

    async def _store(self, message: TrajectoryMessage, *, stale: bool) -> Receipt:
        terms, lag = self._terms, self._parameters.lag(message.version)
        try:
            check = partial(
                check_trajectory,
                message,
                terms.specs,
                terms.carry_shapes,
                max_length=terms.max_length,
                version=self._parameters.max_version,
            )
            if len(message.chunks) > MANY:
                await asyncio.to_thread(check)
            else:
                check()
        except BadMessage as error:
            return self._reject(message, shown(str(error)))
        number = self._actors.number(message.actor)
        stored = without_data(message) if stale else message
        if number is None or not await self._queue.put(number, stored, timeout=terms.room_timeout):
            self._actors.not_queued(message)
            return self._receipt("finished" if self._parameters.finished else "again")
        self._actors.queued(message, lag, stale=stale)
        if terms.synchronous:
            await self._queue.processed(stored)
        if stale:
            return self._receipt("stale", f"{lag} versions behind, more than net_config.max_lag")
        return self._receipt("taken")

    def _reject(self, message: TrajectoryMessage, reason: str) -> Receipt:
        self._actors.rejected(message, reason)
        return self._receipt("rejected", reason)

    def _receipt(self, state: ReceiptState, reason: str = "") -> Receipt:
        parameters = self._parameters
        return Receipt(
            state=state, version=parameters.newest, warming_up=parameters.warming_up, reason=reason
        )

    def _depart(self, bye: Bye) -> None:
        number = self._actors.bye(bye)
        if number is not None:
            self._queue.left(number)

    def _expire(self) -> None:
        for number in self._actors.expire():
            self._queue.left(number)


def _differences(theirs: str, ours: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a line for each value that is not the same. Raises BadMessage for what is no JSON object."""
    try:
        found = json.loads(theirs)
        if isinstance(found, dict):
            return differences(found, ours)
    except (ValueError, RecursionError):
        pass
    raise BadMessage("what the actor has agreed to is no JSON object")


def without_data(message: TrajectoryMessage) -> TrajectoryMessage:
    """Return a stale message without transitions: its agents' open episodes end where they are."""
    agents = dict.fromkeys((chunk.behaviour, chunk.agent) for chunk in message.chunks)
    chunks = tuple(TrajectoryChunk(behaviour, agent, None) for behaviour, agent in agents)
    return replace(message, chunks=chunks, episodes=())
