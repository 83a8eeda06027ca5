"""A training on a Ray cluster: one learner, as many actors as are wished for, each kept running."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from types import ModuleType

from algorithm.errors import StorageError, UsageError, explain
from algorithm.train.signals import StopRequest
from ds.cluster.member import Member, Share
from ds.cluster.messages import Look, Order
from ds.cluster.orders import Endpoint, LearnerOrders, Secrets
from ds.cluster.plan import Plan
from ds.cluster.policy import RestartRule
from ds.cluster.table import Table
from ds.cluster.wish import Wished

_TICK_S = 0.1
_SAVING_S = 600.0
"""Seconds for a learner to save and end; a second signal ends it at once."""

_GOODBYE_S = 15.0
"""Seconds for actors to end, by themselves or asked to; then they are killed."""


class Cluster:
    """Runs ``plan`` until its learner has ended.

    ray: the module, connected.
    say: prints a line.
    Raises UsageError if another command trains that run on this cluster.
    """

    def __init__(
        self,
        ray: ModuleType,
        plan: Plan,
        *,
        say: Callable[[str], None],
        rule: RestartRule,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ray, self._plan, self._say, self._rule, self._clock = ray, plan, say, rule, clock
        self._wished = Wished(ray, plan.label, plan.name, plan.actors, say)
        self._secrets = Secrets(plan.secrets)
        self._orders = LearnerOrders(plan, self._secrets, clock)
        self._error: StorageError | None = None
        self._actors: dict[int, Member] = {}
        self._leaving: dict[int, tuple[Member, float]] = {}
        self._dialled: dict[str, Endpoint] = {}
        self._endpoint: Endpoint | None = None
        self._learner = self._member("learner", self._learner_share(), self._learner_order)
        self._table = Table(say)

    def run(self, stop: StopRequest) -> int:
        """Until the training is over, cannot go on, or ``stop`` is set; the exit code."""
        code = None
        while code is None and not stop:
            code = self._tick()
            time.sleep(_TICK_S)
        if code is None:
            code = self._stop(stop)
        else:
            self._end(by_themselves=code == 0)
        self._wished.close()
        return code

    def _tick(self) -> int | None:
        now = self._clock()
        self._learner.step(now)
        self._relay()
        self._follow_learner()
        self._wished.step(now)
        self._fit(now)
        for actor in self._actors.values():
            actor.step(now)
        self._drop_left(now)
        self._table.show(now, self._learner, [*self._actors.values()], self._endpoint, self._wished.number)
        return self._outcome()

    def _learner_share(self) -> Share:
        gpus = 1.0 if self._ray.cluster_resources().get("GPU", 0) >= 1 else 0.0
        return Share(cpus=self._plan.learner_cpus, gpus=gpus, stays=True)

    def _learner_order(self, member: Member, address: str, look: Look) -> Order | None:
        try:
            return self._orders.give(address, look)
        except StorageError as error:
            self._error = error
            return None

    def _actor_order(self, member: Member, address: str, look: Look) -> Order | None:
        if self._endpoint is None:
            return None
        self._dialled[member.name] = self._endpoint
        return Order(
            arguments=tuple(self._plan.commands.actor(*self._endpoint)),
            folder=str(self._plan.folder),
            secrets=self._secrets.actor(self._endpoint[0]),
        )

    def _follow_learner(self) -> None:
        """Where it listens, and actors that dial another address."""
        learner, report = self._learner, self._learner.report
        if report is not None:
            self._orders.saw(report)
        if learner.lost_node:
            self._orders.lost()
        endpoint = report.endpoint if report is not None and learner.state == "running" else None
        if endpoint is not None and endpoint != self._endpoint:
            self._say(f"learner: listens on {endpoint[0]}:{endpoint[1]}")
        self._endpoint = endpoint
        for actor in self._actors.values():
            if endpoint is not None and self._dialled.get(actor.name, endpoint) != endpoint:
                actor.move()

    def _relay(self) -> None:
        for line in self._learner.fresh_lines:
            self._say(f"learner │ {line}")
        self._learner.fresh_lines.clear()

    def _fit(self, now: float) -> None:
        """As many actors as are wished for: new ones get the lowest free numbers, the highest leave."""
        wished = self._wished.number
        for number in [number for number in self._actors if number >= wished]:
            actor = self._actors.pop(number)
            actor.leave(signal.SIGTERM)
            self._leaving[number] = (actor, now + _GOODBYE_S)
        for number in range(wished):
            if number not in self._actors and number not in self._leaving:
                share = Share(cpus=self._plan.actor_cpus)
                self._actors[number] = self._member(f"actor {number}", share, self._actor_order)

    def _drop_left(self, now: float) -> None:
        for number, (actor, until) in list(self._leaving.items()):
            actor.step(now)
            if now >= until and not actor.over:
                actor.drop()
            if actor.over:
                self._say(f"{actor.name}: has left")
                del self._leaving[number]

    def _outcome(self) -> int | None:
        """The exit code if the training is over or cannot go on."""
        if self._error is not None:
            self._say(f"error: {self._error}")
            return self._error.exit_code
        if self._learner.code == UsageError.exit_code and self._orders.took_former_port:
            self._learner.again()  # its former port may be taken; the next one takes another
        if self._learner.over:
            return self._told(self._learner)
        for actor in self._actors.values():
            if actor.state == "ended" or (actor.was_refused and not self._was_heard(actor)):
                actor.again()  # the learner that it ended with was another one, or is about to end
        failed = [actor for actor in self._actors.values() if actor.over]
        final = [actor for actor in failed if actor.code != 1]
        if final or (failed and len(failed) == len(self._actors)):
            return self._told((final or failed)[0])
        return None

    def _was_heard(self, actor: Member) -> bool:
        """Whether the learner that the actor dialled still listens."""
        return self._endpoint is not None and self._dialled.get(actor.name) == self._endpoint

    def _told(self, member: Member) -> int:
        assert member.code is not None
        if member.code == 0:
            self._say(f"the training is over; its run is {self._plan.run} on {member.node}")
            return 0
        lines = "\n".join(member.output) or "nothing"
        error = explain(
            f"{member.name} has ended with code {member.code}",
            where=f"{member.node}, in {self._plan.folder}",
            why=f"{member.why}\nthe last it said:\n{lines}",
            fix="",
        )
        self._say(f"error: {error}")
        return member.code

    def _stop(self, stop: StopRequest) -> int:
        """The learner saves and ends, then the actors end."""
        self._say(stop.text)
        self._learner.leave(signal.SIGINT)
        until = self._clock() + _SAVING_S
        while not self._learner.over and self._clock() < until:
            self._learner.step(self._clock())
            self._relay()
            time.sleep(_TICK_S)
        self._end(by_themselves=False)
        self._say("everything has ended")
        return stop.exit_code

    def _end(self, *, by_themselves: bool) -> None:
        """Wait for actors that end by themselves; ask the others; kill what is left."""
        if by_themselves:
            self._wait()
        for member in self._members():
            if not member.over and member.state != "leaving":
                member.leave(signal.SIGINT if member is self._learner else signal.SIGTERM)
        self._wait()
        for member in self._members():
            member.drop()

    def _wait(self) -> None:
        until = self._clock() + _GOODBYE_S
        while self._clock() < until and any(member.runs for member in self._members()):
            for member in self._members():
                if member.runs:
                    member.step(self._clock())
            time.sleep(_TICK_S)

    def _members(self) -> Iterator[Member]:
        yield self._learner
        yield from self._actors.values()
        yield from (actor for actor, _ in self._leaving.values())

    def _member(self, name: str, share: Share, order: Callable[[Member, str, Look], Order | None]) -> Member:
        run = (str(self._plan.folder), self._plan.run)
        return Member(self._ray, name, share, order, run, rule=self._rule, say=self._say)
