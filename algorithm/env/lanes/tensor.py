"""Tensor environments behind the interface of any simulator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from algorithm.core.data import State
from algorithm.core.errors import UsageError
from algorithm.core.spec import DEFAULT_BEHAVIOUR
from algorithm.core.steps import Array, Bool, Float, Int
from algorithm.env.adapter import Adapter
from algorithm.env.base import Observation, StepResult
from algorithm.env.env_id import import_source, resolve_env_id
from algorithm.env.lanes.base import LanesVecEnv, made
from algorithm.env.lanes.contract import TensorEnv, TensorObs, TensorStep
from algorithm.env.outputs import SpaceMismatchError, flags_of, numbers_of
from algorithm.env.pool.watchdog import closing_in_time
from algorithm.env.request import EnvRequest
from algorithm.env.spaces import check_spaces


class TensorVecEnv(LanesVecEnv):
    """The lanes of a tensor environment, as a vector environment of the program.

    make:    makes the environment
    request: has its name, seeds and callbacks
    lent:    it belongs to the user, and is not closed

    The seed of the first episode seeds all lanes. Later ones use the environment's own random numbers.
    Raises :class:`EnvError` if it cannot be made, and for spaces that are not supported.
    """

    def __init__(self, make: Callable[[], TensorEnv], request: EnvRequest, *, lent: bool = False) -> None:
        name = request.env_name
        env = made(make, name, "as tensors")
        check_spaces(env, name)
        super().__init__(
            Adapter(env.observation_space, env.action_space, name),
            env.num_envs,
            name=name,
            owner=type(env).__name__,
            seed_of=request.seed_of,
            on_fault=request.on_fault,
        )
        self._env, self._lent, self.time_limit = request.watch(env), lent, env.time_limit
        self.arrangement = f"{self._n} in {self._class} on {env.device}"

    @override
    def _reset(self, chosen: Int) -> Observation:
        self._episode[chosen] += 1
        kept = np.ones(self._n, np.bool_)
        kept[chosen] = False
        seed = None if kept.any() else self._seed_of(0, int(self._episode[0]))
        lanes = torch.tensor(~kept, device=self._env.device) if kept.any() else None
        first = self._seen(self._call("reset", lambda: self._env.reset(seed, lanes)))
        pairs = ((value[kept], self._last.obs[name][kept]) for name, value in first.obs.items())
        if not all(np.array_equal(*pair, equal_nan=True) for pair in pairs):
            raise self._error(
                "changed lanes that it was not asked to reset",
                why="reset(lanes=…) has changed the observations of the others",
                fix="reset only the lanes that are true, and return the last observations of the others",
            )
        self._last = first
        return first

    @override
    def step(self, actions: Mapping[str, Float]) -> dict[str, StepResult]:
        scaled = torch.from_numpy(np.ascontiguousarray(self._actions.to_env(actions[DEFAULT_BEHAVIOUR])))
        taken = self._call("step", lambda: TensorStep(*self._env.step(scaled.to(self._env.device))))
        self._step += 1
        before, self._last = self._last, self._seen(taken.obs)
        try:
            reward = numbers_of(_host(taken.reward), self._n, "rewards")
            terminated = flags_of(_host(taken.terminated), self._n, "terminated")
            truncated = flags_of(_host(taken.truncated), self._n, "truncated")
        except SpaceMismatchError as error:
            raise self._space_error(str(error)) from error
        ended, final, unknown = terminated | truncated, None, None
        if ended.any():
            self._episode += ended
            final = before
            if taken.final is not None:
                ends = torch.from_numpy(ended).to(self._env.device)
                last = self._call("step", lambda: _picked(ends, taken.final, taken.obs))
                final = self._seen(last, over=terminated)
            elif truncated.any():
                unknown = truncated & ~terminated
                self._report_lost()
        result = StepResult(
            **vars(self._last),
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            final=final,
            unknown=unknown,
        )
        return {DEFAULT_BEHAVIOUR: result}

    @override
    def state(self) -> State:
        env_state = self._call(
            "state",
            lambda: {f"env.{name}": _host(of_env) for name, of_env in (self._env.state() or {}).items()},
        )
        last = {f"last.{name}": value for name, value in self._last.obs.items()}
        return State({**super().state().arrays, **env_state, **last, "mask": self._last.action_mask})

    @override
    def resume(self, state: State) -> dict[int, str]:
        """Continue exactly if the state has that of the environment; else only numbers of episodes."""
        names = [name for name in state.arrays if name.startswith("env.")]
        saved = {name[4:]: torch.from_numpy(np.array(state.arrays[name])) for name in names}
        lost = super().resume(state)
        if not saved or len(state.arrays["episode"]) != self._n:
            return lost
        self._call("load_state", lambda: self._env.load_state(saved))
        obs = {name: np.array(state.arrays[f"last.{name}"]) for name in self._last.obs}
        self._last = Observation(ids=self._ids, obs=obs, action_mask=np.array(state.arrays["mask"]))
        return {}

    @override
    def close(self) -> None:
        if not self._lent:
            with closing_in_time(self._name):
                self._call("close", self._env.close)

    def _seen(self, obs: TensorObs, over: Bool | None = None) -> Observation:
        """Convert observations to arrays of the program. over: [N] lanes whose task has ended."""
        try:
            host = {k: _host(v) for k, v in obs.items()} if isinstance(obs, Mapping) else _host(obs)
        except SpaceMismatchError as error:
            raise self._space_error(str(error)) from error
        return self._read(host, {}, np.zeros(self._n, np.bool_) if over is None else over)


def _picked(ended: Tensor, final: Any, obs: Any) -> Any:  # noqa: ANN401 - tensors, or a dict of them
    """Return ``final`` in rows where an episode has ended, and ``obs`` in the others."""
    if isinstance(final, Mapping):
        return {name: _picked(ended, value, obs[name]) for name, value in final.items()}
    return torch.where(ended.view(-1, *[1] * (final.dim() - 1)), final, obs)


def make_named(request: EnvRequest) -> TensorVecEnv:
    """Return the lanes of a class by its name, ``module:Class`` or ``file.py:Class``. Raises EnvError."""
    resolved = resolve_env_id(request.env_name, request.folder)
    return TensorVecEnv(partial(_named, resolved, request), request)


def _named(resolved: str, request: EnvRequest) -> TensorEnv:
    """Make an environment from ``module:Class`` or ``file.py:Class``."""
    source, _, name = resolved.rpartition(":")
    if not source:
        raise ValueError("it must be module:Class or file.py:Class")
    kind = getattr(import_source(source), name)
    if not (isinstance(kind, type) and issubclass(kind, TensorEnv)):
        raise TypeError(f"{name} is not a subclass of algorithm.env.lanes.contract.TensorEnv")
    return _placed(kind, request)


def _placed(kind: Callable[..., TensorEnv], request: EnvRequest) -> TensorEnv:
    """Make an environment from its class. Raises UsageError for a device that does not exist."""
    args: dict[str, Any] = dict(request.env_args)
    device = torch.device(args.pop("device", "cpu"))
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UsageError(
            f"there is no device {device}",
            where="base_config.env_args.device",
            why="torch finds no GPU here",
            fix="leave it out: the lanes then step on the CPU",
        )
    return kind(request.n, device=device, **args)


def _host(value: Tensor) -> Array:
    """Return a tensor as an array, which shares its memory if it is on the CPU."""
    if not isinstance(value, Tensor):
        raise SpaceMismatchError(f"a {type(value).__name__} is not a tensor")
    return value.detach().cpu().numpy()
