"""Catch a falling ball: a small game on grey images, with the ball visible throughout or only at first.

After the game of Mnih et al. 2014, "Recurrent models of visual attention" (arXiv 1406.6247), section 4.2, and
``catch`` of bsuite (Osband et al. 2020, arXiv 1908.03568).
"""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from gymnasium.core import ObsType
from numpy.typing import NDArray
from typing_extensions import override

from algorithm.env.toys.base import Toy

GreyImage = NDArray[np.uint8]

SIDE = 32  # pixels, of the image
MARGIN = 2  # pixels without ball or paddle, which stay visible in images shifted by so much
BALL = 3  # pixels, of the ball's sides
PADDLE = 7  # pixels, the paddle's width
PADDLE_ROW = SIDE - MARGIN - 2  # the paddle fills this row and the one below
FIRST_ROW, LAST_ROW = 3, PADDLE_ROW - BALL  # of the ball's upper edge
SPEED = 2  # pixels a step, of the ball downwards and of the paddle sideways
LEFT, LAST_BALL, LAST_PADDLE = MARGIN, SIDE - MARGIN - BALL, SIDE - MARGIN - PADDLE  # of their left edges
_BRIGHT = 255


class Catch(Toy[ObsType, np.int64]):
    """A ball falls, and a paddle has to be below it in time; an episode has 11 steps.

    The ball starts in any column and falls straight down, two pixels a step. The paddle starts anywhere, too;
    actions: two pixels to the left, stay, two pixels to the right, up to the margins. When the ball is down
             the episode ends with 1 if all of it is above the paddle, else with −1; before, rewards are 0.

    The paddle can be in time from any start, so the best policy gets 1. Five of the ball's 26 columns are
    above the paddle wherever that is, so a policy without the ball gets 2 · 5/26 − 1 = −8/13 on average.

    noise: largest brightness of the background, of 255. Pixels are drawn independently
    seen:  the ball is visible while its upper edge is above this row
    """

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

    @override
    def _begin(self) -> None:
        self._row = FIRST_ROW
        self._column = int(self.np_random.integers(LEFT, LAST_BALL + 1))
        self._paddle = int(self.np_random.integers(LEFT, LAST_PADDLE + 1))

    @override
    def _act(self, action: np.int64) -> tuple[float, bool]:
        self._paddle = min(max(LEFT, self._paddle + SPEED * (int(action) - 1)), LAST_PADDLE)
        self._row += SPEED
        over = self._row == LAST_ROW
        caught = self._paddle <= self._column <= self._paddle + PADDLE - BALL
        return (1.0 if caught else -1.0) if over else 0.0, over

    def _draw(self) -> GreyImage:
        """Return the image, uint8 [32, 32]."""
        picture = self.np_random.integers(self._noise + 1, size=(SIDE, SIDE), dtype=np.uint8)
        if self._row < self._seen:
            picture[self._row : self._row + BALL, self._column : self._column + BALL] = _BRIGHT
        picture[PADDLE_ROW : PADDLE_ROW + 2, self._paddle : self._paddle + PADDLE] = _BRIGHT
        return picture


class ToyCatch(Catch[GreyImage]):
    """The game with the ball visible: uint8 [32, 32]."""

    def __init__(self, noise: int = 0) -> None:
        super().__init__(noise, SIDE)
        self.observation_space = gym.spaces.Box(0, 255, (SIDE, SIDE), np.uint8)

    @override
    def _observe(self) -> GreyImage:
        return self._draw()


class ToyHiddenCatch(Catch[dict[str, Any]]):
    """The game with a ball that disappears; beside the image the true state, which a policy should not use.

    picture: uint8 [32, 32]; the ball is in it while it is above row ``seen``
    truth:   float32 [3], the ball's column and row and the paddle's column, each from −1 to 1
    """

    def __init__(self, noise: int = 0, seen: int = 10) -> None:
        super().__init__(noise, seen)
        self.observation_space = gym.spaces.Dict(
            picture=gym.spaces.Box(0, 255, (SIDE, SIDE), np.uint8),
            truth=gym.spaces.Box(-1.0, 1.0, (3,), np.float32),
        )

    @override
    def _observe(self) -> dict[str, NDArray[Any]]:
        share = (
            (self._column - LEFT) / (LAST_BALL - LEFT),
            (self._row - FIRST_ROW) / (LAST_ROW - FIRST_ROW),
            (self._paddle - LEFT) / (LAST_PADDLE - LEFT),
        )
        return {"picture": self._draw(), "truth": 2.0 * np.array(share, np.float32) - 1.0}
