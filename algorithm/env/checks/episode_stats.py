"""Statistics of episodes with random actions, as in the warm-up of a training."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from algorithm.core.data import Bool, Float
from algorithm.core.errors import described
from algorithm.core.spec import AgentSpec
from algorithm.env.checks.context import CheckContext, EnvInstance, ResetOutput, StepOutput
from algorithm.env.checks.finding import Finding, FindingError, error
from algorithm.env.checks.running_stats import ObsStats, RunningMoments
from algorithm.env.observations import check_shape
from algorithm.env.single import Remark, SpaceMismatchError, as_number
from algorithm.env.spaces import Leaf, leaves
from algorithm.env.wrappers import running_statistics

_REUSE_STEPS = 200  # steps in which an observation is compared again after the next one


class EpisodeEnd(NamedTuple):
    """An episode that is over."""

    length: int
    terminated: bool
    truncated: bool  # by the environment itself; both are false at the length limit of the check


@dataclass
class EpisodeStats:
    """Statistics of random episodes.

    broken:  first observation outside the announced space, and where; ``num_broken`` counts them
    reused:  names of observations whose arrays changed with the next step
    wrappers: what there is to say of the wrappers
    open:    steps of the episode that was not over at the end
    reward_at: first reward that is not finite; ``reward_kind`` first that is not a plain number
    flaw:    the finding that ended the episodes early
    """

    name: str = ""
    spec: AgentSpec | None = None
    time_limit: int | None = None
    actions: list[Leaf] = field(default_factory=list)
    render_modes: list[str] = field(default_factory=list)
    wrappers: tuple[Remark, ...] = ()
    records: dict[str, ObsStats] = field(default_factory=dict)
    rewards: RunningMoments = field(default_factory=lambda: RunningMoments(()))
    nonzero: int = 0
    reward_at: str = ""
    reward_kind: str = ""
    broken: str = ""
    num_broken: int = 0
    reused: set[str] = field(default_factory=set)
    episodes: list[EpisodeEnd] = field(default_factory=list)
    steps: int = 0
    open: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    calls: dict[str, int] = field(default_factory=dict)
    flaw: Finding | None = None


def collect_stats(context: CheckContext) -> EpisodeStats:
    """Play random episodes until a limit is reached or the environment fails."""
    found = EpisodeStats()
    try:
        with context.instance() as instance:
            found.name, found.spec, found.time_limit = instance.name, instance.spec, instance.time_limit
            found.actions = leaves(instance.env.action_space, "action", instance.name)
            found.render_modes = list(instance.env.metadata.get("render_modes") or [])
            found.wrappers = running_statistics(instance.env)
            found.seconds, found.calls = instance.seconds, instance.calls
            _StatsCollector(context, instance, found).run()
    except FindingError as flaw:
        found.flaw = flaw.finding
    return found


def random_action(instance: EnvInstance, rng: np.random.Generator, mask: Bool) -> Float:
    """Return a flat action [A] as in the warm-up."""
    action, _, _ = instance.spec.action.random(rng, mask[None])
    flat: Float = action[0]
    return flat


class _StatsCollector:
    def __init__(self, context: CheckContext, instance: EnvInstance, found: EpisodeStats) -> None:
        self._context, self._instance, self._found = context, instance, found
        # The adapter's names exclude an action mask among the observations.
        known = {
            leaf.name or "obs": leaf for leaf in leaves(instance.env.observation_space, "observation", "")
        }
        found.records = {name: ObsStats(name, known[name]) for name in instance.spec.obs.names}
        self._last: dict[str, tuple[Any, Any]] = {}  # name -> returned array, and a copy of it

    def run(self) -> None:
        context, instance, found = self._context, self._instance, self._found
        rng, over = np.random.default_rng(0), context.deadline(1.0)
        while found.steps < context.limits.steps and not over():
            now: ResetOutput | StepOutput = instance.reset(context.config.seed_of(len(found.episodes)))
            self._last = {}
            self._add_obs(now.obs)
            found.open = 0
            while found.steps < context.limits.steps and not over():
                now = instance.step(random_action(instance, rng, now.mask))
                found.steps += 1
                found.open += 1
                self._add_obs(now.obs)
                self._add_reward(now.reward)
                if self._add_end(now):
                    break

    def _add_end(self, now: StepOutput) -> bool:
        if not (now.terminated or now.truncated or self._found.open == self._context.config.length_limit):
            return False
        self._found.episodes.append(EpisodeEnd(self._found.open, now.terminated, now.truncated))
        self._found.open = 0
        return True

    def _add_obs(self, obs: Any) -> None:  # noqa: ANN401 - a space may hold anything
        found, place = self._found, self._instance.place
        try:
            values = self._instance.adapter.observations.read(obs)
            for name, shape, _ in self._instance.spec.obs.items():
                check_shape(name, np.shape(values[name]), shape)
                record = found.records[name]
                record.add(_pick(obs, record.path), values[name], place)
        except (SpaceMismatchError, ValueError, TypeError) as failure:
            found.num_broken += 1
            found.broken = found.broken or f"{failure}, {place}"
            return
        if found.steps <= _REUSE_STEPS:
            self._check_reuse(obs)

    def _check_reuse(self, obs: Any) -> None:  # noqa: ANN401 - a space may hold anything
        """Record arrays of the last step that have changed since."""
        for name, (handed, then) in self._last.items():
            if not np.array_equal(handed, then, equal_nan=then.dtype.kind == "f"):
                self._found.reused.add(name)
        handed_out = {name: _pick(obs, record.path) for name, record in self._found.records.items()}
        self._last = {
            name: (value, value.copy()) for name, value in handed_out.items() if isinstance(value, np.ndarray)
        }

    def _add_reward(self, reward: Any) -> None:  # noqa: ANN401 - what the environment returned
        found, place = self._found, self._instance.place
        if np.ndim(reward) or not isinstance(reward, int | float | np.generic):
            found.reward_kind = found.reward_kind or f"{type(reward).__name__} {reward!r:.40}, {place}"
        try:
            value = as_number(reward, "the reward")
        except SpaceMismatchError as failure:
            raise FindingError(
                error(
                    "a reward is not a number",
                    where=place,
                    why=described(failure),
                    fix="return one number, such as float(reward)",
                )
            ) from failure
        if not np.isfinite(np.float32(value)):
            found.reward_at = found.reward_at or f"it is {value}, {place}"
            return
        found.nonzero += value != 0
        found.rewards.add(np.asarray(value))


def _pick(obs: Any, path: tuple[Any, ...]) -> Any:  # noqa: ANN401 - a space may hold anything
    for key in path:
        obs = obs[key]
    return obs
