"""Games of teams, by ``env_type: tests.extras.league.toys_teams:HigherNumber``."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from algorithm.core.data import Bool, Float, State
from algorithm.core.spec import ActionSpec, AgentSpec, ObsSpec
from algorithm.env.base import Observation, ResetResult, StepResult, VecEnv
from algorithm.env.request import EnvRequest


class HigherNumber(VecEnv):
    """Each agent chooses 0, 1 or 2 at every step; at the end the highest sum has 1, all lower ones −1.

    teams:   number of agents, each a team with that number times ten; equal highest sums get 0
    length:  choices of an agent in a game; 0: games do not end
    bonus:   points of the last team
    in_turn: one agent is asked after the other, and first appears when it is
    choices: numbers to choose from
    """

    time_limit = fps = None
    render_modes = ()

    def __init__(self, request: EnvRequest) -> None:
        args: dict[str, Any] = request.env_args or {}
        self.teams, self.length = args.get("teams", 2), args.get("length", 1)
        self.bonus, self.in_turn = args.get("bonus", 0), args.get("in_turn", False)
        self.one_team = args.get("one_team", False)
        self.n, self.arrangement = request.n, f"{request.n} tables"
        self.agents = self.n * self.teams
        action = ActionSpec(branches=(args.get("choices", 3),))
        self.specs = {"Player": AgentSpec(ObsSpec(("obs",), ((1,),), ("float32",)), action)}
        self.resets = 0

    def reset(
        self, indices: Sequence[int] | None = None, *, episode: int | None = None
    ) -> Mapping[str, ResetResult]:
        self.sums, self.asked, self.taken = np.zeros(self.agents), 0, 0
        self.resets += 1
        return {"Player": ResetResult(**vars(self._seen([0] if self.in_turn else range(self.agents))))}

    def step(self, actions: Mapping[str, Float]) -> Mapping[str, StepResult]:
        chosen = actions["Player"].argmax(axis=-1)
        movers = [self.asked] if self.in_turn else range(self.agents)
        self.sums[movers] += chosen
        self.asked = (self.asked + 1) % self.agents if self.in_turn else 0
        self.taken += self.asked == 0
        if self.taken != self.length or self.asked:
            asked = [self.asked] if self.in_turn else range(self.agents)
            return {"Player": self._result(asked, np.zeros(len(asked)), over=False)}
        result = self._result(range(self.agents), self._rewards(), over=True)
        self.sums[:] = self.taken = 0
        return {"Player": result}

    def _rewards(self) -> Float:
        sums = self.sums.reshape(self.n, self.teams) + np.eye(self.teams)[-1] * self.bonus
        best = sums == sums.max(axis=1, keepdims=True)
        alone = best & (best.sum(axis=1, keepdims=True) == 1)
        return np.where(best, np.where(alone, 1.0, 0.0), -1.0).ravel()

    def _seen(self, agents: Sequence[int]) -> Observation:
        n, spec = len(agents), self.specs["Player"]
        return Observation(
            ids=np.array(agents), obs=spec.obs.zeros(n), action_mask=spec.action.all_allowed(n)
        )

    def _result(self, agents: Sequence[int], reward: Float, *, over: bool) -> StepResult:
        ends: Bool = np.full(len(agents), over)
        return StepResult(
            **vars(self._seen(agents)),
            reward=reward,
            terminated=ends,
            truncated=~ends & False,
            final=self._seen(agents) if over else None,
            left=np.array(agents) > 0 if over and self.in_turn else None,
        )

    def environments_of(self, agents: Collection[int]) -> list[int]:
        return sorted({agent // self.teams for agent in agents})

    def team_of(self, agent: int) -> int:
        return 0 if self.one_team else agent % self.teams * 10

    def state(self) -> State:
        return State({"sums": self.sums}, {"taken": self.taken, "asked": self.asked})

    def resume(self, state: State) -> Mapping[int, str]:
        self.sums = state.arrays["sums"]
        self.taken, self.asked = state.meta["taken"], state.meta["asked"]
        return {}

    def close(self) -> None:
        pass
