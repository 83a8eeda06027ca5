"""Catch a falling ball: a small game on grey pictures, seen whole or only at its beginning.

After the game of Mnih et al. 2014, "Recurrent models of visual attention" (arXiv 1406.6247), section 4.2, and
``catch`` of bsuite (Osband et al. 2020, arXiv 1908.03568). Use them by id:
``algorithm.env.toys:ToyCatch-v0``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, TypeVar

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

Picture = NDArray[np.uint8]
Observed = TypeVar("Observed")

SIDE = 32  # pixels, of the picture
MARGIN = 2  # pixels, where neither ball nor paddle ever is: they stay in pictures that are shifted by so much
BALL = 3  # pixels, of the ball's sides
PADDLE = 7  # pixels, the paddle's width
PADDLE_ROW = SIDE - MARGIN - 2  # the paddle fills this row and the one below
FIRST_ROW, LAST_ROW = 3, PADDLE_ROW - BALL  # of the ball's upper edge
SPEED = 2  # pixels a step, of the ball downwards and of the paddle sideways
LEFT, LAST_BALL, LAST_PADDLE = MARGIN, SIDE - MARGIN - BALL, SIDE - MARGIN - PADDLE  # of their left edges
_BRIGHT = 255


class Catch(gym.Env[Observed, np.int64], ABC):
    """A ball falls, and a paddle below it has to be there in time; an episode has 11 steps.

    The ball begins in any column and falls straight down, two pixels a step. The paddle begins anywhere, too;
    actions: two pixels to the left, stay, two pixels to the right, as far as the margins. When the ball has
    come down the episode ends with 1 if all of it is above the paddle, else with −1; before, there are no
    rewards.

    The paddle can be in time wherever both begin, so the best policy gets 1. Five of the ball's 26 columns
    are above the paddle wherever that is, so whoever does not see the ball gets 2 · 5/26 − 1 = −8/13 on
    average, whatever it does.

    noise: largest brightness of the background, of 255. Each pixel of each picture is drawn anew, uniformly
    seen:  the ball is shown while its upper edge is above this row
    """

    optimum: ClassVar[float] = 1.0
    chance: ClassVar[float] = -8 / 13

    def __init__(self, noise: int, seen: int) -> None:
        if not 0 <= noise < _BRIGHT:
            raise ValueError(f"noise is {noise}; it must be from 0 to {_BRIGHT - 1}")
        if seen <= FIRST_ROW:
            raise ValueError(
                f"seen is {seen}; it must be at least {FIRST_ROW + 1}, or there is no ball to see"
            )
        self.action_space = gym.spaces.Discrete(3)
        self._noise, self._seen = noise, seen

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observed, dict[str, Any]]:
        """See :meth:`gymnasium.Env.reset`."""
        super().reset(seed=seed)
        self._row = FIRST_ROW
        self._column = int(self.np_random.integers(LEFT, LAST_BALL + 1))
        self._paddle = int(self.np_random.integers(LEFT, LAST_PADDLE + 1))
        return self._look(), {}

    def step(self, action: np.int64) -> tuple[Observed, float, bool, bool, dict[str, Any]]:
        """See :meth:`gymnasium.Env.step`. Raises ValueError for an action outside the space."""
        if not self.action_space.contains(action):
            raise ValueError(f"the action {action!r} is not in {self.action_space}")
        self._paddle = min(max(LEFT, self._paddle + SPEED * (int(action) - 1)), LAST_PADDLE)
        self._row += SPEED
        over = self._row == LAST_ROW
        caught = self._paddle <= self._column <= self._paddle + PADDLE - BALL
        return self._look(), (1.0 if caught else -1.0) if over else 0.0, over, False, {}

    @abstractmethod
    def _look(self) -> Observed:
        """What is seen now."""

    def _draw(self) -> Picture:
        """The picture, uint8 [32, 32]."""
        picture = self.np_random.integers(self._noise + 1, size=(SIDE, SIDE), dtype=np.uint8)
        if self._row < self._seen:
            picture[self._row : self._row + BALL, self._column : self._column + BALL] = _BRIGHT
        picture[PADDLE_ROW : PADDLE_ROW + 2, self._paddle : self._paddle + PADDLE] = _BRIGHT
        return picture


class ToyCatch(Catch[Picture]):
    """The game, seen: uint8 [32, 32]."""

    def __init__(self, noise: int = 0) -> None:
        super().__init__(noise, SIDE)
        self.observation_space = gym.spaces.Box(0, 255, (SIDE, SIDE), np.uint8)

    def _look(self) -> Picture:
        return self._draw()


class ToyHiddenCatch(Catch[dict[str, NDArray[Any]]]):
    """The game with a ball that disappears, and beside the picture the truth, which a policy should not use.

    picture: uint8 [32, 32]; the ball is in it while it is above row ``seen``
    truth:   float32 [3], the ball's column and row and the paddle's column, each from −1 to 1
    """

    def __init__(self, noise: int = 0, seen: int = 10) -> None:
        super().__init__(noise, seen)
        self.observation_space = gym.spaces.Dict(
            picture=gym.spaces.Box(0, 255, (SIDE, SIDE), np.uint8),
            truth=gym.spaces.Box(-1.0, 1.0, (3,), np.float32),
        )

    def _look(self) -> dict[str, NDArray[Any]]:
        share = (
            (self._column - LEFT) / (LAST_BALL - LEFT),
            (self._row - FIRST_ROW) / (LAST_ROW - FIRST_ROW),
            (self._paddle - LEFT) / (LAST_PADDLE - LEFT),
        )
        return {"picture": self._draw(), "truth": 2.0 * np.array(share, np.float32) - 1.0}
