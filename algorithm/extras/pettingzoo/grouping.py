"""Agents of a PettingZoo environment: the behaviours that they share, their teams, and what all observe."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import numpy as np

from algorithm.core.errors import COMMON_BLOCK, EnvError, UsageError
from algorithm.core.spec import OBS_COLUMNS, AgentSpec, ObsSpec
from algorithm.core.steps import Array, Bool, Float
from algorithm.core.wording import counted
from algorithm.env.adapter import Adapter
from algorithm.env.request import EnvRequest
from algorithm.env.spaces import Space
from algorithm.run.experience.requests import JOINT

_KEY = "base_config.pettingzoo_args"
_NUMBER = re.compile(r"[_-]?\d+$")  # of an agent, at the end of its name


class Sight(NamedTuple):
    """Observations of one agent, with its mask."""

    obs: dict[str, Array]  # name -> [1, ...]
    mask: Bool | None  # [ΣN] true where a choice is allowed; None for all


class Roster:
    """The possible agents of an environment by index, with spaces, behaviours and teams.

    names:      of the agents, in the order of ``possible_agents``
    behaviours: name of each agent's behaviour
    teams:      number of each agent's team
    specs:      behaviour -> observations and actions
    Raises EnvError for an environment without agents or with unsupported spaces, and UsageError for patterns
    that do not fit its agents.
    """

    def __init__(self, env: Any, request: EnvRequest) -> None:  # noqa: ANN401 - PettingZoo brings no types
        self.names: list[Any] = list(getattr(env, "possible_agents", ()))
        if not self.names:
            raise EnvError(
                "the environment has no agents",
                where=request.env_name,
                why="its possible_agents is missing or empty",
                fix="set self.possible_agents in __init__ to the names of all agents that may appear",
            )
        self.index = {name: k for k, name in enumerate(self.names)}
        self.adapters = [
            Adapter(env.observation_space(name), env.action_space(name), f"{request.env_name}, agent {name}")
            for name in self.names
        ]
        texts = [str(name) for name in self.names]
        spaces = [(each.observation_space, each.action_space) for each in self.adapters]
        self.behaviours = behaviours_of(texts, spaces, request.pettingzoo.share)
        self.teams = teams_of(texts, self.behaviours, request.pettingzoo.teams)
        if request.teams and len(set(self.teams)) == 1:
            raise UsageError(
                "self-play needs two teams, and all agents are in one",
                where=f"{_KEY}.teams",
                why=f"the agents are {', '.join(texts)}",
                fix="give them different teams, or set self_play.window: 0",
            )
        specs = [adapter.spec for adapter in self.adapters]
        self._widths = [_width(spec, name) for spec, name in zip(specs, texts, strict=True)] * request.joint
        if request.joint:
            specs = [_with_joint(spec, sum(self._widths)) for spec in specs]
        self.specs: dict[str, AgentSpec] = dict(zip(self.behaviours, specs, strict=True))

    @property
    def joint(self) -> bool:
        """Whether each agent also observes what all observe."""
        return bool(self._widths)

    @property
    def text(self) -> str:
        """Behaviours with their agents and teams, for messages: ``player (player_1 of team 0, …)``."""
        agents: dict[str, list[str]] = {}
        for name, behaviour, team in zip(self.names, self.behaviours, self.teams, strict=True):
            agents.setdefault(behaviour, []).append(f"{name} of team {team}")
        return "; ".join(f"{behaviour} ({', '.join(names)})" for behaviour, names in agents.items())

    def sight(self, k: int, raw: Any, info: Mapping[str, Any], *, over: bool) -> Sight:  # noqa: ANN401 - any space
        """Convert what agent k observes. over: its episode has ended. Raises SpaceMismatchError."""
        adapter = self.adapters[k]
        return Sight(self.observe(k, raw), adapter.masks.read(raw, info, over=over))

    def observe(self, k: int, raw: Any) -> dict[str, Array]:  # noqa: ANN401 - any space
        """Convert the observation of agent k, [1, ...] each. Raises SpaceMismatchError."""
        return self.adapters[k].observations.read_each([raw])

    def with_all(self, k: int, sight: Sight, others: Mapping[int, Mapping[str, Array]]) -> Sight:
        """Return the sight of agent k with what all observe: it first, then the others by their indices.

        others: observations of the agents that are alive; the numbers of all others are 0
        """
        if not self.joint:
            return sight
        parts = []
        for j in (k, *(j for j in range(len(self.names)) if j != k)):
            obs = sight.obs if j == k else others.get(j)
            parts.append(np.zeros(self._widths[j], np.float32) if obs is None else self._flat(j, obs))
        return sight._replace(obs={**sight.obs, JOINT: np.concatenate(parts)[None]})

    def _flat(self, k: int, obs: Mapping[str, Array]) -> Float:
        """Return the observations of agent k as one vector; a choice becomes a one-hot."""
        spec = self.adapters[k].spec.obs
        parts = []
        for name, counts in zip(spec.names, spec.categories, strict=True):
            flat = obs[name].ravel()
            if counts:
                parts += [
                    np.eye(n, dtype=np.float32)[int(value)] for n, value in zip(counts, flat, strict=True)
                ]
            else:
                parts.append(flat.astype(np.float32))
        return np.concatenate(parts)


def _width(spec: AgentSpec, agent: str) -> int:
    """Return the numbers of an agent's observations in what all observe. Raises UsageError for an image."""
    if spec.obs.images or JOINT in spec.obs.names:
        name = next(iter(spec.obs.images), JOINT)
        raise UsageError(
            f"what all agents observe cannot be one vector: {agent} observes {name!r}",
            where=f"{COMMON_BLOCK}.critic_observations: [{JOINT}]",
            why=f"{name!r} is {'an image' if name in spec.obs.images else 'the name of that vector'}",
            fix=f"leave {JOINT!r} out, or change that observation in the environment",
        )
    shapes = zip(spec.obs.shapes, spec.obs.categories, strict=True)
    return sum(sum(counts) if counts else int(np.prod(shape)) for shape, counts in shapes)


