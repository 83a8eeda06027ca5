"""The policy of ``asac.load``, which acts without a run, and environments for its spaces."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray
from torch import nn
from typing_extensions import override

from algorithm.agents.base import Agent
from algorithm.app.playable import PlayableRun, recorded_specs
from algorithm.config.loader import LoadedConfig
from algorithm.core.data import Array, Float
from algorithm.core.errors import NumericalError, UsageError
from algorithm.core.spec import DEFAULT_BEHAVIOUR, AgentSpec
from algorithm.env.adapter import Adapter
from algorithm.env.kinds import PETTINGZOO, kind_of
from algorithm.env.lanes.base import LanesVecEnv
from algorithm.env.masks import MASK
from algorithm.env.objects import EnvObject, ExternalVectorEnv
from algorithm.env.observations import frame_stack
from algorithm.env.outputs import bad_number, fits_float32
from algorithm.env.parameters.apply import with_parameters
from algorithm.env.registry import find_recipe, make_vec_env
from algorithm.env.sources import GamePassedError, GameSource
from algorithm.nn.process import others_modes, own_modes
from algorithm.run.experience.requests import Purpose, env_request


@dataclass(frozen=True)
class PolicyState:
    """State of a policy for N agents between two steps."""

    prev_action: Float  # [N, A]
    carry: Float  # [N, *C]

    def replaced(self, other: PolicyState, rows: NDArray[np.bool_]) -> PolicyState:
        """Return a copy that takes the rows where ``rows`` [N] is true from another state."""
        wide = rows.reshape(-1, *[1] * (self.carry.ndim - 1))
        actions = np.where(rows[:, None], other.prev_action, self.prev_action)
        return PolicyState(actions, np.where(wide, other.carry, self.carry))


class TrainedPolicy:
    """A trained policy that acts in the spaces of its environment.

    observation_space, action_space: spaces of the wrapped environment
    step:     environment steps of the checkpoint
    networks: all networks, a torch module with state_dict()
    """

    def __init__(self, agent: Agent, adapter: Adapter, step: int, *, masked: bool) -> None:
        self.observation_space = adapter.observation_space
        self.action_space = adapter.action_space
        self.networks: nn.Module = agent.learner.modules()
        self.step = step
        self._policy, self._adapter = agent.new_policy("playing"), adapter
        self._spec, self._masked = adapter.spec, masked
        name, shape = self._spec.obs.names[0], self._spec.obs.shapes[0]
        self._first, self._dims = name, len(shape)

    @override
    def __repr__(self) -> str:
        return f"Policy(step={self.step}, {self.observation_space} -> {self.action_space})"

    @own_modes()
    def act(
        self,
        obs: Any,  # noqa: ANN401 - a space may hold anything
        state: PolicyState | None = None,
        deterministic: bool = True,
        info: Mapping[str, Any] | None = None,
        episode_start: Sequence[bool] | NDArray[np.bool_] | None = None,
    ) -> tuple[Any, PolicyState]:
        """Return the action for an observation, and the state to pass with the next one.

        obs:           as the environment returns it, or a batch of N, each leaf [N, ...]
        state:         returned by the step before; None at the start of an episode
        deterministic: take the mode of the policy; false: sample
        info:          the environment's info, if it holds an action_mask
        episode_start: [N], true where an episode begins with this observation, which resets its state

        The action has the environment's format, batched like obs. Raises SpaceMismatchError for wrong
        shapes, NumericalError for NaN or infinity, UsageError where the arguments do not go together, and
        for a mask that is missing.
        """
        info = info or {}
        first = self._adapter.observations.read(obs)[self._first]
        single = np.ndim(first) == self._dims
        if single:
            read = self._adapter.observations.read_each([obs])
            mask = self._adapter.masks.read(obs, info, over=False)
            allowed = self._spec.action.all_allowed(1) if mask is None else mask[None]
        else:
            n = len(first)
            read = self._adapter.observations.read_batch(obs, n)
            mask = self._adapter.masks.read_batch(obs, info, np.zeros(n, np.bool_))
            allowed = self._spec.action.all_allowed(n) if mask is None else mask
        if mask is None and self._masked and MASK not in info:
            raise UsageError(
                "the policy was trained with an action mask, and gets none",
                where="Policy.act",
                why=f"info has no {MASK!r}",
                fix=f"pass the environment's info, or info={{{MASK!r}: None}} where everything is allowed",
            )
        refuse_non_finite(read)
        if len(read) < len(self._spec.obs.names):  # what all agents observe, and only critics see
            read = self._spec.obs.zeros(len(allowed)) | read
        state = self._begun(state, len(allowed), episode_start)
        output = self._policy.act(read, state.prev_action, state.carry, allowed, greedy=deterministic)
        action = self._adapter.actions.to_env(output.action[0] if single else output.action)
        return action, PolicyState(output.action, output.carry)

    def _begun(
        self, state: PolicyState | None, n: int, starts: Sequence[bool] | NDArray[np.bool_] | None
    ) -> PolicyState:
        """Return the state of N agents, with fresh rows where episodes begin. Raises UsageError."""
        fresh = PolicyState(self._spec.action.padding(n), self._policy.initial_carry(n))
        begins = np.zeros(n, np.bool_) if starts is None else np.atleast_1d(np.asarray(starts, np.bool_))
        state = fresh if state is None else state
        parts: Mapping[str, tuple[Any, tuple[int, ...]]] = {
            "state.prev_action": (getattr(state, "prev_action", None), fresh.prev_action.shape),
            "state.carry": (getattr(state, "carry", None), fresh.carry.shape),
            "episode_start": (begins, (n,)),
        }
        for name, (value, expected) in parts.items():
            if np.shape(value) != expected:
                raise UsageError(
                    f"{name} does not match the observation",
                    where="Policy.act",
                    why=f"its shape is {list(np.shape(value))}, and for {n} rows it must be {list(expected)}",
                    fix="pass all of them for the same environments; state is what act returned for these",
                )
        return state.replaced(fresh, begins) if begins.any() else state


def refuse_non_finite(obs: Mapping[str, Array]) -> None:
    """Raise NumericalError if an observation, by name, holds NaN or infinity."""
    for name, value in obs.items():
        if value.dtype.kind == "f" and not fits_float32(value).all():
            place = np.argwhere(~fits_float32(value))[0].tolist()
            raise NumericalError(
                "an observation is not finite, and no action can be chosen for it",
                where=f"observation {name!r}, at {place}",
                why=f"it is {bad_number(value[tuple(place)])}",
                fix="find out where it comes from; asac.check(env) checks an environment",
            )


@others_modes()
def eval_adapter(loaded: LoadedConfig, env_object: EnvObject | None = None) -> Adapter:
    """Return the adapter for an environment of evaluations, which is made once for that, and closed.

    env_object: environments that were passed instead of the task
    Raises UsageError for simulators without Gymnasium's spaces.
    """
    source, base = env_object.evaluate if env_object else None, loaded.config.base_config
    if isinstance(source, ExternalVectorEnv):
        return Adapter(*source.spaces, source.name)
    if env_object is None and kind_of(base.env_type).lanes:
        lanes = make_vec_env(env_request(loaded, "evaluate"))
        lanes.close()
        return cast(LanesVecEnv, lanes).adapter
    env = make_gym_env(loaded, "evaluate", env_object=env_object)
    try:
        return Adapter(env.observation_space, env.action_space, str(env), stack=frame_stack(env))
    finally:
        env.close()


def eval_adapters(
    loaded: LoadedConfig, played: PlayableRun, env_object: EnvObject | None
) -> Mapping[str, Adapter]:
    """Return the adapter of each behaviour; for Unity by the specs in the run's manifest.

    Raises as :func:`eval_adapter`, and StorageError for a damaged manifest.
    """
    kind, source = loaded.config.base_config.kind, env_object.evaluate if env_object else None
    if source is None and kind.player:
        specs = recorded_specs(played.spaces, played.run.manifest)
        return {name: _of_unity(spec, name) for name, spec in specs.items()}
    if not isinstance(source, GameSource) and (source or kind != PETTINGZOO):
        with suppress(GamePassedError):  # by a function that makes a game
            return {DEFAULT_BEHAVIOUR: eval_adapter(loaded, env_object)}
    env = make_vec_env(env_request(loaded, "evaluate", source=source))
    env.close()
    of_behaviours: Mapping[str, Adapter] = cast(Any, env).adapters
    return of_behaviours


def choose_behaviour(behaviours: Collection[str], name: str | None, run: Path) -> str:
    """Return the behaviour ``name``; None stands for the only one. Raises UsageError if there is none."""
    if name is None and len(behaviours) == 1:
        return next(iter(behaviours))
    if name is not None and name in behaviours:
        return name
    raise UsageError(
        "the run has several behaviors" if name is None else f"the run has no behavior {name!r}",
        where=run,
        why=f"it has {', '.join(map(repr, behaviours))}",
        fix="name one of them with behavior=",
    )


def _of_unity(spec: AgentSpec, name: str) -> Adapter:
    """Return an adapter for a dictionary of sensors, and for choices, numbers in [-1, 1], or both by name."""
    sensors = {}
    for sensor, shape, dtype in spec.obs.items():
        low, high = (0, 255) if dtype == "uint8" else (-np.inf, np.inf)
        sensors[sensor] = gym.spaces.Box(low, high, shape, np.dtype(dtype).type)
    parts: dict[str, gym.Space[Any]] = {}
    if spec.action.branches:
        parts["discrete"] = gym.spaces.MultiDiscrete(list(spec.action.branches))
    if spec.action.continuous:
        parts["continuous"] = gym.spaces.Box(-1.0, 1.0, (spec.action.continuous,))
    action = gym.spaces.Dict(parts) if len(parts) > 1 else next(iter(parts.values()))
    adapter = Adapter(gym.spaces.Dict([*sensors.items()]), action, name)
    adapter.spec = spec  # which has the axes of images
    return adapter


@others_modes()
def make_gym_env(
    loaded: LoadedConfig,
    purpose: Purpose,
    lessons: Mapping[str, str] | None = None,
    env_object: EnvObject | None = None,
) -> gym.Env[Any, Any]:
    """Make a single gymnasium environment of a task, with the task's wrappers and environment parameters.

    lessons:    parameter -> lesson; by default the last lessons for evaluations, else the first
    env_object: environments that were passed instead of the task
    Raises UsageError for a simulator that is not of gymnasium.
    """
    request = env_request(
        loaded, purpose, source=env_object.source(purpose) if env_object else None, lessons=lessons
    )
    return with_parameters(find_recipe(request).make_gym_env(), request.parameters)
