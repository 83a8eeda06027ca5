"""What environments bring, in its plainest form: one environment, one step at a time; and who notes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import gymnasium as gym
import numpy as np

from algorithm.data import Segment
from algorithm.replay.storage import NEXT, TRUNCATED, Storage
from algorithm.replay.windows import WindowReader
from algorithm.replay.writer import Writer
from algorithm.sac.actor import ActorOutput
from algorithm.spec import AgentSpec

Seed = Callable[[int], int | None]
"""Episode number -> the seed of its reset; None where the environment goes on with its own random numbers."""


class Transition(NamedTuple):
    """Everything a replay keeps of a step, as numbers that can be compared and counted."""

    step: int
    obs: tuple[float, ...]
    action: tuple[float, ...]
    reward: float
    terminated: bool
    truncated: bool
    next_obs: tuple[float, ...]


def _numbers(value: np.ndarray) -> tuple[float, ...]:
    return tuple(np.asarray(value, np.float32).ravel().tolist())


def choose(obs: np.ndarray, size: int) -> np.ndarray:
    """z of the action [size] for one observation, which any loop can compute from it alone."""
    return np.sin(float(np.asarray(obs, np.float32).sum()) * np.arange(1, size + 1)).astype(np.float32)


def plain_transitions(env: gym.Env, seed: Seed, count: int, *, limit: int = -1) -> list[Transition]:
    """The first ``count`` transitions of a plain environment.

    limit: an episode is truncated after so many steps, from outside; -1 for no limit
    """
    low, high = env.action_space.low, env.action_space.high
    found: list[Transition] = []
    episode = -1
    over = True
    while len(found) < count:
        if over:
            episode, step = episode + 1, 0
            obs = np.array(env.reset(seed=seed(episode))[0])
        action = np.tanh(choose(obs, low.size))
        scaled = np.clip((high + low) / 2 + (high - low) / 2 * action, low, high)
        after, reward, terminated, truncated, _ = env.step(scaled)
        truncated = truncated or (step + 1 == limit and not terminated)
        found.append(
            Transition(
                step,
                _numbers(obs),
                _numbers(action),
                float(np.float32(reward)),
                bool(terminated),
                bool(truncated),
                _numbers(after),
            )
        )
        obs, step, over = np.array(after), step + 1, terminated or truncated
    return found


class Witness:
    """Acts by ``choose``, writes every segment into a list and into a real replay. Its carry counts steps."""

    def __init__(self, spec: AgentSpec, capacity: int = 4096) -> None:
        self._size = spec.action.continuous
        self._storage = Storage(spec, capacity, (1,))
        self._writer = Writer(self._storage)
        self.seen: dict[int, list[Transition]] = {}
        self.closed: list[int] = []

    def initial_carry(self, n: int) -> np.ndarray:
        return np.zeros((n, 1), np.float32)

    def act(self, obs, prev_action, carry) -> ActorOutput:
        assert np.array_equal((prev_action == 0).all(1), carry[:, 0] == 0)  # zero at episode starts only
        z = np.stack([choose(one, self._size) for one in obs["obs"]])
        logp = np.zeros((len(z), 1), np.float32)
        return ActorOutput(action=np.tanh(z), z=z, behaviour_logp=logp, carry=carry + 1)

    def add(self, segment: Segment) -> None:
        assert segment.carry[:, 0].tolist() == [segment.start_step, segment.start_step + 1]
        obs, after = map(_numbers, segment.obs["obs"])
        self.seen.setdefault(segment.stream, []).append(
            Transition(
                segment.start_step,
                obs,
                _numbers(segment.action),
                segment.reward.item(),
                segment.terminated.item(),
                segment.truncated.item(),
                after,
            )
        )
        self._writer.add(segment)

    def close(self, stream: int) -> None:
        self.closed.append(stream)
        self.seen[stream][-1] = self.seen[stream][-1]._replace(truncated=True)
        self._writer.close(stream)

    def stored(self) -> list[Transition]:
        """Every transition of the replay, read as the learner reads it."""
        storage = self._storage
        slots = np.flatnonzero(storage.is_transition(np.arange(storage.capacity)))
        batch = WindowReader(storage, burn_in=0, learn=1, n_step=1).read(slots, np.ones(len(slots)))
        assert batch.valid.all()
        return [
            Transition(
                batch.step[row, 0].item(),
                _numbers(batch.obs["obs"][row, 0].numpy()),
                _numbers(batch.action[row].numpy()),
                batch.reward[row].item(),
                batch.terminated[row].item(),
                bool(storage.links[slot, NEXT] & TRUNCATED),
                _numbers(batch.obs["obs"][row, 1].numpy()),
            )
            for row, slot in enumerate(slots)
        ]
