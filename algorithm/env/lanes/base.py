"""Base of simulators that step many environments in one call, each with one agent."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from typing_extensions import override

from algorithm.core.data import State
from algorithm.core.errors import EnvError, UserError, described
from algorithm.core.spec import DEFAULT_BEHAVIOUR
from algorithm.core.steps import Array, Bool, Int
from algorithm.env.adapter import Adapter
from algorithm.env.base import EpisodeSeed, Fault, Observation, OnFault, ResetResult, VecEnv
from algorithm.env.env_id import advice
from algorithm.env.outputs import SpaceMismatchError
from algorithm.env.pool.process_exit import as_exception, exits_as_errors

_T = TypeVar("_T")


class LanesVecEnv(VecEnv):
    """Base of the N lanes of one simulator, each an environment with one agent.

    adapter: conversion for the spaces of one lane
    n:       number of lanes
    name:    of the environment; owner: of the simulator's class; both for messages
    seed_of: seed of each episode
    on_fault: called once if the simulator loses last observations
    """

    def __init__(
        self, adapter: Adapter, n: int, *, name: str, owner: str, seed_of: EpisodeSeed, on_fault: OnFault
    ) -> None:
        self.adapter = adapter
        self.specs = {DEFAULT_BEHAVIOUR: adapter.spec}
        self.fps = None  # images come from single environments
        self.render_modes = ()
        self._n = n
        self._name = name
        self._class = owner
        self._step = 0
        self._observations = adapter.observations
        self._masks = adapter.masks
        self._actions = adapter.actions
        self._all_allowed = adapter.spec.action.all_allowed(n)
        self._all_allowed.flags.writeable = False  # shared by all steps
        self._seed_of = seed_of
        self._on_fault = on_fault
        self._reported_lost = False
        self._ids: Int = np.arange(n)
        self._episode: Int = np.full(n, -1)
        # The last output of the simulator.
        self._last = Observation(ids=self._ids, obs=adapter.spec.obs.zeros(n), action_mask=self._all_allowed)

    def observations(self, obs: Any) -> dict[str, Array]:  # noqa: ANN401 - any space
        """Return copies of the observations of all lanes, as the program's arrays by name."""
        return self._observations.read_batch(obs, self._n)

    @abstractmethod
    def _reset(self, chosen: Int) -> Observation:
        """Begin the next episodes of the lanes ``chosen``; return the observations of all."""

    @override
    def reset(
        self, indices: Sequence[int] | None = None, *, episode: int | None = None
    ) -> dict[str, ResetResult]:
        chosen = self._ids if indices is None else np.array(indices, np.int64)
        if episode is not None:
            self._episode[chosen] = episode - 1
        seen = self._reset(chosen)
        obs = {name: value[chosen] for name, value in seen.obs.items()}
        first = ResetResult(ids=chosen, obs=obs, action_mask=seen.action_mask[chosen])
        return {DEFAULT_BEHAVIOUR: first}

    @override
    def state(self) -> State:
        return State({"episode": self._episode.copy()})

    @override
    def resume(self, state: State) -> dict[int, str]:
        """Restore the numbers of the episodes; lanes step together, so none can repeat its episode alone."""
        episode = state.arrays["episode"][: self._n]
        self._episode[: len(episode)] = episode
        reason = f"{self._class} steps all environments together and cannot repeat the episode of one"
        return dict.fromkeys(range(self._n), reason)

    def _read(self, obs: Any, infos: Mapping[str, Any], over: Bool) -> Observation:  # noqa: ANN401 - any space
        """Copy the arrays of all lanes, since the simulator may reuse them. over: [N] the task has ended."""
        try:
            arrays = self.observations(obs)
            mask = self._masks.read_batch(obs, infos, over)
        except SpaceMismatchError as error:
            raise self._space_error(str(error)) from error
        return Observation(ids=self._ids, obs=arrays, action_mask=self._all_allowed if mask is None else mask)

    def _report_lost(self) -> None:
        """Report once that the simulator loses last observations."""
        if self._reported_lost:
            return
        self._reported_lost = True
        self._on_fault(
            Fault(
                what=f"{self._name} loses the last observation of truncated episodes",
                where=f"{self._class}, step {self._step:,}",
                why="it resets lanes in the step that ends their episodes, and returns only the first "
                "observation of the next",
                fix="the last transition of each truncated episode is not stored; make it return the last "
                "observation, too",
            )
        )

    def _call(self, call: str, method: Callable[[], _T]) -> _T:
        """Call the simulator; any error in it becomes an EnvError. call: its name, for the message."""
        try:
            return method()
        except BaseException as raised:
            error = as_exception(raised)
            fix = "run with --debug for the environment's own traceback"
            raise self._error(f"failed in {call}", why=described(error), fix=fix) from error

    def _space_error(self, why: str) -> EnvError:
        """Return the error for output that does not fit the spaces."""
        return self._error(
            "returned what its spaces do not allow", why=why, fix="report it to the environment's authors"
        )

    def _error(self, what: str, *, why: str, fix: str) -> EnvError:
        """Return an EnvError about the simulator, with its class and step."""
        where = f"{self._class} of {self._n} environments, index unknown, step {self._step}"
        return EnvError(f"{self._name} {what}", where=where, why=why, fix=fix)


def made(make: Callable[[], _T], name: str, what: str) -> _T:
    """Make a simulator. Raises EnvError for any error in it; what: its kind, for the message."""
    try:
        with exits_as_errors():
            return make()
    except UserError:
        raise
    except Exception as error:
        raise EnvError(
            "the environment could not be made",
            where=f"{name}, {what}",
            why=described(error),
            fix=advice(error, "check base_config.env_name and env_args"),
        ) from error
