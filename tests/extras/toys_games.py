"""Games of PettingZoo with a ledger of every transition, for tests; agents die, appear again, and mask."""

from __future__ import annotations

import time
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from pettingzoo import AECEnv, ParallelEnv

WIDTH = 4  # numbers of an observation: who, episode, time, what was done last


class Ledger:
    """Transitions as (agent, observation, action, reward, next observation, end), as the game sees them."""

    def __init__(self) -> None:
        self.lines: list[tuple[Any, ...]] = []
        self.begun: dict[str, list[Any]] = {}

    def ask(self, agent: str, obs: np.ndarray) -> None:
        self.begun[agent] = [agent, obs.tolist(), None, 0.0]

    def close(self, agent: str, obs: np.ndarray, end: str) -> None:
        if agent in self.begun:
            self.lines.append((*self.begun.pop(agent), obs.tolist(), end))


class Space:
    """Spaces and observations that both games have. seed: of the episode, which is in the observations."""

    possible_agents: ClassVar = ["red_0", "red_1", "blue"]
    metadata: ClassVar = {"render_modes": ["rgb_array"], "render_fps": 5, "name": "toy"}
    render_mode: str | None = None

    def __init__(
        self, render_mode: str | None = None, fail_at: int = -1, hang_at: int = -1, alike: bool = False
    ) -> None:
        self.render_mode, self.fail_at, self.hang_at, self.alike = render_mode, fail_at, hang_at, alike
        self.steps, self.ledger, self.agents, self.last_action = 0, Ledger(), [], {}

    def observation_space(self, agent: str) -> gym.Space[Any]:
        return gym.spaces.Box(-1e6, 1e6, (WIDTH,), np.float64)

    def action_space(self, agent: str) -> gym.Space[Any]:
        return gym.spaces.Discrete(3) if agent != "blue" or self.alike else gym.spaces.Box(-2, 2, (2,))

    def render(self) -> np.ndarray:
        return np.full((8, 8, 3), self.time, np.uint8)

    def close(self) -> None:
        self.agents = []

    def begin(self, seed: int) -> None:
        self.rng, self.time, self.seed = np.random.default_rng(seed), 0, seed % 1000
        self.last_action, self.ledger.begun = {}, {}

    def look(self, agent: str) -> np.ndarray:
        done = float(np.sum(self.last_action.get(agent, 0)))
        return np.array([self.possible_agents.index(agent), self.seed, self.time, done])

    def count_step(self) -> None:
        self.steps += 1
        self.time += 1
        if self.steps == self.fail_at:
            raise ZeroDivisionError("the toy is broken")
        if self.steps == self.hang_at:
            time.sleep(60.0)


class Crowd(Space, ParallelEnv):
    """All act at once; agents die at random, may come back, and an episode lasts at most twelve steps."""

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        self.begin(seed or 0)
        self.agents = ["red_1", "blue"] if self.rng.random() < 0.5 else [*self.possible_agents]
        return self._shown(self.agents), {}

    def _shown(self, agents: list[str]) -> dict[str, np.ndarray]:
        seen = {agent: self.look(agent) for agent in agents}
        for agent in self.agents:
            self.ledger.ask(agent, seen[agent])
        return seen

    def step(self, actions: dict[str, Any]) -> tuple[dict[str, Any], ...]:
        assert set(actions) == set(self.agents), "exactly those that are alive act"
        self.count_step()
        rewards, dead, cut = {}, {}, {}
        for agent, action in actions.items():
            self.last_action[agent] = action
            rewards[agent] = float(np.sum(action) + self.rng.integers(9))
            dead[agent], cut[agent] = bool(self.rng.random() < 0.15), self.time == 12
            line = self.ledger.begun[agent]
            line[2], line[3] = np.asarray(action).tolist(), rewards[agent]
        over = [agent for agent in actions if dead[agent] or cut[agent]]
        for agent in actions:
            end = "terminated" if dead[agent] else "truncated" if cut[agent] else ""
            self.ledger.close(agent, self.look(agent), end)
        absent = [agent for agent in self.possible_agents if agent not in actions]
        self.agents = [agent for agent in actions if agent not in over]
        if self.agents:
            self.agents += [agent for agent in absent if self.rng.random() < 0.3]
        shown = self._shown([*over, *self.agents])
        infos = {agent: {"time": self.time, "reward_extra": 1.0} for agent in shown}
        return shown, rewards, dead, cut, infos


class Ring(Space, AECEnv):
    """One after another; rewards fall on all at any time, agents die at their own or another's turn."""

    def observation_space(self, agent: str) -> gym.Space[Any]:
        mask = gym.spaces.Box(0, 1, (3,), np.int8)
        seen = super().observation_space(agent)
        return gym.spaces.Dict({"observation": seen, "action_mask": mask}) if self._masks(agent) else seen

    def _masks(self, agent: str) -> bool:
        return agent != "blue" or self.alike

    def observe(self, agent: str) -> Any:
        seen = self.look(agent)
        if not self._masks(agent):
            return seen
        mask = np.zeros(3, np.int8)  # as games of PettingZoo do for an agent that must not act
        if agent == self.agent_selection:
            mask[:] = [(self.time + k) % 3 != 0 for k in range(3)]
        return {"observation": seen, "action_mask": mask}

    def reset(self, seed: int | None = None, options: Any = None) -> None:
        self.begin(seed or 0)
        self.agents = [*self.possible_agents]
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations, self.truncations = (
            dict.fromkeys(self.agents, False),
            dict.fromkeys(self.agents, False),
        )
        self.infos = {agent: {} for agent in self.agents}
        self._skip_agent_selection = None
        self.agent_selection = self.agents[int(self.rng.integers(3))]
        self._asked()

    def _asked(self) -> None:
        """Write to the ledger what the selected agent gets."""
        if not self.agents:
            return
        agent = self.agent_selection
        if agent in self.ledger.begun:
            self.ledger.begun[agent][3] = self._cumulative_rewards[agent]
        end = "terminated" if self.terminations[agent] else "truncated" if self.truncations[agent] else ""
        self.ledger.close(agent, self.look(agent), end)
        if not end:
            self.ledger.ask(agent, self.look(agent))

    def step(self, action: Any) -> None:
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            self._was_dead_step(action)
            self._asked()
            return
        if self._masks(agent):
            assert (self.time + int(action)) % 3 != 0, "a forbidden choice"
        self.ledger.begun[agent][2] = np.asarray(action).tolist()
        self._cumulative_rewards[agent] = 0.0
        self.last_action[agent] = action
        self.count_step()
        self.rewards = {each: float(self.rng.integers(-3, 4)) for each in self.agents}
        self._accumulate_rewards()
        for each in self.agents:
            self.terminations[each] = self.terminations[each] or bool(self.rng.random() < 0.1)
            self.truncations[each] = self.time == 15
        self.infos = {each: {"time": self.time} for each in self.agents}
        after = self.agents[(self.agents.index(agent) + 1) % len(self.agents)]
        self.agent_selection = after
        self._deads_step_first()
        if self.terminations.get(after) or self.truncations.get(after):
            alive = [each for each in self.agents if not (self.terminations[each] or self.truncations[each])]
            self._skip_agent_selection = alive[0] if alive else None
        self._asked()
