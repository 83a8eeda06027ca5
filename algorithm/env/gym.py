"""Gymnasium environments with one agent."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from algorithm.core.errors import EnvError, UserError, described
from algorithm.core.steps import Double, Float
from algorithm.core.system.display import has_display
from algorithm.env.adapter import Adapter
from algorithm.env.base import Picture
from algorithm.env.config import INTERVENTION_KEYS, InterventionKeys
from algorithm.env.env_id import advice, register_env
from algorithm.env.executed import ExecutedActions, share_keys
from algorithm.env.observations import frame_stack
from algorithm.env.outputs import (
    MISUSE,
    EpisodeInfos,
    TimeStep,
    as_bool,
    as_number,
    refuse_misuse,
    results_of,
)
from algorithm.env.parameters.apply import NO_TARGETS, SetAttributes, Targets
from algorithm.env.pool.process_exit import exits_as_errors
from algorithm.env.registered import is_pybullet, quietly
from algorithm.env.spaces import check_spaces
from algorithm.env.wrappers import (
    Wrapper,
    apply_wrappers,
    closed_after_error,
    load_wrapper,
    running_statistics,
    wrappers_around,
)

_NO_WINDOW = (
    "leave out --render if it has no window or there is no display; ssh -X provides one, and xvfb-run an "
    "invisible one"
)
_RGB_ARRAY = "rgb_array"  # Gymnasium's render mode for images
_NO_VIDEO = "leave out --video, or set eval_config.video to false"


class GymEnv:
    """A Gymnasium environment with one agent, on flat actions and observations by name.

    options: passed to every ``reset`` (``reset_config``)
    parameters: name -> attribute or method that takes the value; None: the option of that name in ``reset``
    infos:   keys of the infos with numbers of an episode
    interventions: keys of the infos with actions that were executed in place of the policy's

    name:         for messages
    time_limit:   steps after which an episode is truncated, where it is known
    fps:          steps per second of simulated time, where it is known
    render_modes: Gymnasium's names of the ways in which it can be shown
    obs_space:    observations, without a mask
    remarks:      on wrappers whose statistics no checkpoint holds
    Raises :class:`EnvError` for an unsupported space, UsageError for a parameter that it does not have.
    """

    def __init__(
        self,
        env: gym.Env,
        *,
        options: Mapping[str, Any] | None = None,
        parameters: Targets = NO_TARGETS,
        infos: Sequence[str] = (),
        interventions: InterventionKeys = INTERVENTION_KEYS,
    ) -> None:
        self._env = env
        self._options = dict(options) if options else None
        self._reset = SetAttributes(env, parameters).reset
        self.parameters = len(parameters)
        self.infos = EpisodeInfos(infos)
        self._executed = ExecutedActions(env.action_space, interventions)
        share_keys(env, interventions)
        self.name = env.spec.id if env.spec else type(env.unwrapped).__name__
        self.time_limit = env.spec.max_episode_steps if env.spec else None
        fps: float | None = env.metadata.get("render_fps")
        # An image is taken of a step of the wrapped environment, which may be several of the simulator.
        repeating = (each for each in wrappers_around(env) if isinstance(each, gym.wrappers.RepeatAction))
        self.fps = fps and fps / math.prod(each.num_repeats for each in repeating)
        self.render_modes = tuple(env.metadata.get("render_modes") or ())
        adapter = Adapter(env.observation_space, env.action_space, self.name, stack=frame_stack(env))
        self.spec = adapter.spec
        self._observations, self._masks = adapter.observations, adapter.masks
        self.actions = adapter.actions
        self.obs_space = adapter.obs_space
        self.remarks = running_statistics(env)

    def reset(self, seed: int, parameters: Double | tuple[()] = ()) -> TimeStep:
        """Start an episode with parameters [K]; return its first observation. Raises as :class:`GymEnv`."""
        try:
            returned = self._reset(seed, self._options, parameters)
        except MISUSE as error:
            refuse_misuse("reset", error)
            raise
        obs, info = results_of("reset", returned)
        self.infos.begin()
        return self._seen(obs, info, over=False)

    def step(self, action: Float) -> tuple[TimeStep, float, bool, bool]:
        """Take a flat action [A]; return time step, reward, terminated and truncated.

        Raises SpaceMismatchError.
        """
        env_action = self.actions.to_env(action)
        try:
            returned = self._env.step(env_action)
        except MISUSE as error:
            refuse_misuse("step", error)
            raise
        obs, reward, terminated, truncated, info = results_of("step", returned)
        over = as_bool(terminated, "terminated")
        executed, by_person = self._executed.read(info, env_action)
        if info:
            self.infos.add(info, by_person)
        seen = self._seen(obs, info, over=over)._replace(executed=executed, by_person=bool(by_person))
        return seen, as_number(reward, "the reward"), over, as_bool(truncated, "truncated")

    def _seen(
        self,
        obs: Any,  # noqa: ANN401 - a space may hold anything
        info: Mapping[str, Any],
        *,
        over: bool,
    ) -> TimeStep:
        """Convert observation and mask."""
        return TimeStep(self._observations.read(obs), self._masks.read(obs, info, over=over))

    def render(self) -> Picture | None:
        """Return an image; None if it was built without images. Raises EnvError."""
        if self._env.render_mode != _RGB_ARRAY:
            return None
        try:
            # A copy: the simulator may reuse its buffer.
            with exits_as_errors():
                picture: NDArray[Any] = np.array(self._env.render())
        except Exception as error:
            raise self._video_error(described(error)) from error
        if picture.dtype != np.uint8 or picture.ndim != 3 or picture.shape[-1] != 3:
            raise self._video_error(f"render returned {picture.dtype} of shape {picture.shape}")
        return picture

    def close(self) -> None:
        """Release the simulator."""
        self._env.close()

    def _video_error(self, why: str) -> EnvError:
        return EnvError(
            "the environment could not be filmed",
            where=self.name,
            why=why,
            fix=f"it must return bytes [height, width, 3]; otherwise {_NO_VIDEO}",
        )


@dataclass(frozen=True, kw_only=True)
class GymRecipe:
    """Arguments for building an environment, in this process or a worker. Called with its index.

    env_id:   as :func:`~algorithm.env.env_id.resolve_env_id` returns it
    env_args: keyword arguments of ``gymnasium.make``
    wrappers: ``base_config.wrappers``, innermost first
    options:  passed to every reset
    parameters, infos, interventions: see :class:`GymEnv`
    render:   show sub-environment 0 in a window
    video:    sub-environment 0 renders images without a window
    """

    env_id: str
    env_args: Mapping[str, Any]
    wrappers: tuple[Wrapper, ...] = ()
    options: Mapping[str, Any] | None = None
    parameters: Targets = field(default_factory=dict)
    infos: tuple[str, ...] = ()
    interventions: InterventionKeys = INTERVENTION_KEYS
    render: bool = False
    video: bool = False

    def make_gym_env(self) -> gym.Env[Any, Any]:
        """Build the environment in its wrappers, without the adapter. Raises EnvError or UsageError."""
        classes = [load_wrapper(wrapper) for wrapper in self.wrappers]
        wrapped = apply_wrappers(self._make(self.env_args), classes)
        share_keys(wrapped, self.interventions)
        return wrapped

    def __call__(self, index: int) -> GymEnv:
        """Build the environment. Raises :class:`EnvError`, or UsageError for an unknown wrapper."""
        classes = [load_wrapper(wrapper) for wrapper in self.wrappers]
        if index or not (self.render or self.video):
            env = self._make(self.env_args)
        else:
            env = self._make_with_images() if self.video else self._make_with_window()
        with closed_after_error(env):
            wrapped = apply_wrappers(env, classes)
            return GymEnv(
                wrapped,
                options=self.options,
                parameters=self.parameters,
                infos=self.infos,
                interventions=self.interventions,
            )

    def _make(self, kwargs: Mapping[str, Any]) -> gym.Env[Any, Any]:
        with quietly(self.env_id):
            try:
                # PyBullet's first episode prints, and differs in the last bits from later ones.
                return self._built(kwargs, begin=is_pybullet(self.env_id))
            except UserError:
                raise
            except Exception as error:
                raise EnvError(
                    "the environment could not be made",
                    where=f"{self.env_id} with {dict(kwargs)}" if kwargs else self.env_id,
                    why=described(error),
                    fix=advice(error, self._advice(error)),
                ) from error

    def _built(self, kwargs: Mapping[str, Any], *, begin: bool) -> gym.Env[Any, Any]:
        """Build the environment; with ``begin``, reset it once. Raises whatever it raises."""
        with exits_as_errors():
            env = self._build(kwargs)
            with closed_after_error(env):
                check_spaces(env, self.env_id)
                if begin:
                    env.reset(seed=0)
        return env

    def _build(self, kwargs: Mapping[str, Any]) -> gym.Env[Any, Any]:
        """Call ``gymnasium.make`` with ``kwargs``, without ``wrappers``. Raises whatever that raises."""
        # The passive checker costs a third of a small environment's step.
        return gym.make(register_env(self.env_id), disable_env_checker=True, **kwargs)

    def _advice(self, error: Exception) -> str:
        """Return advice on an environment that could not be built."""
        return "check base_config.env_name and env_args; module:Id imports a module first"

    def _make_with_window(self) -> gym.Env[Any, Any]:
        """Build with a window, which most environments open in their first episode."""
        if is_pybullet(self.env_id) and sys.platform == "linux" and not os.environ.get("DISPLAY"):
            why = "DISPLAY is not set; PyBullet would end the process without a message"
            raise self._render_error("human", why, _NO_WINDOW)
        try:
            # Not silenced: the output may be the only message about a window that failed.
            return self._built({**self.env_args, "render_mode": "human"}, begin=True)
        except UserError:
            raise
        except Exception as error:
            raise self._render_error("human", described(error), advice(error, _NO_WINDOW)) from error

    def _make_with_images(self) -> gym.Env[Any, Any]:
        """Build with images on demand; nothing else differs."""
        if not has_display():
            os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # SDL fails without a screen
        try:
            env = self._make({**self.env_args, "render_mode": _RGB_ARRAY})
        except EnvError as error:
            raise self._render_error(_RGB_ARRAY, error.why, f"{_NO_VIDEO}; or {error.fix}") from error
        modes = env.metadata.get("render_modes") or []
        if _RGB_ARRAY not in modes:
            env.close()
            raise self._render_error(_RGB_ARRAY, f"its render_modes are {modes}", _NO_VIDEO)
        return env

    def _render_error(self, mode: str, why: str, fix: str) -> EnvError:
        shown, option = ("filmed", "a film") if mode == _RGB_ARRAY else ("shown", "--render")
        return EnvError(
            f"the environment could not be {shown}",
            where=f"{self.env_id} with {dict(self.env_args) | {'render_mode': mode}}, for {option}",
            why=why,
            fix=fix,
        )
