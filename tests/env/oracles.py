"""What environments bring, in its plainest form: one environment, one step at a time; and who notes it."""

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from algorithm.core.data import ActorOutput, Segment, StepBatch
from algorithm.core.spec import AgentSpec
from algorithm.replay.storage import NEXT, TRUNCATED, Storage
from algorithm.replay.windows import WindowReader
from algorithm.replay.writer import Writer


def branch_sizes(space: gym.Space) -> list[int]:
    """Choices of each branch, by a plain walk over the space."""
    if isinstance(space, gym.spaces.Discrete):
        return [int(space.n)]
    if isinstance(space, gym.spaces.MultiDiscrete):
        return [int(n) for n in space.nvec.flat]
    if isinstance(space, gym.spaces.MultiBinary):
        return [2] * int(np.prod(space.shape))
    parts = space.spaces.values() if isinstance(space, gym.spaces.Dict) else getattr(space, "spaces", ())
    return [n for part in parts for n in branch_sizes(part)]


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


def _numbers(value: Any) -> tuple[float, ...]:
    return tuple(np.asarray(value, np.float32).ravel().tolist())


def parts_of(space: gym.Space, value: Any, name: str = "") -> Iterator[tuple[str, gym.Space, Any]]:
    """(name, space, value) of every leaf."""
    if not isinstance(space, gym.spaces.Dict | gym.spaces.Tuple):
        yield name, space, value
        return
    parts = space.spaces.items() if isinstance(space, gym.spaces.Dict) else enumerate(space.spaces)
    for key, part in parts:
        yield from parts_of(part, value[key], f"{name}/{key}" if name else str(key))


def plain_observation(space: gym.Space, value: Any) -> dict[str, np.ndarray]:
    """Name -> array in float64 or whole numbers, choices counted from 0."""
    found = {}
    for name, leaf, part in parts_of(space, value):
        start = leaf.start if isinstance(leaf, gym.spaces.Discrete | gym.spaces.MultiDiscrete) else None
        found[name or "obs"] = np.array(part) if start is None else np.array(part, np.int64) - start
    return found


def plain_action(space: gym.Space, flat: np.ndarray) -> Any:
    """The environment's own action: one-hots from the front, numbers in [-1, 1] behind them."""
    discrete = sum(branch_sizes(space))
    return _plain_action(space, iter(flat[:discrete]), iter(flat[discrete:]))


def _plain_action(space: gym.Space, hots: Iterator[float], u: Iterator[float]) -> Any:
    if isinstance(space, gym.spaces.Dict):
        return {key: _plain_action(part, hots, u) for key, part in space.spaces.items()}
    if isinstance(space, gym.spaces.Tuple):
        return tuple(_plain_action(part, hots, u) for part in space.spaces)
    if isinstance(space, gym.spaces.Box):
        pairs = zip(space.low.flat, space.high.flat, strict=True)
        numbers = [_between(low, high, next(u), space.dtype) for low, high in pairs]
        return np.array(numbers, space.dtype).reshape(space.shape)
    chosen = [[next(hots) for _ in range(n)].index(1.0) for n in branch_sizes(space)]
    if isinstance(space, gym.spaces.Discrete):
        return space.start + space.dtype.type(chosen[0])
    start = space.start if isinstance(space, gym.spaces.MultiDiscrete) else 0
    return (np.array(chosen, space.dtype).reshape(space.shape) + start).astype(space.dtype)


def _between(low: Any, high: Any, u: float, dtype: np.dtype) -> Any:
    if dtype.kind == "f":
        return min(max((high + low) / dtype.type(2) + (high - low) / dtype.type(2) * u, low), high)
    low, high = int(low), int(high)
    return min(max(round((high + low) / 2 + (high - low) / 2 * float(u)), low), high)


def choose(seen: tuple[float, ...], sizes: list[int], width: int) -> np.ndarray:
    """One-hot choices and z of a continuous part, which any loop can compute alone."""
    key = 1.0 + math.fsum(seen)  # so that z is not 0 where all that is seen is
    hots = [float(j == int(abs(key) + branch) % n) for branch, n in enumerate(sizes) for j in range(n)]
    z = np.sin(np.float32(key) * np.arange(1, width + 1, dtype=np.float32))
    return np.concatenate((hots, z)).astype(np.float32)


