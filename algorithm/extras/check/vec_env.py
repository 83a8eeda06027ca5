"""``--check`` of a Unity player, or of a simulator that steps many environments, with random actions."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import numpy as np

from algorithm.config.loader import LoadedConfig
from algorithm.core.data import Bool, Double, Float
from algorithm.core.errors import UserError
from algorithm.core.seeding import episode_seeds
from algorithm.core.spec import AgentSpec
from algorithm.core.wording import counted
from algorithm.env.base import Fault, Observation, ResetResult, StepResult, VecEnv
from algorithm.env.config import opponents
from algorithm.env.registry import make_vec_env
from algorithm.env.sources import EnvSource
from algorithm.extras.check.context import CheckLimits
from algorithm.extras.check.finding import CheckResult, Finding, error, note, ok, refusal, warning
from algorithm.run.experience.requests import env_request

_FEW = 20  # rewards below which nothing is concluded
_NON_FINITE = "training would stop there, or drop the episode (base_config.on_non_finite)"


def check_vec_env(
    loaded: LoadedConfig, limits: CheckLimits, source: EnvSource | None = None
) -> Iterator[CheckResult]:
    """Yield findings about an environment whose agents act at random for ``limits.seconds``.

    source: of an environment that was passed as an object
    A failure of the environment is a finding, too.
    """
    base, faults, began = loaded.config.base_config, list[Fault](), time.monotonic()
    request = replace(
        env_request(loaded, "train", source=source),
        n=1 if base.kind.player else base.n_envs,
        seed_of=episode_seeds(loaded.seed, "check"),
        restarts=0,
        on_fault=faults.append,
        purpose="check",
    )
    try:
        with closing(make_vec_env(request)) as env:
            seconds = time.monotonic() - began
            yield _result("environment", "start", ok(f"{env.arrangement}, ready in {seconds:.1f} s"))
            if lines := opponents(env.specs):
                yield _result("environment", "teams", *map(note, lines))
            records, speed = _play(env, loaded.seed, limits.seconds)
            yield _result("environment", "speed", ok(speed))
            remarks = [note(fault.what, where=fault.where, why=fault.why, fix=fault.fix) for fault in faults]
            yield _result("environment", "remarks", *(remarks or [ok("none")]))
            for record in records:
                yield from record.results()
    except UserError as refused:
        yield _result("environment", "failure", refusal(refused))


def _play(env: VecEnv, seed: int, seconds: float) -> tuple[list[BehaviourRecord], str]:
    """Act at random for some seconds; return the record of each behaviour, and the speed as text.

    The speed is that of the steps alone, without what the check makes of them.
    """
    rng, records = np.random.default_rng(seed), {n: BehaviourRecord(n, spec) for n, spec in env.specs.items()}
    masks = {name: records[name].begin(first) for name, first in env.reset().items()}
    end, taken, calls = time.perf_counter() + seconds, 0.0, 0
    while time.perf_counter() < end or not calls:
        actions = {name: env.specs[name].action.random(rng, mask)[0] for name, mask in masks.items()}
        began = time.perf_counter()
        results = env.step(actions)
        taken, calls = taken + time.perf_counter() - began, calls + 1
        masks = {name: records[name].add(result) for name, result in results.items()}
    steps = sum(record.steps for record in records.values())
    speed = f"{steps / taken:,.0f} steps/s: {calls / taken:,.0f} calls/s with {steps / calls:.1f} steps each"
    return [*records.values()], speed


class BehaviourRecord:
    """Counts and ranges of one behaviour over the steps of the check."""

    def __init__(self, name: str, spec: AgentSpec) -> None:
        self._name = name
        self._spec = spec
        self._asked: set[int] = set()  # agents that have been given an action
        self.steps = 0
        self._terminated = self._truncated = 0  # ends
        self._rewards: list[Float | Double] = []
        self._range = dict.fromkeys(spec.obs.names, (np.inf, -np.inf))

    def begin(self, first: ResetResult) -> Bool:
        """Record the first observations; return the masks of the agents that need an action."""
        return self._record(first, np.ones(len(first.ids), np.bool_))

    def add(self, result: StepResult) -> Bool:
        """Record the result of a call; return the masks of the agents that need an action."""
        took = np.array([agent in self._asked for agent in result.ids.tolist()], np.bool_)
        if result.skipped is not None:
            took &= ~result.skipped
        self.steps += int(took.sum())
        self._rewards.append(result.reward[took])
        self._terminated += int((result.terminated & took).sum())
        self._truncated += int((result.truncated & ~result.terminated & took).sum())
        here = np.ones(len(result.ids), np.bool_) if result.left is None else ~result.left
        self._asked.difference_update(result.ids.tolist())
        return self._record(result, here)

    def _record(self, seen: Observation, here: Bool) -> Bool:
        """Record observations of the agents ``here``; return their masks."""
        self._asked.update(seen.ids[here].tolist())
        for name, every in seen.obs.items():
            value, (low, high) = every[here], self._range[name]
            if value.size:
                self._range[name] = float(np.minimum(low, value.min())), float(np.maximum(high, value.max()))
        return seen.action_mask[here]

    def results(self) -> Iterator[CheckResult]:
        """Yield the findings about the behaviour."""
        group = f"behaviour {self._name}"
        yield _result(group, "observations", *self._observations())
        yield _result(group, "actions", ok(self._spec.action.description))
        yield _result(group, "steps", self._steps())
        yield _result(group, "rewards", self._reward())
        yield _result(group, "episodes", self._episodes())

    def _observations(self) -> Iterator[Finding]:
        obs = self._spec.obs
        for (name, shape, dtype), axes in zip(obs.items(), obs.axes, strict=True):
            text = f"{name}: {'×'.join(map(str, shape))} {dtype}{f' {axes}' * bool(axes)}"
            low, high = self._range[name]
            if low > high:
                yield note(f"{text}, never seen")
            elif not np.isfinite(high - low):
                yield error(
                    f"{text}, with numbers that are not finite",
                    why=_NON_FINITE,
                    fix="check what it is divided by; only finite numbers can be learned from",
                )
            elif axes and high <= 0:
                yield warning(
                    f"{text}, all black",
                    why="the camera sees nothing, or a Unity player has no graphics",
                    fix="check the camera in the scene, and base_config.unity_args.no_graphics",
                )
            elif low == high:
                yield note(f"{text}, always {low:.4g}", why="it carries no information")
            else:
                yield ok(f"{text}, from {low:.4g} to {high:.4g}")

    def _steps(self) -> Finding:
        if not self.steps:
            return warning(
                "no agent has taken a step",
                why="none asked for a second decision, or ended",
                fix="in Unity, add a Decision Requester to the agents, or call RequestDecision",
            )
        return ok(counted(self.steps, "step"))

    def _reward(self) -> Finding:
        rewards = np.concatenate(self._rewards)
        if not np.isfinite(rewards).all():
            return error("a reward is not finite", why=_NON_FINITE, fix="check what is added to it")
        if len(rewards) < _FEW:
            return note(f"only {counted(len(rewards), 'reward')}: too few to judge")
        if not rewards.any():
            return note(
                "all 0", why="with random actions; where the reward is rare, sac_config.use_rnd may help"
            )
        return ok(f"from {rewards.min():.4g} to {rewards.max():.4g}, mean {rewards.mean():.4g}")

    def _episodes(self) -> Finding:
        ends = self._terminated + self._truncated
        if not ends:
            return note(
                f"none has ended in {counted(self.steps, 'step')}",
                why="evaluations cut them off (eval_config.max_step); max_step_each_iter is a limit",
            )
        return ok(
            f"{ends:,} ended, {self._terminated:,} terminated and {self._truncated:,} truncated, "
            f"one in {self.steps / ends:.1f} steps"
        )


def _result(group: str, title: str, *findings: Finding) -> CheckResult:
    return CheckResult(group=group, title=title, findings=findings)
