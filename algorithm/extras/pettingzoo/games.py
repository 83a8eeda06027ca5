"""One PettingZoo environment, stepped for the agents that need an action: all at once, or by turns."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pkgutil import iter_modules
from typing import Any, NamedTuple

from typing_extensions import override

from algorithm.core.errors import EnvError, UserError, described
from algorithm.core.extras import needs
from algorithm.core.steps import Array, Float
from algorithm.core.system.display import has_display
from algorithm.env.env_id import advice, import_source, resolve_env_id, suggest_name
from algorithm.env.outputs import EpisodeInfos, SpaceMismatchError, as_bool, as_number, present
from algorithm.env.pool.process_exit import exits_as_errors
from algorithm.env.request import EnvRequest
from algorithm.env.sources import GameSource
from algorithm.extras.pettingzoo.grouping import Roster, Sight

IDLE = 1_000
"""Number of times in a row that an environment may do something without needing an action."""

_MAKERS = ("parallel_env", "env", "raw_env")
"""Functions of PettingZoo's modules that make an environment, the preferred one first."""


class Ending(NamedTuple):
    """The end of an agent's episode."""

    sight: Sight
    terminated: bool
    truncated: bool


@dataclass
class Turn:
    """Results of a reset or step, by index of the agent; the episode is over if none is ``awaiting``.

    awaiting: observations of the agents that need an action now
    ended:  agents whose episodes ended, after at least one action
    reward: of each agent in either that has acted, since its last action
    infos:  numbers of that agent's episode, by key
    """

    awaiting: dict[int, Sight] = field(default_factory=dict)
    ended: dict[int, Ending] = field(default_factory=dict)
    reward: dict[int, float] = field(default_factory=dict)
    infos: dict[int, dict[str, float]] = field(default_factory=dict)


class Game:
    """One environment in which several agents act.

    open: indices of the agents that have needed an action and whose episodes have not ended
    All methods raise whatever the environment raises, and SpaceMismatchError for wrong results.
    """

    def __init__(
        self,
        env: Any,  # noqa: ANN401 - PettingZoo brings no types
        request: EnvRequest,
    ) -> None:
        self.env, self.roster = env, Roster(env, request)
        self._options = dict(request.options) if request.options else None
        self._keys = request.infos
        self._kept = isinstance(request.env, GameSource) and request.env.kept
        self._infos: dict[int, EpisodeInfos] = {}
        self.open: set[int] = set()

    def close(self) -> None:
        """Release the environment."""
        if not self._kept:
            self.env.close()

    def reset(self, seed: int) -> Turn:
        """Start an episode; no agent in the result has ended."""
        self.open, turn = set(), Turn()
        self._start(seed, turn)
        return self._checked(turn)

    def step(self, actions: Mapping[int, Float]) -> Turn:
        """Take flat actions of all agents that the last turn has ``awaiting``."""
        turn = Turn()
        adapters, names = self.roster.adapters, self.roster.names
        self._act({names[k]: adapters[k].actions.to_env(flat) for k, flat in actions.items()}, turn)
        return self._checked(turn)

    def _start(self, seed: int, turn: Turn) -> None:
        """Reset the environment and fill ``turn``."""
        raise NotImplementedError

    def _act(self, actions: Mapping[Any, Any], turn: Turn) -> None:
        """Step the environment with actions by the agents' names, and fill ``turn``."""
        raise NotImplementedError

    def _checked(self, turn: Turn) -> Turn:
        """Return the turn without ends of agents that have not acted, and continue from it."""
        turn.ended = {k: ending for k, ending in turn.ended.items() if k in self.open}
        here = {self._index(name) for name in self.env.agents}
        if gone := sorted(self.open - here - turn.ended.keys()):
            raise SpaceMismatchError(
                f"agent {self.roster.names[gone[0]]} is not in `agents` any more, and was neither terminated "
                "nor truncated"
            )
        self.open = (self.open - turn.ended.keys()) | turn.awaiting.keys()
        return turn

    def _index(self, name: Any) -> int:  # noqa: ANN401 - any hashable object
        """Return the index of an agent. Raises SpaceMismatchError for one that is not possible."""
        if name not in self.roster.index:
            raise SpaceMismatchError(f"agent {name} is not in possible_agents")
        return self.roster.index[name]

    def _count(self, k: int, reward: Any, info: Mapping[str, Any], turn: Turn) -> None:  # noqa: ANN401
        """Add reward and info of agent k to the turn, where it has acted; else its episode begins."""
        if k not in self.open or k in turn.ended:
            self._infos[k] = EpisodeInfos(self._keys)
            return
        turn.reward[k] = as_number(reward, f"the reward of {self.roster.names[k]}")
        if self._keys:
            self._infos[k].add(info)
            turn.infos[k] = present(self._keys, self._infos[k].values[0, :-1])


