"""Robots of lerobot as Gymnasium environments, with its processors and its teleoperation."""

from __future__ import annotations

import sys
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray
from typing_extensions import override

from algorithm.core.errors import UsageError, described
from algorithm.env.config import INTERVENTION_KEYS


class LeRobot(gym.Env[Any, NDArray[Any]]):
    """The environment that lerobot 0.4.4 makes of a file for ``gym_manipulator``; see docs/robots.md.

    Observations are those behind its processors: positions, and pictures [C, H, W] of bytes. Infos have the
    action that was executed, ``action_taken``, and ``is_intervention``, as the teleoperator reports it;
    ``base_config.interventions`` renames them.
    """

    intervention_keys = INTERVENTION_KEYS

    def __init__(self, config: str) -> None:
        try:
            import draccus
            from lerobot.processor import TransitionKey, create_transition
            from lerobot.rl import gym_manipulator
            from lerobot.teleoperators.utils import TeleopEvents
        except ImportError as error:
            raise UsageError(
                "lerobot, which drives this robot, cannot be imported",
                where=config,
                why=described(error),
                fix=f"{sys.executable} -m pip install lerobot==0.4.4",
            ) from error
        settings = draccus.parse(gym_manipulator.GymManipulatorConfig, config_path=config, args=[]).env
        self._env, teleoperator = gym_manipulator.make_robot_env(settings)
        self._of_env, self._of_action = gym_manipulator.make_processors(self._env, teleoperator, settings)
        self._step, self._create = gym_manipulator.step_env_and_process_transition, create_transition
        self._keys, self._flag = TransitionKey, TeleopEvents.IS_INTERVENTION
        self.action_space = self._env.action_space
        self._transition: Any = None
        obs, _ = self.reset()
        self.observation_space = gym.spaces.Dict(
            {
                name: gym.spaces.Box(0, 255, value.shape, np.uint8)
                if value.ndim == 3
                else gym.spaces.Box(-np.inf, np.inf, value.shape)
                for name, value in obs.items()
            }
        )

    @override
    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Begin an episode: lerobot moves the robot to its start."""
        super().reset(seed=seed)
        obs, info = self._env.reset(seed=seed)
        self._of_env.reset()
        self._of_action.reset()
        more = {"raw_joint_positions": info.pop("raw_joint_positions", None)}
        self._transition = self._of_env(self._create(observation=obs, info=info, complementary_data=more))
        return self._observed(), {}

    @override
    def step(self, action: NDArray[Any]) -> tuple[dict[str, NDArray[Any]], float, bool, bool, dict[str, Any]]:
        """Execute the action, or that of the teleoperator."""
        transition = self._transition = self._step(
            self._env, self._transition, torch.as_tensor(action), self._of_env, self._act
        )
        executed = transition[self._keys.COMPLEMENTARY_DATA].get("teleop_action")
        by_person = self._by_person or transition[self._keys.INFO].get(self._flag, False)  # in its simulation
        keys = self.intervention_keys
        info: dict[str, Any] = {keys.flag: bool(by_person)} if keys.flag else {}
        if executed is not None and keys.executed:
            taken = np.asarray(torch.as_tensor(executed).cpu(), self.action_space.dtype)
            info[keys.executed] = taken.reshape(self.action_space.shape)
        ended = bool(transition[self._keys.DONE]), bool(transition[self._keys.TRUNCATED])
        return self._observed(), float(transition[self._keys.REWARD]), *ended, info

    @override
    def close(self) -> None:
        self._env.close()

    def _act(self, transition: Any) -> Any:  # noqa: ANN401 - lerobot's
        """Process an action, and read whether a person acts: in the info of a robot's step it is false."""
        processed = self._of_action(transition)
        self._by_person = bool(processed[self._keys.INFO].get(self._flag, False))
        return processed

    def _observed(self) -> dict[str, NDArray[Any]]:
        """Return the observations without the dimension of the batch, pictures in bytes again."""
        obs = {name: value[0].cpu() for name, value in self._transition[self._keys.OBSERVATION].items()}
        bytes_of = {name: (255 * value).round().byte() for name, value in obs.items() if value.dim() == 3}
        return {name: np.asarray(bytes_of.get(name, value)) for name, value in obs.items()}


gym.register("LeRobot-v0", f"{__name__}:LeRobot")
