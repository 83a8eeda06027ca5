"""The learner's answers to its actors, given in the server's event loop, which nothing here blocks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from algorithm.core.errors import described
from ds.checking import AHEAD, AcceptanceRules, check_steps
from ds.compatibility import differences
from ds.net.ingest import IngestQueue
from ds.net.protocol import (
    PROTOCOL,
    BadMessage,
    Beat,
    Bye,
    Hello,
    Join,
    Receipt,
    ReceiptState,
    Refused,
    StepMessage,
    WeightRequest,
    Welcome,
)
from ds.records import shown
from ds.registry import ActorRegistry

MANY = 64
"""Number of transitions from which the check of a message takes a while."""

MAX_DIFFERENCES = 50

_UNSAVED = 1_000_000
"""Versions that a learner may have published between its last checkpoint and the moment it was killed."""


class ParameterStore:
    """Published weights and flags of a learner; a reader gets one whole version or none.

    warming_up: behaviour -> its agents act at random; published with the weights
    lessons:    parameter with a curriculum -> its lesson now
    finished:   the training has ended, and actors are to end, too
    """

    def __init__(self, lessons: Mapping[str, str]) -> None:
        self._weights: tuple[int, tuple[bytes, ...]] = (0, ())
        self._resumed = 0
        self._first = 1  # version of this learner's first weights
        self.warming_up: Mapping[str, bool] = {}
        self.lessons = lessons
        self.finished = False

    @property
    def newest(self) -> int:
        """Version of the newest weights, 0 before the first."""
        return self._weights[0]

    @property
    def next_version(self) -> int:
        """Version for the next weights: above any published by this learner or an earlier one of the run."""
        return max(self.newest + 1, self._first)

    @property
    def max_version(self) -> int:
        """Highest version that is accepted from an actor.

        An earlier learner may have published up to ``AHEAD`` versions after the restored checkpoint.
        """
        return max(self.next_version - 1, self._resumed + AHEAD)

    def resume(self, version: int) -> None:
        """Continue from a checkpoint; ``version``: the newest one when it was saved.

        The learner that was killed may have published further ones. Those of this one are above all of them.
        """
        self._resumed = version
        self._first = version + _UNSAVED + 1

    def seen(self, version: int) -> None:
        """Let the next version be above one that an actor has from an earlier learner."""
        if version > self.newest:
            self._first = max(self._first, version + 1)

    def lag(self, version: int) -> int:
        """Return how many versions weights are behind the newest; ≥ 1 for those of an earlier learner."""
        if version >= self._first:
            return max(0, self.newest - version)
        return max(1, self.newest - max(self._first - 1, version))

    def publish(self, version: int, chunks: Sequence[bytes]) -> None:
        """Replace the newest weights, by those of :attr:`next_version` or a later one."""
        self._weights = (version, tuple(chunks))

    def weights(self, than: int) -> tuple[bytes, ...]:
        """Return the newest weights in pieces if newer than version ``than``, else nothing."""
        version, chunks = self._weights
        return chunks if version > than else ()


class Service:
    """Answers to actors from registry, queue and published parameters; see :mod:`ds.net.protocol`."""

    def __init__(
        self, actors: ActorRegistry, queue: IngestQueue, parameters: ParameterStore, rules: AcceptanceRules
    ) -> None:
        self.rules = rules
        self._actors, self._queue, self._parameters = actors, queue, parameters
        self._storing: set[asyncio.Task[Receipt]] = set()

    async def hello(self, hello: Hello) -> Welcome | Refused:
        """Register an actor, after those that expired."""
        if hello.protocol != PROTOCOL:
            reason = f"the actor uses protocol {hello.protocol}, the learner {PROTOCOL}"
            return Refused(why="protocol", reason=reason, fix="run the same version on both sides")
        self._actors.expire()
        return self._actors.hello(hello)

    async def join(self, join: Join) -> Receipt | Refused:
        """Compare settings and counts; a mismatch is refused, and the slot freed."""
        try:
            refused = await self._mismatch(join)
            known = refused is None and self._actors.join(join)
        except BadMessage as error:
            self._actors.count_fault("rejected", f"a join: {error}")
            refused = Refused(why="malformed", reason=str(error), fix="restart the actor")
        if refused is not None:
            why = "; ".join(refused.differences) or refused.reason
            self._actors.leave(join.actor, f"it does not fit: {why}")
            return refused
        if not known:
            return self._receipt("unknown")
        self._parameters.seen(join.version)
        return self._receipt("taken")

    async def deliver(self, message: StepMessage) -> Receipt:
        """Answer when the message is in the queue, in synchronous mode when it has been learned from.

        A broken connection does not interrupt that: else the outcome would be unknown.
        """
        if self._parameters.finished:
            return self._receipt("finished")
        try:
            state = self._actors.accept(message)
        except BadMessage as error:
            return self._reject(message, error)
        if state is not None:
            return self._receipt(state, "" if state in ("unknown", "again") else "it was already received")
        storing = asyncio.ensure_future(self._store(message))
        self._storing.add(storing)  # a loop keeps no task alive by itself
        storing.add_done_callback(self._storing.discard)
        return await asyncio.shield(storing)

    async def beat(self, beat: Beat) -> Receipt:
        """Return whether the actor is known, with the newest version."""
        try:
            known = self._actors.beat(beat, self._parameters.lag(beat.version))
        except BadMessage as error:
            self._actors.count_fault("rejected", f"a beat: {error}")
            return self._receipt("rejected", str(error))
        self._actors.expire()
        if self._parameters.finished:
            return self._receipt("finished")
        return self._receipt("taken" if known else "unknown")

    async def bye(self, bye: Bye) -> None:
        """Free the slot at once."""
        self._actors.leave(bye.actor, bye.reason)

    def weights(self, wanted: WeightRequest) -> tuple[bytes, ...]:
        """Return the newest weights in pieces; none if the actor has them."""
        return self._parameters.weights(wanted.newer_than)

    async def _mismatch(self, join: Join) -> Refused | None:
        """Return the refusal of other settings. Raises BadMessage for values that no actor can have."""
        max_version = self._parameters.max_version
        if not 0 <= join.version <= max_version:
            what = f"it has weights of version {join.version}"
            raise BadMessage(f"{what}, and there can be none above {max_version}")
        lines = await asyncio.to_thread(_differences, join.agreed, self.rules.agreed)
        if not lines:
            return None
        return Refused(
            why="differs",
            reason="the actor has other settings than the learner",
            differences=tuple(shown(line) for line in lines[:MAX_DIFFERENCES]),
            fix="start the actor with the learner's configuration, networks and versions",
        )

    async def _store(self, message: StepMessage) -> Receipt:
        rules, lag = self.rules, self._parameters.lag(message.version)
        try:
            check = partial(check_steps, message, rules, version=self._parameters.max_version)
            if message.num_steps > MANY:  # one at a time: they share an interpreter with the training
                await asyncio.to_thread(check)
            else:
                check()
        except BadMessage as error:
            return self._reject(message, error)
        except Exception as error:  # of a form that the check has not foreseen: the actor is not kept waiting
            return self._reject(message, BadMessage(f"it cannot be checked: {described(error)}"))
        number = self._actors.number(message.actor)
        arrival = number is not None and await self._queue.put(number, message, timeout=rules.room_timeout)
        if not arrival:
            self._actors.settled(message, "again")
            return self._receipt("finished" if self._parameters.finished else "again")
        self._actors.settled(message, "taken", lag=lag)
        if rules.synchronous:
            await arrival.learned.wait()
        return self._receipt("taken")

    def _reject(self, message: StepMessage, error: BadMessage) -> Receipt:
        reason = shown(str(error))
        self._actors.settled(message, "rejected", why=reason)
        return self._receipt("rejected", reason)

    def _receipt(self, state: ReceiptState, reason: str = "") -> Receipt:
        now = self._parameters
        return Receipt(
            state=state, version=now.newest, warming_up=now.warming_up, lessons=now.lessons, reason=reason
        )


def _differences(theirs: str, ours: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a line for each value that is not the same. Raises BadMessage for what is no JSON object."""
    try:
        settings = json.loads(theirs)
        if isinstance(settings, dict):
            return differences(settings, ours)
    except (ValueError, RecursionError):
        pass
    raise BadMessage("the actor's agreement is not a JSON object")
