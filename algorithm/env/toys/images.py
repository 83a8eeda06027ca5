"""Tasks on images: a falling ball, visible throughout or only at first, and two cameras beside a vector."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import gymnasium as gym
import numpy as np
from gymnasium.core import ObsType
from numpy.typing import NDArray
from typing_extensions import override

from algorithm.core.steps import Double
from algorithm.env.toys.basic import Rounds, Toy

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

    After the game of Mnih et al. 2014, "Recurrent models of visual attention" (arXiv 1406.6247), section 4.2,
    and ``catch`` of bsuite (Osband et al. 2020, arXiv 1908.03568).

    noise: largest brightness of the background, of 255. Pixels are drawn independently
    seen:  the ball is visible while its upper edge is above this row
    """

    chance: ClassVar[float] = -8 / 13

    def __init__(self, noise: int, seen: int) -> None:
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


_REACH = 0.9  # positions and answers lie in [-0.9, 0.9]
_LEFT = (24, 32, 3)  # height, width, colours
_RIGHT = (1, 40, 40)  # channels, height, width
_PATCH = 6  # pixels, of the left camera's square
_BAR = 4  # pixels, of the right camera's bar


class ToyTwoCameras(Rounds[dict[str, Any], NDArray[np.float32]]):
    """Locate an object in two camera images, the second with the sign of a speed; one round an episode.

    left:  uint8 [24, 32, 3], a square of 6 pixels of any bright colour at any height, on black
    right: uint8 [1, 40, 40], a bright bar of 4 pixels from top to bottom, on black
    speed: float32 [3], of which the first is in ±[0.5, 1] and the others are normal noise

    The answer is the horizontal position in ``left`` and that in ``right`` times the sign of ``speed[0]``,
    both from −0.9 at the left edge to 0.9 at the right one. The reward of an action [2] is 1 − mean (a −
    answer)² / (variance of the answer): 1 for both answers, 0 on average for the best constants, −1.16 for
    uniformly random actions; 0.95 is a root mean squared error of 0.12. A policy without any one of the three
    observations loses one of the answers, for which the middle is then the best guess, and gets ½ at most.

    blind: black out this camera, or hold the speed at zero, to test a policy without it.
    """

    chance = 0.5

    def __init__(self, blind: Literal["left", "right", "speed"] | None = None) -> None:
        self.observation_space = gym.spaces.Dict(
            left=gym.spaces.Box(0, 255, _LEFT, np.uint8),
            right=gym.spaces.Box(0, 255, _RIGHT, np.uint8),
            speed=gym.spaces.Box(-np.inf, np.inf, (3,), np.float32),
        )
        self.action_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
        self._blind = blind
        self._places = (_places(_LEFT[1], _PATCH), _places(_RIGHT[2], _BAR))
        self._variance = np.array([places.var() for places in self._places])

    @override
    def _observe(self) -> dict[str, Any]:
        rng = self.np_random
        columns = [int(rng.integers(len(places))) for places in self._places]
        row = int(rng.integers(_LEFT[0] - _PATCH + 1))
        left, right = np.zeros(_LEFT, np.uint8), np.zeros(_RIGHT, np.uint8)
        left[row : row + _PATCH, columns[0] : columns[0] + _PATCH] = rng.integers(128, 256, 3)
        right[:, :, columns[1] : columns[1] + _BAR] = rng.integers(128, 256)
        speed = rng.normal(size=3).astype(np.float32)
        sign = rng.choice((-1.0, 1.0))
        speed[0] = sign * rng.uniform(0.5, 1.0)
        self._answer = np.array([places[c] for places, c in zip(self._places, columns, strict=True)])
        self._answer[1] *= sign
        obs: dict[str, NDArray[Any]] = {"left": left, "right": right, "speed": speed}
        if self._blind:
            obs[self._blind].fill(0)
        return obs

    @override
    def _reward(self, action: NDArray[np.float32]) -> float:
        return 1.0 - float(np.mean((action - self._answer) ** 2 / self._variance))


def _places(width: int, size: int) -> Double:
    """Return the positions at which an object ``size`` pixels wide can start."""
    return np.linspace(-_REACH, _REACH, width - size + 1)
