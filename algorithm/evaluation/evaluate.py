"""Evaluation episodes: on environments of their own, without storing or learning."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from algorithm.data import ActorOutput, Array, Bool, Float
from algorithm.env.base import VecEnv
from algorithm.errors import EnvError
from algorithm.evaluation.callbacks import NULL_CALLBACK, Callback
from algorithm.evaluation.statistics import Interval, mean_interval
from algorithm.experience.collector import LocalCollector
from algorithm.experience.non_finite import OnNonFinite
from algorithm.roles import Episode, Policy, SamplingPolicy

PATIENCE = 1000
"""Steps in a row without an agent of an unfinished behaviour, after which an evaluation gives up."""


@dataclass(frozen=True)
class Performance:
    """Returns and lengths of the evaluation episodes of one behaviour, in the order they ended."""

    returns: tuple[float, ...]
    lengths: tuple[int, ...]

    @property
    def interval(self) -> Interval:
        """Mean return with its 95 % interval."""
        return mean_interval(self.returns)


class EvalPolicy:
    """The policy as evaluations use it; ``greedy`` takes its mode."""

    def __init__(self, actor: SamplingPolicy, *, greedy: bool) -> None:
        self._actor = actor
        self._greedy = greedy

    @property
    def stored_carry_shape(self) -> tuple[int, ...]:
        """Shape of the whole carry, attention's cache included: recordings keep what no replay stores."""
        return self._actor.initial_carry(0).shape[1:]

    def initial_carry(self, n: int) -> Float:
        """Return the carry of n agents at the start of their episodes, [n, *C]."""
        return self._actor.initial_carry(n)

    def act(
        self, obs: Mapping[str, Array], prev_action: Float, carry: Float, action_mask: Bool
    ) -> ActorOutput:
        """Return the policy's action."""
        return self._actor.act(obs, prev_action, carry, action_mask, greedy=self._greedy)


class EvalLoop:
    """A rollout and its callback; made by :func:`eval_loop`."""

    def __init__(self, rollout: LocalCollector, callback: Callback) -> None:
        self.rollout, self._callback = rollout, callback

    def step(self) -> list[Episode]:
        """Take a step and pass the episodes that ended with it to the callback; return them."""
        ended = self.rollout.step()
        self._callback.step(ended)
        return ended


@contextmanager
def eval_loop(
    env: VecEnv,
    players: Mapping[str, Policy],
    callback: Callback,
    *,
    num_envs: int | None = None,
    length_limit: int = -1,
    on_non_finite: OnNonFinite | None = None,
) -> Iterator[EvalLoop]:
    """Start a rollout at episode 0; the callback's ``end`` runs in any case.

    num_envs, length_limit, on_non_finite: see :class:`~algorithm.experience.collector.LocalCollector`
    """
    try:
        found = {name: callback.recorder(name) for name in players}
        recorders = {name: recorder for name, recorder in found.items() if recorder is not None}
        rollout = LocalCollector(
            env,
            players,
            recorders,
            num_envs=num_envs,
            length_limit=length_limit,
            on_non_finite=on_non_finite,
        )
        callback.begin()
        yield EvalLoop(rollout, callback)
    finally:
        callback.end()


def evaluate(
    env: VecEnv,
    players: Mapping[str, Policy],
    episodes: int,
    *,
    length_limit: int = -1,
    stop: Callable[[], bool] = lambda: False,
    on_episode: Callable[[Episode], None] = lambda episode: None,
    callback: Callback = NULL_CALLBACK,
    on_non_finite: OnNonFinite | None = None,
) -> dict[str, Performance] | None:
    """Play until every behaviour has finished ``episodes`` episodes.

    The environments begin at episode 0, so every call plays the same starts; only the policy differs.

    on_episode: called with each episode that counts, the first ``episodes`` of each behaviour
    on_non_finite: policy for episodes with such numbers, which do not count; by default the first one raises

    Returns None if ``stop`` became true on the way. Raises EnvError if unfinished behaviours had no agents
    for ``PATIENCE`` steps.
    """
    done: dict[str, list[Episode]] = {name: [] for name in players}
    absent = 0  # steps in a row without an agent of an unfinished behaviour

    def unfinished() -> set[str]:
        return {name for name, finished in done.items() if len(finished) < episodes}

    with eval_loop(env, players, callback, length_limit=length_limit, on_non_finite=on_non_finite) as loop:
        while unfinished():
            if stop():
                return None
            for episode in loop.step():
                finished = done[episode.behaviour]
                if len(finished) < episodes:
                    finished.append(episode)
                    on_episode(episode)
            missing = unfinished()
            absent = 0 if missing & {name for name, _ in loop.rollout.agents} else absent + 1
            if missing and absent == PATIENCE:
                raise _no_agents({name: len(done[name]) for name in done if name in missing}, episodes, loop)
    return {
        name: Performance(tuple(e.total for e in finished), tuple(e.length for e in finished))
        for name, finished in done.items()
    }


def _no_agents(finished: Mapping[str, int], episodes: int, loop: EvalLoop) -> EnvError:
    missing = ", ".join(f"{name!r} ({number} of {episodes})" for name, number in finished.items())
    return EnvError(
        f"an evaluation waits for agents that do not come: {missing}",
        where=f"environment step {loop.rollout.steps} of the evaluation",
        why=f"for {PATIENCE:,} steps no agent of these behaviours was there",
        fix="make the environment give agents to every behaviour that it announces, or announce fewer",
    )
