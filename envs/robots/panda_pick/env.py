"""PandaPickCube of gym-hil: an arm lifts a cube; a scripted person helps in place of one with a gamepad."""

from __future__ import annotations

from typing import Any

import gym_hil  # noqa: F401 - registers the environments
import gymnasium as gym
import mujoco
import numpy as np
from gym_hil.mujoco_gym_env import MAX_GRIPPER_COMMAND, GymRenderingSpec
from gymnasium.spaces import Box, Dict, Discrete

STEP = 0.025
"""Greatest distance that the hand moves in a step, metres along each axis."""

SIZE = 64
"""Height and width of a picture, pixels."""

OPEN, HOLD, CLOSE = range(3)
"""Choices of the gripper."""


class PandaPick(gym.Wrapper):
    """A Franka arm, moved by the place of its hand, with the gripper as a choice.

    Observations: the arm's 18 numbers (7 angles, 7 speeds, gripper, the hand's place in metres), and the
    cube's place or two cameras of 64 × 64 pixels. The reward is 1 once the cube is 10 cm above the table,
    which ends the episode; it is truncated after 100 steps of 0.1 s.

    cameras: pictures from the front and from the wrist in place of the cube's place
    """

    def __init__(self, *, cameras: bool = False) -> None:
        super().__init__(
            gym.make(
                "gym_hil/PandaPickCubeBase-v0",
                control_dt=0.1,
                image_obs=cameras,
                render_spec=GymRenderingSpec(SIZE, SIZE),
                random_block_position=True,
                disable_env_checker=True,
            )
        )
        self.action_space = Dict({"gripper": Discrete(3), "move": Box(-1.0, 1.0, (3,))})
        if cameras:
            self._draw_plainly()

    def _draw_plainly(self) -> None:
        """Leave out shadows, reflections and smooth edges, which take a CPU 15 times as long as the rest."""
        robot: Any = self.unwrapped
        robot._viewer.close()
        robot.model.vis.quality.offsamples = 0
        robot._viewer = mujoco.Renderer(robot.model, SIZE, SIZE)
        for flag in (mujoco.mjtRndFlag.mjRND_SHADOW, mujoco.mjtRndFlag.mjRND_REFLECTION):
            robot._viewer.scene.flags[flag] = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
        """Begin an episode. gym-hil draws the cube's place by numpy's global generator: seed it meanwhile."""
        if seed is not None:
            self.unwrapped.np_random = np.random.default_rng(seed)
        before = np.random.get_state()
        np.random.seed(self.np_random.integers(2**32))
        try:
            return self.env.reset(options=options)
        finally:
            np.random.set_state(before)

    def step(self, action: dict[str, Any]) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Move the hand and the gripper."""
        move = [*(STEP * action["move"]), 0.0, 0.0, 0.0, float(action["gripper"]) - HOLD]
        obs, reward, terminated, truncated, info = self.env.step(np.array(move, np.float32))
        return obs, float(reward), terminated, truncated, {**info, "is_success": bool(info["succeed"])}


class Person(gym.Wrapper):
    """A scripted person who takes over, from some step of an episode to its end.

    share:    of the episodes in which that happens
    patience: greatest number of steps in which the person only watches, drawn evenly from 0 to it
    """

    def __init__(self, env: gym.Env, share: float = 0.5, patience: int = 30) -> None:
        super().__init__(env)
        self._share, self._patience = share, patience
        self._watches = 0.0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
        """Begin an episode, and draw whether and when the person takes over."""
        started = self.env.reset(seed=seed, options=options)
        helps = self.np_random.random() < self._share
        steps = self.np_random.integers(self._patience + 1)
        self._watches = float(steps) if helps else float("inf")
        return started

    def step(self, action: dict[str, Any]) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Execute the person's action if it is time, and otherwise that of the policy."""
        acts = self._watches <= 0
        self._watches -= 1
        if acts:
            action = self._pick()
        obs, reward, terminated, truncated, info = self.env.step(action)
        info = {**info, "is_intervention": acts, "teleop_action": action}
        return obs, float(reward), terminated, truncated, info

    def _pick(self) -> dict[str, Any]:
        """Return the next action: the open gripper over the cube, down, closed, and up."""
        robot: Any = self.unwrapped
        hand, cube = (robot.data.sensor(name).data for name in ("2f85/pinch_pos", "block_pos"))
        closed = robot.get_gripper_pose()[0] / MAX_GRIPPER_COMMAND
        way, gripper = cube - hand, OPEN
        if closed > 0.5 and np.abs(way).max() < 0.03:
            way, gripper = np.array([0.0, 0.0, STEP * (closed > 0.99)]), CLOSE
        elif np.hypot(*way[:2]) > 0.01:
            way[2] += 0.08
        elif abs(way[2]) < 0.012:
            way, gripper = np.zeros(3), CLOSE
        return {"gripper": np.int64(gripper), "move": (way / STEP).clip(-1.0, 1.0).astype(np.float32)}


gym.register("PandaPick-v0", PandaPick)
