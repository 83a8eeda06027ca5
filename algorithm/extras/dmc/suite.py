"""Tasks of the DeepMind Control suite (dm_control) as Gymnasium environments."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any, cast

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec
from numpy.typing import NDArray
from typing_extensions import override

from algorithm.core.data import Float
from algorithm.core.errors import EnvError
from algorithm.core.system.output import silence
from algorithm.env.env_id import suggest_name
from algorithm.env.gym import GymRecipe
from algorithm.env.kinds import dm_task

_PREFIX = "dm."
_GL = "MUJOCO_GL"  # read by mujoco and dm_control when they are imported
_NONE = "disabled"
_UNLIMITED = 1e10  # mujoco's bound of an actuator without limits
_WITH_RENDERER = frozenset({("quadruped", "escape")})  # its terrain is uploaded to a renderer


class DmControlEnv(gym.Env[Any, Any]):
    """Environment of a task of the suite.

    Observations are float32 vectors under the task's names. A discount of 0 terminates an episode; any other
    end truncates it.

    args: keyword arguments of the task, such as ``time_limit`` and ``environment_kwargs``
    height, width, camera_id: of images, in pixels; the camera by number or name
    Raises EnvError for a name that the suite does not have.
    """

    def __init__(
        self,
        name: str,
        *,
        args: Mapping[str, Any] | None = None,
        render_mode: str | None = None,
        height: int = 240,
        width: int = 320,
        camera_id: int | str = 0,
    ) -> None:
        domain, task = _split(name)
        needs_renderer = (domain, task) in _WITH_RENDERER
        suite = load_suite(renderer=render_mode is not None or needs_renderer)
        _check_name(suite.TASKS_BY_DOMAIN, name, domain, task)
        # A fixed seed: LQR draws its model with it, and all sub-environments have to have the same one.
        self._env = suite.load(domain, task, task_kwargs={"random": 0, **(args or {})})
        self.render_mode = render_mode
        self._image = {"height": height, "width": width, "camera_id": camera_id}
        self.metadata = {
            "render_modes": ["human", "rgb_array"],
            "render_fps": 1 / self._env.control_timestep(),
        }
        specs = self._env.observation_spec()
        self.observation_space = gym.spaces.Dict(
            {key: gym.spaces.Box(-np.inf, np.inf, (math.prod(spec.shape),)) for key, spec in specs.items()}
        )
        actions = self._env.action_spec()
        bounds = [np.broadcast_to(bound, actions.shape) for bound in (actions.minimum, actions.maximum)]
        low, high = (np.where(abs(b) < _UNLIMITED, b, np.copysign(np.inf, b)) for b in bounds)
        self.action_space = gym.spaces.Box(low.astype(np.float32), high.astype(np.float32))
        limit = self._env._step_limit  # not public; infinite for a task without a time limit
        self.spec = EnvSpec(
            id=f"{domain}/{task}", max_episode_steps=math.ceil(limit) if math.isfinite(limit) else None
        )

    @property
    def physics(self) -> Any:  # noqa: ANN401 - of the suite
        """The task's physics, which ``environment_parameters`` change: ``physics.model.opt.gravity.2``."""
        return self._env.physics

    @override
    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Float], dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            # The suite takes a seed at construction only; an episode draws all its numbers from this one.
            self._env.task._random = np.random.RandomState(seed)
        return self._read(self._env.reset().observation), {}

    @override
    def step(self, action: Float) -> tuple[dict[str, Float], float, bool, bool, dict[str, Any]]:
        now = self._env.step(np.asarray(action, np.float64))
        terminated = now.last() and now.discount == 0
        return self._read(now.observation), float(now.reward), terminated, now.last() and not terminated, {}

    @override
    def render(self) -> NDArray[np.uint8]:
        image: NDArray[np.uint8] = self._env.physics.render(**self._image)
        return image

    @override
    def close(self) -> None:
        self._env.physics.free()

    def _read(self, observation: Mapping[str, Any]) -> dict[str, Float]:
        return {key: np.asarray(value, np.float32).reshape(-1) for key, value in observation.items()}


