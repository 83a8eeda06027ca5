"""The long look: episodes of random actions, as the warm-up of a training takes them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from algorithm.data import Bool, Float
from algorithm.env.checks.context import Copy, Lab, Start, Taken
from algorithm.env.checks.finding import Finding, FlawError, error
from algorithm.env.checks.running_stats import Moments, Record
from algorithm.env.observations import check_shape
from algorithm.env.single import BrokenSpaceError, number
from algorithm.env.spaces import Leaf, leaves
from algorithm.spec import AgentSpec

_WATCHED = 200  # steps in which an observation is looked at once more after the next one


class Ended(NamedTuple):
    """An episode that is over."""

    length: int
    terminated: bool
    truncated: bool  # by the environment itself; both are false where our own length limit cut it off


@dataclass
class Survey:
    """What was seen.

    broken:  what first did not fit the announced space, and where; how often it was so is ``num_broken``
    reused:  names of observations whose arrays changed with the next step
    open:    steps of the episode that was not over at the end
    reward_at: where a reward was first not finite; ``reward_kind`` what was first no plain number
    flaw:    what ended the look early
    """

    name: str = ""
    spec: AgentSpec | None = None
    time_limit: int | None = None
    actions: list[Leaf] = field(default_factory=list)
    render_modes: list[str] = field(default_factory=list)
    records: dict[str, Record] = field(default_factory=dict)
    rewards: Moments = field(default_factory=lambda: Moments(()))
    nonzero: int = 0
    reward_at: str = ""
    reward_kind: str = ""
    broken: str = ""
    num_broken: int = 0
    reused: set[str] = field(default_factory=set)
    episodes: list[Ended] = field(default_factory=list)
    steps: int = 0
    open: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    calls: dict[str, int] = field(default_factory=dict)
    flaw: Finding | None = None


def survey(lab: Lab) -> Survey:
    """Look until a limit is reached or the environment fails."""
    found = Survey()
    try:
        with lab.copy() as copy:
            found.name, found.spec, found.time_limit = copy.name, copy.spec, copy.time_limit
            found.actions = leaves(copy.env.action_space, "action", copy.name)
            found.render_modes = list(copy.env.metadata.get("render_modes") or [])
            found.seconds, found.calls = copy.seconds, copy.calls
            _Look(lab, copy, found).play()
    except FlawError as flaw:
        found.flaw = flaw.finding
    return found


def random_action(copy: Copy, rng: np.random.Generator, mask: Bool) -> Float:
    """A flat action [A] as the warm-up draws it."""
    action, _, _ = copy.spec.action.random(rng, mask[None])
    flat: Float = action[0]
    return flat


class _Look:
    def __init__(self, lab: Lab, copy: Copy, found: Survey) -> None:
        self._lab, self._copy, self._found = lab, copy, found
        # A mask among the observations is no observation: the adapter's own names say which leaves count.
        known = {leaf.name or "obs": leaf for leaf in leaves(copy.env.observation_space, "observation", "")}
        found.records = {name: Record(name, known[name]) for name in copy.spec.obs.names}
        self._last: dict[str, tuple[Any, Any]] = {}  # name -> what was handed out, and a copy of it

    def play(self) -> None:
        lab, copy, found = self._lab, self._copy, self._found
        rng, over = np.random.default_rng(0), lab.deadline(1.0)
        while found.steps < lab.limits.steps and not over():
            now: Start | Taken = copy.reset(lab.setting.seed_of(len(found.episodes)))
            self._last = {}
            self._see(now.obs)
            found.open = 0
            while found.steps < lab.limits.steps and not over():
                now = copy.step(random_action(copy, rng, now.mask))
                found.steps += 1
                found.open += 1
                self._see(now.obs)
                self._reward(now.reward)
                if self._ends(now):
                    break

    def _ends(self, now: Taken) -> bool:
        if not (now.terminated or now.truncated or self._found.open == self._lab.setting.length_limit):
            return False
        self._found.episodes.append(Ended(self._found.open, now.terminated, now.truncated))
        self._found.open = 0
        return True

    def _see(self, obs: Any) -> None:  # noqa: ANN401 - a space may hold anything
        found, place = self._found, self._copy.place
        try:
            values = self._copy.adapter.observations.read(obs)
            for name, shape, _ in self._copy.spec.obs.items():
                check_shape(name, np.shape(values[name]), shape)
                record = found.records[name]
                record.add(_picked(obs, record.path), values[name], place)
        except (BrokenSpaceError, ValueError, TypeError) as failure:
            found.num_broken += 1
            found.broken = found.broken or f"{failure}, {place}"
            return
        if found.steps <= _WATCHED:
            self._watch(obs)

    def _watch(self, obs: Any) -> None:  # noqa: ANN401 - a space may hold anything
        """Notice arrays that were handed out one step ago and have changed since."""
        for name, (handed, then) in self._last.items():
            if not np.array_equal(handed, then, equal_nan=then.dtype.kind == "f"):
                self._found.reused.add(name)
        handed_out = {name: _picked(obs, record.path) for name, record in self._found.records.items()}
        self._last = {
            name: (value, value.copy()) for name, value in handed_out.items() if isinstance(value, np.ndarray)
        }

    def _reward(self, reward: Any) -> None:  # noqa: ANN401 - what the environment returned
        found, place = self._found, self._copy.place
        if np.ndim(reward) or not isinstance(reward, int | float | np.generic):
            found.reward_kind = found.reward_kind or f"{type(reward).__name__} {reward!r:.40}, {place}"
        try:
            value = number(reward, "the reward")
        except BrokenSpaceError as failure:
            raise FlawError(
                error(
                    "a reward is no number",
                    where=place,
                    why=f"{type(failure).__name__}: {failure}",
                    fix="return one number, such as float(reward)",
                )
            ) from failure
        if not np.isfinite(np.float32(value)):
            found.reward_at = found.reward_at or f"it is {value}, {place}"
            return
        found.nonzero += value != 0
        found.rewards.add(np.asarray(value))


def _picked(obs: Any, path: tuple[Any, ...]) -> Any:  # noqa: ANN401 - a space may hold anything
    for key in path:
        obs = obs[key]
    return obs
