"""The environment at one index with its episodes: seeds, failures, and the repetition of an open episode."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Mapping
from contextlib import suppress

import numpy as np

from algorithm.core.errors import EnvError
from algorithm.core.steps import Float
from algorithm.env.outputs import SpaceMismatchError
from algorithm.env.pool.env_group import RestartBudget, failure_of
from algorithm.env.pool.process_exit import exits_as_errors
from algorithm.env.pool.watchdog import Watchdog
from algorithm.env.request import EnvRequest
from algorithm.extras.pettingzoo.games import IDLE, Turn, make_game
from algorithm.extras.pettingzoo.grouping import Sight


class GameSlot:
    """Environment ``i``, made again after a failure; agents have their indices in it.

    episode: number of the open episode
    done:    flat actions of the open episode, one after the other
    total:   sum of the rewards of all its agents
    seen:    observations of the agents that need an action, by index
    Making it raises EnvError and UsageError; every other method raises EnvError after one
    failure too many.
    """

    def __init__(self, request: EnvRequest, i: int, budget: RestartBudget, watchdog: Watchdog) -> None:
        self._request, self._i, self._budget, self._watchdog = request, i, budget, watchdog
        self.game, self._broken = make_game(request, i), False
        self.roster = self.game.roster
        self.episode, self.done, self.total = -1, array("f"), 0.0
        self.seen: dict[int, Sight] = {}

    @property
    def open(self) -> list[int]:
        """Agents with an open episode, whether they need an action or wait."""
        return [] if self._broken else sorted(self.game.open)

    def place(self, episode: int) -> str:
        """Return environment, episode and seed, for a message."""
        return f"environment {self._i}, episode {episode}, seed {self._request.seed_of(self._i, episode)}"

    def begin(self, episode: int | None = None) -> None:
        """Begin an episode, by default the next one; after a failure later ones, until one succeeds."""
        self.episode = self.episode if episode is None else episode - 1
        for _ in range(IDLE):
            self.episode, self.done, self.total = self.episode + 1, array("f"), 0.0
            try:
                with self._watchdog.call(self._i), exits_as_errors():
                    self._mend()
                    self.seen = self.game.reset(self._request.seed_of(self._i, self.episode)).awaiting
            except Exception as error:
                self._fail("reset", error)
                continue
            if self.seen:
                return
        raise EnvError(
            f"{self._request.env_name} needs no actions",
            where=self.place(self.episode),
            why=f"{IDLE:,} episodes in a row ended before any agent could act",
            fix="fill self.agents in reset",
        )

    def step(self, actions: Mapping[int, Float]) -> tuple[Turn, list[int]]:
        """Take flat actions of the agents in ``seen``, and begin the next episode after an end or a failure.

        Return the results of the step, and the agents that a failure has made vanish.
        """
        for action in actions.values():
            self.done.frombytes(action.astype(np.float32).tobytes())
        turn, vanished = Turn(), list[int]()
        try:
            with self._watchdog.call(self._i), exits_as_errors():
                turn = self.game.step(actions)
        except Exception as error:
            vanished = self.open
            self._fail("step", error)
        self.total += sum(turn.reward.values())
        self.seen = turn.awaiting
        if not self.seen:
            self.begin()
        return turn, vanished

    def repeat(self, episode: int, done: Float, total: float) -> str:
        """Begin an episode and repeat its actions; return why that was not exact, or "".

        done, total: as the attributes
        """
        failures, at = self._budget.spent, 0
        sizes = [adapter.spec.action.size for adapter in self.roster.adapters]
        self.begin(episode)
        while at < len(done) and self.episode == episode:
            ends = at + np.cumsum([sizes[k] for k in self.seen])
            parts = np.split(done[at : ends[-1]], ends[:-1] - at)
            self.step(dict(zip(self.seen, parts, strict=True)))
            at = int(ends[-1])
        if failures != self._budget.spent:
            return "it failed while it was repeated"
        if self.episode != episode:
            return "repeated, it ended early"
        return "" if self.total == total else "repeated, it got other rewards"

    def digest(self) -> str:
        """Return a digest of what the agents observe that need an action, masks included."""
        digest = hashlib.blake2b()
        for k, sight in sorted(self.seen.items()):
            mask = b"" if sight.mask is None else sight.mask.tobytes()
            digest.update(
                b"".join([str(k).encode(), *(value.tobytes() for value in sight.obs.values()), mask])
            )
        return digest.hexdigest()

    def _mend(self) -> None:
        """Make the environment again after a failure. Raises SpaceMismatchError if it has other agents."""
        if not self._broken:
            return
        self.game, self._broken = make_game(self._request, self._i), False
        now = self.game.roster
        if now.names != self.roster.names or now.specs != self.roster.specs:
            raise SpaceMismatchError(f"after a restart it has other agents or spaces: {now.specs}")

    def _fail(self, call: str, error: Exception) -> None:
        """Close the environment after a failure in a call, and count that."""
        failure = failure_of(self._request.env_name, self._i, call, error)
        if not self._broken:
            self._broken = True
            # The first failure is reported.
            with self._watchdog.call(self._i), suppress(Exception), exits_as_errors():
                self.game.close()
        self._budget.survive(failure, self.place(self.episode))