@dataclass(frozen=True, kw_only=True)
class DmControlRecipe(GymRecipe):
    """Recipe that makes the environment of a task of the suite.

    env_id:   ``domain/task``, or ``dm.domain.task``
    env_args: ``render_mode``, ``height``, ``width`` and ``camera_id``; all others go to the task
    """

    @override
    def _build(self, kwargs: Mapping[str, Any]) -> gym.Env[Any, Any]:
        image_args = {key: kwargs[key] for key in ("height", "width", "camera_id") if key in kwargs}
        args = {key: value for key, value in kwargs.items() if key not in image_args and key != "render_mode"}
        mode = kwargs.get("render_mode")
        window = mode == "human"
        with silence():  # models of the suite print warnings about themselves
            env = DmControlEnv(
                self.env_id, args=args, render_mode="rgb_array" if window else mode, **image_args
            )
        if not window:
            return env
        env.metadata["render_modes"] = ["rgb_array"]  # the wrapper adds the other, and asks for that
        return gym.wrappers.HumanRendering(env)

    @override
    def _advice(self, error: Exception) -> str:
        chosen = f"; {_GL} is {os.environ[_GL]}" if _GL in os.environ else ""
        return (
            "check base_config.env_args: keys other than render_mode, height, width and camera_id go to "
            f"the task{chosen}. Images need libegl1, or libosmesa6 with {_GL}=osmesa"
        )


def load_suite(*, renderer: bool) -> ModuleType:
    """Import ``dm_control.suite`` and return it, with a renderer of images if ``renderer`` is true.

    ``MUJOCO_GL`` names the renderer if it is set. Else, on Linux: without images there is none, so that no
    driver is needed; with images it is EGL.
    """
    free = sys.platform == "linux" and _GL not in os.environ
    if free:
        os.environ[_GL] = "egl" if renderer else _NONE  # also for workers
    try:
        from dm_control import _render, suite
    finally:
        if free and not renderer:
            os.environ.pop(_GL, None)
    imported: str = _render.BACKEND
    if renderer and (imported in _render.constants.NO_RENDERER or (free and imported != os.environ[_GL])):
        _add_renderer(_render)
    return cast(ModuleType, suite)


def _add_renderer(render: ModuleType) -> None:
    """Switch a suite that was imported with another renderer, or none, to that of ``MUJOCO_GL``."""
    makers = {"egl": render._import_egl, "osmesa": render._import_osmesa, "glfw": render._import_glfw}
    chosen = os.environ.get(_GL, "")
    if chosen not in makers:
        raise EnvError(
            "the environment cannot render images",
            where=f"the environment variable {_GL}",
            why=f"{_GL}={chosen} excludes them",
            fix="unset it, or set it to egl or osmesa",
        )
    import_module(f"mujoco.{chosen}")  # loads the OpenGL library, as MuJoCo's import would have done
    vars(render).update(Renderer=makers[chosen](), BACKEND=chosen)


def _split(name: str) -> tuple[str, str]:
    """Return domain and task of a name; the task of an unknown name may be empty."""
    if task := dm_task(name):
        return task
    plain = name.removeprefix(_PREFIX).replace(".", "/", 1) if name.startswith(_PREFIX) else name
    domain, _, rest = plain.partition("/")
    return domain, rest


def _check_name(tasks: Mapping[str, tuple[str, ...]], name: str, domain: str, task: str) -> None:
    """Raise EnvError for a task that the suite does not have."""
    if task in tasks.get(domain, ()):
        return
    what, wanted, there = (
        ("task", task, tasks[domain]) if domain in tasks else ("domain", domain, sorted(tasks))
    )
    raise EnvError(
        f"the DeepMind Control suite has no {name!r}",
        where="base_config.env_name",
        why=f"there is no {what} {wanted!r}; a name is domain/task, such as cartpole/swingup",
        fix=suggest_name(wanted, there),
    )
