"""All scenes by name, and stand-ins for the shipped tasks' builds, with their spaces but no physics."""

from __future__ import annotations

import numpy as np
from typing_extensions import override

from algorithm.extras.unity.testing.academy import Academy, Scene
from algorithm.extras.unity.testing.agent import PlayerAgent
from algorithm.extras.unity.testing.data import Action, Behaviour, SensorValues, Timing
from algorithm.extras.unity.testing.selfcheck import SELF_CHECKING
from algorithm.extras.unity.testing.sensors import Camera, Sensor, Vector
from algorithm.extras.unity.testing.tasks import LEARNABLE, duel, teams


class StandIn(PlayerAgent):
    """Agent that observes noise and is rewarded for small actions; only ``--max-step`` ends its episodes."""

    @override
    def begin(self) -> None:
        pass

    @override
    def observe(self) -> SensorValues:
        return [self._noise(sensor) for sensor in self._sensors]

    def _noise(self, sensor: Sensor) -> np.ndarray:
        if isinstance(sensor, Camera):
            return self.rng.integers(256, size=sensor.frame).astype(np.uint8)
        return self.rng.normal(size=sensor.frame).astype(np.float32)

    @override
    def act(self, action: Action) -> None:
        self.reward += 0.1 - 0.1 * float(np.abs(action.continuous).sum() + action.discrete.sum())


def stand_in(behaviour: Behaviour, *, agents: int, period: int, max_step: int) -> Scene:
    """Return a scene of stand-ins, with number and timing of agents as in Unity; options override them."""

    def scene(academy: Academy, area: int) -> None:
        timing = Timing(period=period, max_step=academy.options.max_step or max_step)
        for _ in range(max(agents, academy.options.agents)):
            academy.add(StandIn(academy, behaviour, timing))

    return scene


def vector() -> list[Sensor]:
    """Return a single sensor of eight numbers."""
    return [Vector("VectorSensor_size8", 8)]


def camera_and_vector() -> list[Sensor]:
    """Return a camera of 84 × 84 pixels, and four numbers."""
    return [Camera("CameraSensor", 84, 84), Vector("VectorSensor_size4", 4)]


ROLLER = Behaviour("RollerBall?team=0", vector, continuous=2)
BALANCE = Behaviour("3DBall?team=0", vector, continuous=2)
PYRAMID = Behaviour("VisualPyramids?team=0", camera_and_vector, branches=(5,))

TASKS: dict[str, Scene] = {
    **{name: scene for name, (scene, _) in LEARNABLE.items()},
    **SELF_CHECKING,
    "duel": duel,
    "teams": teams,
    "roller": stand_in(ROLLER, agents=1, period=10, max_step=1000),
    "3dball": stand_in(BALANCE, agents=12, period=5, max_step=5000),
    "pyramid": stand_in(PYRAMID, agents=1, period=5, max_step=5000),
}
