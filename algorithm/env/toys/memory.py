"""Small environments that need memory: the answer was observed some steps before.

The best policy gets 1; ``chance`` is the highest mean return of a policy without memory, whose action, random
or not, depends on the observation of the same step only. A policy with its previous action as input has a
memory: it can repeat the action that stands for an observation.
"""

from __future__ import annotations

from abc import abstractmethod

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from algorithm.env.toys.basic import Toy


class MemoryToy(Toy[NDArray[np.float32], np.int64]):
    """Bits to observe and a few actions; an episode has a place or time ``_at`` that starts at 0."""

    chance: float

    def __init__(self, *, bits: int, actions: int) -> None:
        self.observation_space = gym.spaces.Box(0.0, 1.0, (bits,), np.float32)
        self.action_space = gym.spaces.Discrete(actions)

    @override
    def _begin(self) -> None:
        self._at = 0
        self._draw()

    @override
    def _observe(self) -> NDArray[np.float32]:
        bits = np.zeros(self.observation_space.shape or (), np.float32)
        bits[self._shown()] = 1.0
        return bits

    @abstractmethod
    def _draw(self) -> None:
        """Draw the content to remember from ``self.np_random``."""

    @abstractmethod
    def _shown(self) -> list[int]:
        """Return which bits are set."""


class ToyRecall(MemoryToy):
    """Remember a cue from the first step and name it ``delay`` + 1 steps later.

    bits:    [cues + 1 + noise]: the cue, the question, and during the delay one of ``noise`` distractors,
             uniform and independent; none is set there without them
    actions: the cues; only the one at the question counts, 1 if it is right, and it ends the episode

    The observation at the question is always the same, so a policy without memory answers it independently of
    the cue, and is right in 1/``cues`` of the episodes.
    """

    def __init__(self, cues: int = 4, delay: int = 8, noise: int = 0) -> None:
        super().__init__(bits=cues + 1 + noise, actions=cues)
        self.chance = 1 / cues
        self._cues, self._asked, self._noise = cues, delay + 1, noise

    @override
    def _draw(self) -> None:
        self._cue = int(self.np_random.integers(self._cues))

    @override
    def _shown(self) -> list[int]:
        if self._at == 0:
            return [self._cue]
        if self._at == self._asked:
            return [self._cues]
        if self._at < self._asked and self._noise:
            return [self._cues + 1 + int(self.np_random.integers(self._noise))]
        return []

    @override
    def _act(self, action: np.int64) -> tuple[float, bool]:
        asked = self._at == self._asked
        self._at += 1
        return float(asked and action == self._cue), asked


class ToyQueue(MemoryToy):
    """Name the symbol of ``lag`` steps ago, at each of ``length`` steps.

    bits:    [symbols], one of them set: uniform, independent symbols
    actions: the symbols; a right one is worth 1 / (length − lag), from step ``lag`` on

    Symbols are independent of those before, so a policy without memory is right with probability
    1/``symbols`` at every step. Known as RepeatPrevious from POPGym (Morad et al. 2023, arXiv 2303.01859),
    which deals cards without replacement.
    """

    def __init__(self, symbols: int = 3, lag: int = 3, length: int = 20) -> None:
        super().__init__(bits=symbols, actions=symbols)
        self.chance = 1 / symbols
        self._count, self._lag, self._length = symbols, lag, length

    @override
    def _draw(self) -> None:
        self._symbols = self.np_random.integers(self._count, size=self._length)

    @override
    def _shown(self) -> list[int]:
        return [int(self._symbols[self._at])] if self._at < self._length else []

    @override
    def _act(self, action: np.int64) -> tuple[float, bool]:
        right = self._at >= self._lag and action == self._symbols[self._at - self._lag]
        self._at += 1
        return right / (self._length - self._lag), self._at == self._length


class ToyHallway(MemoryToy):
    """Walk ``length`` cells and turn the way that a sign showed at the start: a T-maze.

    bits:    [3]: sign to the left, sign to the right, junction; none is set in between
    actions: forward, left, right; at the junction left and right end the episode, with 1 if that is what the
             sign showed. An action that leads into a wall leaves the agent where it is.

    The junction looks the same in all episodes. A policy without memory turns left there with a probability
    that does not depend on the sign, so it is right in half of the episodes that it ends.

    Bakker 2002, "Reinforcement learning with long short-term memory", whose T-maze pays 4 and punishes wrong
    turns and standing still by 0.1. The limit of 50 steps is Gymnasium's, ``max_episode_steps`` among the
    arguments of ``gymnasium.make``.
    """

    def __init__(self, length: int = 6) -> None:
        super().__init__(bits=3, actions=3)
        self.chance = 1 / 2
        self._length = length

    @override
    def _draw(self) -> None:
        self._sign = int(self.np_random.integers(2))

    @override
    def _shown(self) -> list[int]:
        if self._at == 0:
            return [self._sign]
        return [2] if self._at == self._length else []

    @override
    def _act(self, action: np.int64) -> tuple[float, bool]:
        if self._at < self._length:
            self._at += action == 0
            return 0.0, False
        return float(action == 1 + self._sign), action != 0
