"""Lanes of a tensor environment as the program sees any simulator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from algorithm.core.data import Array, Bool, Float, Int, State
from algorithm.core.errors import EnvError, UsageError, UserError, described
from algorithm.core.spec import DEFAULT_BEHAVIOUR
from algorithm.env.base import Observation, ResetResult, StepResult, VecEnv
from algorithm.env.env_id import advice, import_source, resolve_env_id
from algorithm.env.gym import Adapter
from algorithm.env.outputs import SpaceMismatchError, flags_of, lost_final, numbers_of
from algorithm.env.pool.process_exit import as_exception, exits_as_errors
from algorithm.env.request import EnvRequest
from algorithm.env.spaces import check_spaces
from algorithm.env.tensor.contract import TensorEnv, TensorObs, TensorStep

_T = TypeVar("_T")


class TensorVecEnv(VecEnv):
    """N lanes of one tensor environment, each with one agent.

    make:    makes the environment
    request: for its name, seeds, and who is told of what
    lent:    it stays its owner's, and is not closed

    The seed of the first episode seeds all lanes. Later ones use the environment's own random numbers.
    Raises :class:`EnvError` if it cannot be made, and for spaces that are not supported.
    """

    def __init__(self, make: Callable[[], TensorEnv], request: EnvRequest, *, lent: bool = False) -> None:
        self._name, self._step, self._lent = request.env_name, 0, lent
        env = self._made(make)
        self._class, self._env = type(env).__name__, request.pool.watch(env)
        check_spaces(env, self._name)
        self._n = env.num_envs
        adapter = Adapter(env.observation_space, env.action_space, self._name)
        self.specs = {DEFAULT_BEHAVIOUR: adapter.spec}
        self.time_limit, self.fps, self.render_modes = env.time_limit, None, ()
        self.arrangement = f"{self._n} in {self._class} on {env.device}"
        self._observations, self._masks, self._actions = adapter.observations, adapter.masks, adapter.actions
        self._all_allowed = adapter.spec.action.all_allowed(self._n)
        self._all_allowed.flags.writeable = False  # shared by all steps
        self._seed_of, self._on_fault = request.seed_of, request.pool.on_fault
        self._ids: Int = np.arange(self._n)
        self._episode: Int = np.full(self._n, -1)
        self._told_lost = False
        self._last = Observation(
            ids=self._ids, obs=adapter.spec.obs.zeros(self._n), action_mask=self._all_allowed
        )

    @override
    def reset(
        self, indices: Sequence[int] | None = None, *, episode: int | None = None
    ) -> dict[str, ResetResult]:
        chosen = self._ids if indices is None else np.array(indices, np.int64)
        if episode is not None:
            self._episode[chosen] = episode - 1
        self._episode[chosen] += 1
        seed, lanes = None, None
        if len(chosen) == self._n:
            seed = self._seed_of(0, int(self._episode[0]))
        else:
            lanes = torch.zeros(self._n, dtype=torch.bool)
            lanes[torch.from_numpy(chosen)] = True
            lanes = lanes.to(self._env.device)
        self._last = seen = self._seen(self._call("reset", lambda: self._env.reset(seed, lanes)))
        obs = {name: value[chosen] for name, value in seen.obs.items()}
        first = ResetResult(ids=chosen, obs=obs, action_mask=seen.action_mask[chosen])
        return {DEFAULT_BEHAVIOUR: first}

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
            raise self._space_error(error) from error
        ended, final, unknown = terminated | truncated, None, None
        if ended.any():
            self._episode += ended
            final = before
            if taken.final is not None:
                final = self._seen(taken.final, over=terminated)
            elif truncated.any():
                unknown = truncated & ~terminated
                self._tell_lost()
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
        own = self._env.state() or {}
        arrays = {f"env.{name}": _host(value) for name, value in own.items()}
        return State({"episode": self._episode.copy(), **arrays})

    @override
    def resume(self, state: State) -> dict[int, str]:
        """Continue exactly if the environment has told its state; if not, episodes keep their numbers."""
        saved = {name[4:]: value for name, value in state.arrays.items() if name.startswith("env.")}
        episode = state.arrays["episode"][: self._n]
        self._episode[: len(episode)] = episode
        if saved and len(state.arrays["episode"]) == self._n:
            tensors = {name: torch.from_numpy(np.array(value)) for name, value in saved.items()}
            self._call("load_state", lambda: self._env.load_state(tensors))
            return {}
        return dict.fromkeys(range(self._n), f"{self._class} has not told its state")

    @override
    def close(self) -> None:
        if not self._lent:
            self._call("close", self._env.close)

    def _seen(self, obs: TensorObs, over: Bool | None = None) -> Observation:
        """Return the program's own arrays of observations. over: [N] lanes whose task has ended."""
        host = {name: _host(value) for name, value in obs.items()} if isinstance(obs, Mapping) else _host(obs)
        over = np.zeros(self._n, np.bool_) if over is None else over
        try:
            own = self._observations.read_batch(host, self._n)
            mask = self._masks.read_batch(host, {}, over)
        except SpaceMismatchError as error:
            raise self._space_error(error) from error
        return Observation(ids=self._ids, obs=own, action_mask=self._all_allowed if mask is None else mask)

    def _tell_lost(self) -> None:
        if not self._told_lost:
            self._told_lost = True
            self._on_fault(lost_final(self._name, self._class, self._step))

    def _made(self, make: Callable[[], TensorEnv]) -> TensorEnv:
        try:
            with exits_as_errors():
                return make()
        except UserError:
            raise
        except Exception as error:
            raise EnvError(
                "the environment could not be made",
                where=f"{self._name}, as tensors",
                why=described(error),
                fix=advice(error, "check base_config.env_name and env_args"),
            ) from error

    def _call(self, call: str, run: Callable[[], _T]) -> _T:
        try:
            return run()
        except BaseException as raised:
            error = as_exception(raised)
            fix = "run with --debug for the environment's own traceback"
            raise self._error(f"failed in {call}", described(error), fix) from error

    def _space_error(self, error: Exception) -> EnvError:
        fix = "make it return what its spaces say, a row for each lane"
        return self._error("returned what its spaces do not allow", str(error), fix)

    def _error(self, what: str, why: str, fix: str) -> EnvError:
        where = f"{self._class} of {self._n} lanes, step {self._step}"
        return EnvError(f"{self._name} {what}", where=where, why=why, fix=fix)


def make_named(request: EnvRequest) -> TensorVecEnv:
    """Return the lanes of a class by its name, ``module:Class`` or ``file.py:Class``. Raises EnvError."""
    resolved = resolve_env_id(request.env_name, request.folder)
    return TensorVecEnv(partial(_named, resolved, request), request)


def _named(resolved: str, request: EnvRequest) -> TensorEnv:
    source, _, name = resolved.rpartition(":")
    if not source:
        raise ValueError("it has to be module:Class or file.py:Class")
    kind = getattr(import_source(source), name)
    if not (isinstance(kind, type) and issubclass(kind, TensorEnv)):
        raise TypeError(f"{name} is no class derived from algorithm.env.tensor.contract.TensorEnv")
    return made(kind, request)


def made(kind: Callable[..., TensorEnv], request: EnvRequest) -> TensorEnv:
    """Return the environment of a class. Raises UsageError for a device that is not there."""
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
    """Return a tensor as an array, whose memory it shares on a CPU."""
    if not isinstance(value, Tensor):
        raise SpaceMismatchError(f"a {type(value).__name__} is no tensor")
    return value.detach().cpu().numpy()
