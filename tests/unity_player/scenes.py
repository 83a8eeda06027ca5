"""All scenes by name, and stand-ins for the builds of the shipped tasks: their spaces, not their physics."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from tests.unity_player.academy import Academy, Scene
from tests.unity_player.agent import Action, Agent, Behaviour, Timing, Values
from tests.unity_player.selfcheck import SELF_CHECKING
from tests.unity_player.sensors import Camera, Vector
from tests.unity_player.tasks import LEARNABLE, ODD


class Roller(Agent):
    """A ball on a platform rolls to a target: 1 for reaching it; falling off ends the episode."""

    edge, reach, push, dt = 5.0, 1.42, 10.0, 0.02

    @override
    def begin(self) -> None:
        if not hasattr(self, "_place") or np.abs(self._place).max() > self.edge:
            self._place, self._speed = np.zeros(2), np.zeros(2)  # else it rolls on
        self._target = self.rng.uniform(-4.0, 4.0, 2)

    @override
    def observe(self) -> Values:
        target, place = self._target, self._place
        numbers = [target[0], 0.5, target[1], place[0], 0.5, place[1], *self._speed]
        return [np.array(numbers, np.float32)]

    @override
    def act(self, action: Action) -> None:
        scale = self.academy.channels.get("force", 1.0)
        self._speed = self._speed + scale * self.push * action.continuous * self.dt
        self._place = self._place + self._speed * self.dt
        if np.hypot(*(self._place - self._target)) < self.reach:
            self.reward += 1.0
            self.end_episode()
        elif np.abs(self._place).max() > self.edge:
            self.end_episode()


class Balance(Agent):
    """A ball on a plate that the agent tilts: 0.1 a step, −1 for dropping it."""

    dt = 0.02

    @override
    def begin(self) -> None:
        self._tilt = self.rng.uniform(-0.17, 0.17, 2)
        self._place, self._speed = self.rng.uniform(-1.5, 1.5, 2), np.zeros(2)

    @override
    def observe(self) -> Values:
        place, speed = self._place, self._speed
        numbers = [*self._tilt, place[0], 1.0, place[1], speed[0], 0.0, speed[1]]
        return [np.array(numbers, np.float32)]

    @override
    def act(self, action: Action) -> None:
        self._tilt = np.clip(self._tilt + 0.035 * action.continuous, -0.25, 0.25)
        gravity = self.academy.channels.get("gravity", 9.81)
        self._speed = self._speed + gravity * self._tilt * self.dt
        self._place = self._place + self._speed * self.dt
        if np.abs(self._place).max() > 3.0:
            self.reward -= 1.0
            self.end_episode()
        else:
            self.reward += 0.1


class Pyramid(Agent):
    """A switch, then a pyramid that appears with it: 2 for the pyramid, −0.001 a step.

    The camera looks from above; the field is 20 wide.
    """

    moves = ((0.0, 0.0), (0.6, 0.0), (-0.6, 0.0), (0.0, 1.0), (0.0, -1.0))  # forward, turn

    @override
    def begin(self) -> None:
        self._place, self._heading = self.rng.uniform(2, 18, 2), float(self.rng.uniform(0, 2 * np.pi))
        self._switch, self._pyramid = self.rng.uniform(2, 18, (2, 2))
        self._on, self._speed = False, np.zeros(2)

    @override
    def observe(self) -> Values:
        picture = np.full((84, 84, 3), 90, np.uint8)
        self._draw(picture, self._pyramid if self._on else self._switch, (240, 200, 40))
        self._draw(picture, self._place, (40, 80, 240))
        return [picture, np.array([*self._speed, 0.0, float(self._on)], np.float32)]

    def _draw(self, picture: NDArray[np.uint8], place: NDArray[np.float64], colour: tuple[int, ...]) -> None:
        row, column = (place * 4).astype(int)
        picture[max(row - 3, 0) : row + 4, max(column - 3, 0) : column + 4] = colour

    @override
    def act(self, action: Action) -> None:
        forward, turn = self.moves[int(action.discrete[0])]
        self._heading += 0.3 * turn
        self._speed = forward * np.array([np.sin(self._heading), np.cos(self._heading)])
        self._place = np.clip(self._place + self._speed, 0, 20)
        self.reward -= 0.001
        goal = self._pyramid if self._on else self._switch
        if np.hypot(*(self._place - goal)) < 1.5:
            if self._on:
                self.reward += 2.0
                self.end_episode()
            self._on = not self._on


class Watcher(Agent):
    """Four cameras and nothing to learn, to time."""

    cameras, size = 4, 84

    @override
    def begin(self) -> None:
        shape = (self.cameras, self.size, self.size, 3)
        ramp = np.linspace(0, 200, self.size, dtype=np.uint8)[:, None, None]
        self._pictures = np.broadcast_to(ramp, shape) + self.rng.integers(8, size=shape, dtype=np.uint8)

    @override
    def observe(self) -> Values:
        self._pictures = np.roll(self._pictures, 1, axis=2)
        return [*self._pictures]

    @override
    def act(self, action: Action) -> None:
        self.reward += float(action.continuous[0])


ROLLER = Behaviour("RollerBall?team=0", lambda: [Vector("VectorSensor_size8", 8)], continuous=2)
BALANCE = Behaviour("3DBall?team=0", lambda: [Vector("VectorSensor_size8", 8)], continuous=2)
PYRAMID = Behaviour(
    "VisualPyramids?team=0",
    lambda: [Camera("CameraSensor", 84, 84), Vector("VectorSensor_size4", 4)],
    branches=(5,),
)

WATCHER = Behaviour(
    "Watcher?team=0",
    lambda: [Camera(f"camera{k}", Watcher.size, Watcher.size) for k in range(Watcher.cameras)],
    continuous=1,
)


def scene_of(kind: type[Agent], behaviour: Behaviour, *, agents: int, period: int, max_step: int) -> Scene:
    """Return a scene with the number and timing of the agents of Unity's own, options apart."""

    def scene(academy: Academy, area: int) -> None:
        for _ in range(max(agents, academy.options.agents)):
            limit = academy.options.max_step or max_step
            academy.add(kind(academy, behaviour, Timing(period=period, max_step=limit)))

    return scene


TASKS: dict[str, Scene] = {
    **{name: scene for name, (scene, _) in LEARNABLE.items()},
    **ODD,
    **SELF_CHECKING,
    "roller": scene_of(Roller, ROLLER, agents=1, period=10, max_step=1000),
    "3dball": scene_of(Balance, BALANCE, agents=12, period=5, max_step=5000),
    "watcher": scene_of(Watcher, WATCHER, agents=1, period=1, max_step=1000),
    "pyramid": scene_of(Pyramid, PYRAMID, agents=1, period=5, max_step=5000),
}