class ParallelGame(Game):
    """An environment in which all agents that are alive act at once."""

    @override
    def _start(self, seed: int, turn: Turn) -> None:
        obs, infos = self.env.reset(seed=seed, options=self._options)
        self._see(obs, infos, (), turn)

    @override
    def _act(self, actions: Mapping[Any, Any], turn: Turn) -> None:
        obs, rewards, terminated, truncated, infos = self.env.step(actions)
        over = {name for flags in (terminated, truncated) for name, flag in flags.items() if flag}
        for name in actions:
            k, info = self._index(name), infos.get(name, {})
            self._count(k, _entry(rewards, name, "reward"), info, turn)
            end = [as_bool(_entry(flags, name, "end"), "an end") for flags in (terminated, truncated)]
            if any(end):
                sight = self.roster.sight(k, _entry(obs, name, "observation"), info, over=True)
                turn.ended[k] = Ending(sight, *end)
        self._see(obs, infos, over, turn)

    def _see(
        self, obs: Mapping[Any, Any], infos: Mapping[Any, Any], over: Collection[Any], turn: Turn
    ) -> None:
        """Add what agents that are alive observe to the turn, and what all observe. over: ended agents."""
        live = {self._index(name): name for name in self.env.agents if name not in over}
        for k, name in live.items():
            if k not in self.open:
                self._count(k, 0.0, {}, turn)
            raw = _entry(obs, name, "observation")
            turn.awaiting[k] = self.roster.sight(k, raw, infos.get(name, {}), over=False)
        if self.roster.joint:
            alive = {k: sight.obs for k, sight in turn.awaiting.items()}
            every = {**{k: ending.sight.obs for k, ending in turn.ended.items()}, **alive}
            for k, sight in turn.awaiting.items():
                turn.awaiting[k] = self.roster.with_all(k, sight, alive)
            for k, ending in turn.ended.items():
                turn.ended[k] = ending._replace(sight=self.roster.with_all(k, ending.sight, every))


class TurnGame(Game):
    """An environment in which the agents act one after another, each with a reward since its last action."""

    @override
    def _start(self, seed: int, turn: Turn) -> None:
        self.env.reset(seed=seed, options=self._options)
        self._go_on(turn)

    @override
    def _act(self, actions: Mapping[Any, Any], turn: Turn) -> None:
        (action,) = actions.values()
        self.env.step(action)
        self._go_on(turn)

    def _go_on(self, turn: Turn) -> None:
        """Pass over the agents that have ended, up to the next one that needs an action."""
        dead: dict[int, Mapping[str, Array]] = {}
        for _ in range(IDLE):
            if not self.env.agents:
                return
            raw, reward, *flags, info = self.env.last()
            name = self.env.agent_selection
            k, end = self._index(name), [as_bool(flag, f"the end of {name}") for flag in flags]
            self._count(k, reward, info, turn)
            sight = self.roster.sight(k, raw, info, over=any(end))
            others = self._others(name, alive=not any(end)) if self.roster.joint else {}
            if not any(end):
                turn.awaiting[k] = self.roster.with_all(k, sight, others)
                return
            turn.ended[k] = Ending(self.roster.with_all(k, sight, {**dead, **others}), *end)
            dead[k] = sight.obs
            self.env.step(None)
        raise SpaceMismatchError(f"{IDLE:,} agents in a row had ended, and none needed an action")

    def _others(self, name: Any, *, alive: bool) -> dict[int, Mapping[str, Array]]:  # noqa: ANN401 - hashable
        """Return the other agents' observations. alive: only of those that have not ended."""
        env = self.env
        over = {n for flags in (env.terminations, env.truncations) for n, flag in flags.items() if flag}
        others = [n for n in env.agents if n != name and not (alive and n in over)]
        return {self._index(n): self.roster.observe(self._index(n), env.observe(n)) for n in others}


