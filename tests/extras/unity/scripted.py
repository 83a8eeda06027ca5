"""Players that follow a script, in this process: what UnityVecEnv makes of their messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from algorithm.env.request import EnvRequest
from algorithm.extras.unity import slot as slot_module
from algorithm.extras.unity.player import PlayerError
from algorithm.extras.unity.spaces import AgentStates, UnityBehaviour

Ask = tuple[int, float, float]
"""Unity's id, observation, reward."""

End = tuple[int, float, float, bool]
"""The same, and whether it is an interruption."""

Told = Mapping[str, tuple[Sequence[Ask], Sequence[End]]]


def sensor(name: str, *shape: int, properties: Sequence[int] = ()) -> SimpleNamespace:
    return SimpleNamespace(name=name, shape=shape, dimension_property=properties or (0,) * len(shape))


def behaviour(
    name: str = "Ball?team=0", *, size: int = 1, continuous: int = 1, branches: tuple[int, ...] = ()
) -> UnityBehaviour:
    actions = SimpleNamespace(
        continuous_size=continuous, discrete_size=len(branches), discrete_branches=branches
    )
    spec = SimpleNamespace(action_spec=actions, observation_specs=[sensor("place", size)])
    return UnityBehaviour(name, spec, SimpleNamespace(observations=[SimpleNamespace(compression_type=0)]))


def states(spec: UnityBehaviour, rows: Sequence[tuple[Any, ...]]) -> AgentStates:
    size = spec.sensors[0].shape[0]
    return AgentStates(
        ids=[row[0] for row in rows],
        obs={"place": np.array([[row[1]] * size for row in rows], np.float32).reshape(len(rows), size)},
        reward=np.array([row[2] for row in rows], np.float32),
        action_mask=spec.spec.action.all_allowed(len(rows)),
        interrupted=np.array([len(row) > 3 and row[3] for row in rows], np.bool_),
    )


def crash(where: str = "in a step") -> PlayerError:
    return PlayerError(
        "ended", f"the Unity player has ended {where}", where="the build", why="exit code 1\nlog", fix="read"
    )


class ScriptedPlayer:
    """Player whose messages are those of ``script``, one after the other; the last one stays."""

    def __init__(self, script: Sequence[Told | Exception], specs: Mapping[str, UnityBehaviour]) -> None:
        self._script, self._specs = list(script), specs
        self.env = self
        self.behaviours: dict[str, UnityBehaviour] = {}
        self.actions: list[dict[str, list[float]]] = []
        self.resets = 0
        self.closed, self.remark = False, ""
        self.file = None
        self._told: Told = {}
        self._set: dict[str, list[float]] = {}

    def reset(self) -> None:
        self.resets += 1
        self._next()

    def step(self) -> None:
        self.actions.append(self._set)
        self._set = {}
        self._next()

    def set_actions(self, name: str, action: Any) -> None:
        assert len(action.continuous) == len(self._told[name][0])
        self._set[name] = action.continuous[:, 0].round(3).tolist()

    def get_steps(self, name: str) -> tuple[AgentStates, AgentStates]:
        asking, ending = self._told.get(name, ((), ()))
        spec = self.behaviours[name]
        return states(spec, asking), states(spec, ending)

    def close(self) -> None:
        self.closed = True

    def _next(self) -> None:
        told = self._script.pop(0) if len(self._script) > 1 else self._script[0]
        if isinstance(told, Exception):
            raise told
        self._told = told
        self.behaviours |= {name: self._specs[name] for name in told}


class Stage:
    """The players of a test, by index and in the order of their starts.

    ``seeds`` and ``channels`` are what each was started with, in that order.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._starts: dict[int, list[ScriptedPlayer | Exception]] = {}
        self.players: list[ScriptedPlayer] = []
        self.seeds: list[int] = []
        self.channels: list[Sequence[Any]] = []
        monkeypatch.setattr(slot_module, "Player", self._open)

    def add(
        self,
        *script: Told | Exception,
        specs: Sequence[UnityBehaviour] = (),
        index: int = 0,
        starts: bool = True,
    ) -> None:
        """Add a start of a player; without ``starts`` it fails with the only entry of the script."""
        if not starts:
            assert isinstance(script[0], Exception)
            self._starts.setdefault(index, []).append(script[0])
            return
        player = ScriptedPlayer(script, {spec.name: spec for spec in specs or (behaviour(),)})
        self._starts.setdefault(index, []).append(player)
        self.players.append(player)

    def _open(
        self, request: EnvRequest, *, index: int, no_graphics: bool, seed: int, side_channels: Sequence[Any]
    ) -> ScriptedPlayer:
        self.seeds.append(seed)
        self.channels.append(side_channels)
        started = self._starts[index].pop(0)
        if isinstance(started, Exception):
            raise started
        return started
