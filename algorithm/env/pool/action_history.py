"""Actions and rewards of open episodes, so that an episode can be repeated."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from algorithm.core.data import Float

_BLOCK_STEPS = 512  # steps that are recorded before they are divided among the episodes


class _Episode(NamedTuple):
    """The actions of one episode: whole parts, then rows ``first`` to ``end`` of the recent steps."""

    episode: int
    pieces: list[Float]  # [L, A] each
    first: int
    end: int


class ActionHistory:
    """Flat actions and sum of rewards of the open episode of each of ``n`` sub-environments.

    width: A, of a flat action

    A step copies its actions [N, A] and rewards [N] into a block of recent steps. A full block is divided
    among the open episodes, so that memory grows with their lengths only. The actions of an episode that has
    just ended remain available until the next step.
    """

    def __init__(self, n: int, width: int) -> None:
        self._recent: Float = np.zeros((_BLOCK_STEPS, n, width), np.float32)
        self._reward: Float = np.zeros((_BLOCK_STEPS, n), np.float32)
        self._next = 0  # row of the chunk
        self._chunks: list[list[Float]] = [[] for _ in range(n)]
        self._sum = [0.0] * n  # of the rewards that came with the pieces
        self._first = [0] * n  # row of the chunk where the rest of the episode begins
        self._ended: dict[int, _Episode] = {}  # episodes that ended since the last step began

    def record(self, action: Float) -> None:
        """Record the actions of a step, [N, A]."""
        if self._next == len(self._recent):
            self._flush()
        if self._ended:
            self._ended = {}
        self._recent[self._next] = action
        self._next += 1

    def record_reward(self, reward: Float) -> None:
        """Record the rewards of that step, [N]."""
        self._reward[self._next - 1] = reward

    def end_episode(self, env: int, episode: int) -> None:
        """Close the episode of that number. Of several since the last step the first is kept."""
        self._ended.setdefault(env, _Episode(episode, self._chunks[env], self._first[env], self._next))
        self._chunks[env], self._sum[env], self._first[env] = [], 0.0, self._next

    def restore(self, env: int, actions: Float, total: float) -> None:
        """Set the open episode to these actions [L, A] and sum of rewards, after a repetition."""
        self._ended.pop(env, None)
        self._chunks[env], self._sum[env], self._first[env] = [actions], total, self._next

    def drop_ended(self, env: int) -> None:
        """Discard the episode that has just ended."""
        self._ended.pop(env, None)

    def length(self, env: int) -> int:
        """Return the steps of the open episode."""
        return sum(map(len, self._chunks[env])) + self._next - self._first[env]

    def actions(self, env: int) -> Float:
        """Return the actions of the open episode, [L, A]."""
        return self._join(env, _Episode(0, self._chunks[env], self._first[env], self._next))

    def total_reward(self, env: int) -> float:
        """Return the sum of its rewards, added in order in double precision."""
        earned = self._reward[self._first[env] : self._next, env].astype(np.float64)
        return float(np.add.accumulate(np.append(self._sum[env], earned))[-1])

    def ended_episode(self, env: int) -> tuple[int, Float] | None:
        """Return number and actions [L, A] of the episode that ended with the last step, or None."""
        part = self._ended.get(env)
        return None if part is None else (part.episode, self._join(env, part))

    def _join(self, env: int, part: _Episode) -> Float:
        return np.concatenate((*part.pieces, self._recent[part.first : part.end, env]))

    def _flush(self) -> None:
        for env, first in enumerate(self._first):
            if first < len(self._recent):
                self._sum[env] = self.total_reward(env)
                self._chunks[env].append(self._recent[first:, env].copy())
            self._first[env] = 0
        self._next = 0