def make_game(request: EnvRequest, index: int) -> Game:
    """Make the environment with that index. Raises EnvError, and UsageError for a missing library."""
    kwargs, name = dict(request.env_args), request.env_name
    if not index and (request.video or request.render):
        kwargs["render_mode"] = "rgb_array" if request.video else "human"
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    if request.video and not has_display():
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # SDL fails without a screen
    try:
        with exits_as_errors():
            source = request.env
            make = (
                source.make
                if isinstance(source, GameSource)
                else _maker(resolve_env_id(name, request.folder))
            )
            env = make(**kwargs)
    except UserError:
        raise
    except Exception as error:
        raise EnvError(
            "the environment could not be made",
            where=f"{name} with {kwargs}" if kwargs else name,
            why=described(error),
            fix=_missing(error, name) or advice(error, "check base_config.env_name and env_args"),
        ) from error
    with needs("pettingzoo", "env_type PETTINGZOO"):
        from pettingzoo import AECEnv, ParallelEnv
    if not isinstance(env, (AECEnv, ParallelEnv)):
        raise EnvError(
            "the environment is not one of PettingZoo",
            where=name,
            why=f"a {type(env).__name__} is neither a ParallelEnv nor an AECEnv",
            fix="derive it from one of them, or set base_config.env_type to its kind",
        )
    kind = ParallelGame if isinstance(env, ParallelEnv) else TurnGame
    return kind(env, request)


def _missing(error: Exception, name: str) -> str:
    """Return advice on a game that PettingZoo does not have, or that needs another package; else ""."""
    package, _, game = name.rpartition(".")
    spec = sys.modules.get(package)
    if not isinstance(error, ModuleNotFoundError) or spec is None or ":" in name:
        return ""
    if error.name == name:
        games = [each.name for each in iter_modules(getattr(spec, "__path__", ()))]
        return suggest_name(game, [each for each in games if re.search(r"_v\d+$", each)])
    family = package.partition(".")[2]
    return f'{sys.executable} -m pip install "pettingzoo[{family}]"'


def _maker(name: str) -> Any:  # noqa: ANN401 - a class or function of the user
    """Return the class or function that a name stands for: ``module:Class``, or a module of PettingZoo."""
    source, colon, attribute = name.rpartition(":")
    module = import_source(source if colon else name)
    wanted = (attribute,) if colon else _MAKERS
    make = next((getattr(module, each) for each in wanted if hasattr(module, each)), None)
    if make is None:
        public = [key for key, value in vars(module).items() if callable(value) and key[0] != "_"]
        raise EnvError(
            f"{module.__name__} has no {' and no '.join(wanted)}",
            where=f"base_config.env_name: {name}",
            why=f"it has {', '.join(public) or 'no class and no function'}",
            fix="name a class or a function: module:Class, file.py:Class",
        )
    return make


def _entry(values: Mapping[Any, Any], name: Any, what: str) -> Any:  # noqa: ANN401 - whatever was returned
    """Return the value of an agent. Raises SpaceMismatchError if it is missing."""
    try:
        return values[name]
    except (KeyError, TypeError) as error:
        raise SpaceMismatchError(f"step or reset has returned no {what} of agent {name}") from error