def _acted(chosen: np.ndarray, discrete: int) -> np.ndarray:
    return np.concatenate((chosen[..., :discrete], np.tanh(chosen[..., discrete:])), -1)


def plain_transitions(env: gym.Env, seed: Seed, count: int, *, limit: int = -1) -> list[Transition]:
    """The first ``count`` transitions of a plain environment.

    limit: an episode is truncated after so many steps, from outside; -1 for no limit
    """
    sizes = branch_sizes(env.action_space)
    parts = parts_of(env.action_space, env.action_space.sample())
    width = sum(part.low.size for _, part, _ in parts if isinstance(part, gym.spaces.Box))

    def read(obs: Any) -> tuple[float, ...]:
        arrays = plain_observation(env.observation_space, obs).values()
        return tuple(number for array in arrays for number in _numbers(array))

    found: list[Transition] = []
    episode, over = -1, True
    while len(found) < count:
        if over:
            episode, step = episode + 1, 0
            seen = read(env.reset(seed=seed(episode))[0])
        action = _acted(choose(seen, sizes, width), sum(sizes))
        obs, reward, terminated, truncated, _ = env.step(plain_action(env.action_space, action))
        truncated = bool(truncated or (step + 1 == limit and not terminated))
        after, number = read(obs), float(np.float32(reward))
        found.append(Transition(step, seen, _numbers(action), number, bool(terminated), truncated, after))
        seen, step, over = after, step + 1, terminated or truncated
    return found


class Witness:
    """Acts by ``choose``, writes every segment into a list and into a real replay. Its carry counts steps."""

    stored_carry_shape = (1,)

    def __init__(self, spec: AgentSpec, capacity: int = 4096) -> None:
        self._spec = spec
        self._storage = Storage(spec, capacity, (1,))
        self._writer = Writer(self._storage)
        self.seen: dict[int, list[Transition]] = {}
        self.closed: list[int] = []

    def initial_carry(self, n: int) -> np.ndarray:
        return np.zeros((n, 1), np.float32)

    def act(self, obs, prev_action, carry, action_mask) -> ActorOutput:
        assert np.array_equal((prev_action == 0).all(1), carry[:, 0] == 0)  # zero at episode starts only
        spec, rows = self._spec.action, [self._row(obs, i) for i in range(len(carry))]
        chosen = np.stack([choose(row, list(spec.branches), spec.continuous) for row in rows])
        return ActorOutput(
            action=_acted(chosen, spec.discrete),
            z=chosen[:, spec.discrete :],
            behaviour_logp=np.zeros((len(carry), spec.num_heads), np.float32),
            carry=carry + 1,
        )

    def add_steps(self, steps: StepBatch) -> None:
        for segment in steps.segments():
            self._add(segment)

    def _add(self, segment: Segment) -> None:
        assert segment.carry[:, 0].tolist() == [segment.start_step, segment.start_step + 1]
        self.seen.setdefault(segment.stream, []).append(
            Transition(
                segment.start_step,
                self._row(segment.obs, 0),
                _numbers(segment.action),
                segment.reward.item(),
                segment.terminated.item(),
                segment.truncated.item(),
                self._row(segment.obs, 1),
            )
        )
        self._writer.add_steps(segment.steps())

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
        obs = {name: value.numpy() for name, value in batch.obs.items()}
        return [
            Transition(
                batch.step[row, 0].item(),
                self._row(obs, (row, 0)),
                _numbers(batch.action[row].numpy()),
                batch.reward[row].item(),
                batch.terminated[row].item(),
                bool(storage.links[slot, NEXT] & TRUNCATED),
                self._row(obs, (row, 1)),
            )
            for row, slot in enumerate(slots)
        ]

    def _row(self, obs, at: int | tuple[int, int]) -> tuple[float, ...]:
        return tuple(x for name in self._spec.obs.names for x in _numbers(obs[name][at]))