def _with_joint(spec: AgentSpec, width: int) -> AgentSpec:
    """Return the spec of an agent that also observes a vector of ``width`` numbers, what all observe."""
    joint = ObsSpec((JOINT,), ((width,),), ("float32",))
    columns = {column: getattr(spec.obs, column) + getattr(joint, column) for column in OBS_COLUMNS}
    return replace(spec, obs=ObsSpec(**columns))


def behaviours_of(
    agents: Sequence[str], spaces: Sequence[tuple[Space, Space]], share: Mapping[str, str] | None
) -> list[str]:
    """Return the behaviour of each agent.

    share: pattern -> behaviour; None: agents of equal spaces whose names differ by a number only share one
    Raises UsageError for a pattern without an agent, a name that is taken, and agents of one behaviour with
    different spaces.
    """
    if share is None:
        stems = [_NUMBER.sub("", agent) or "agent" for agent in agents]
        kinds = list(zip(stems, spaces, strict=True))
        alike = [
            stems.count(stem) > 1 and all(kind[1] == space for kind in kinds if kind[0] == stem)
            for stem, space in kinds
        ]
        return [stem if same else agent for stem, same, agent in zip(stems, alike, agents, strict=True)]
    _refuse_unused(share, agents, "share")
    matches = [_match(share, agent) for agent in agents]
    names = [agent if name is None else name for agent, name in zip(agents, matches, strict=True)]
    for k, name in enumerate(names):
        first = names.index(name)
        if (matches[first] is None) != (matches[k] is None):
            raise UsageError(
                f"the behavior {name!r} has the name of an agent that does not belong to it",
                where=f"{_KEY}.share",
                why=f"agent {name!r} matches no pattern, and has a behavior of its own name",
                fix="choose another name for the behavior",
            )
        if spaces[first] != spaces[k]:
            raise UsageError(
                f"{agents[first]} and {agents[k]} cannot share the behavior {name!r}: their spaces differ",
                where=f"{_KEY}.share",
                why="\n".join(f"{agents[j]}: {spaces[j][0]}, actions {spaces[j][1]}" for j in (first, k)),
                fix="let only agents of equal spaces share a behavior",
            )
    return names


def teams_of(agents: Sequence[str], behaviours: Sequence[str], teams: Mapping[str, int] | None) -> list[int]:
    """Return the team of each agent.

    teams: pattern -> number; None: each behaviour is a team; each agent, if there is only one behaviour
    Raises UsageError for a pattern without an agent, and an agent without a pattern.
    """
    if teams is None:
        names = list(dict.fromkeys(behaviours))
        return [names.index(name) for name in behaviours] if len(names) > 1 else list(range(len(agents)))
    _refuse_unused(teams, agents, "teams")
    numbers = [_match(teams, agent) for agent in agents]
    if without := [agent for agent, number in zip(agents, numbers, strict=True) if number is None]:
        raise UsageError(
            f"{counted(len(without), 'agent')} without a team: {', '.join(without)}",
            where=f"{_KEY}.teams",
            why=f"the patterns are {', '.join(teams)}",
            fix="add a pattern that matches, or leave teams out: each behavior is a team then",
        )
    return [number for number in numbers if number is not None]


def _match(patterns: Mapping[str, Any], agent: str) -> Any:  # noqa: ANN401 - a behaviour or a number
    """Return the value of the first pattern that an agent matches; None without one."""
    return next((value for pattern, value in patterns.items() if fnmatchcase(agent, pattern)), None)


def _refuse_unused(patterns: Iterable[str], agents: Sequence[str], key: str) -> None:
    """Raise UsageError for a pattern that matches no agent."""
    for pattern in patterns:
        if not any(fnmatchcase(agent, pattern) for agent in agents):
            raise UsageError(
                f"no agent matches {pattern!r}",
                where=f"{_KEY}.{key}",
                why=f"the agents are {', '.join(agents)}",
                fix="correct the pattern, or leave it out",
            )
