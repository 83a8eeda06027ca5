"""Findings about a Unity build, or a scene in the editor, from a player with random actions."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing

import numpy as np

from algorithm.app.check.check_process import CheckStarted
from algorithm.config.loader import LoadedConfig
from algorithm.core.data import Array, Bool, Int
from algorithm.core.errors import RUN_BLOCK, UserError, visible
from algorithm.core.seeding import episode_seeds
from algorithm.core.spec import AgentSpec
from algorithm.env.base import Fault, OnFault, ResetResult, StepResult, VecEnv
from algorithm.env.checks.context import CheckLimits
from algorithm.env.checks.finding import CheckResult, Finding, error, note, ok, plural, refusal, warning
from algorithm.env.registry import make_vec_env
from algorithm.env.request import PoolOptions, UnityOptions

_FEW = 20  # questions of a behaviour from which nothing follows


def check_player(
    loaded: LoadedConfig, limits: CheckLimits
) -> Generator[CheckStarted | CheckResult, None, None]:
    """Yield what one player shows in ``limits.seconds``, with random actions.

    A failure of the player is a finding like others.
    """
    yield CheckStarted("player", "start")
    began = time.monotonic()
    try:
        faults: list[Fault] = []
        with closing(_make(loaded, faults.append)) as env:
            seconds = time.monotonic() - began
            unusual = [note(fault.what, where=fault.where) for fault in faults]
            yield _result("player", "start", ok(f"{env.arrangement}, ready in {seconds:.1f} s"), *unusual)
            yield CheckStarted("player", "random steps")
            trial = _Trial(env, loaded.seed)
            trial.run(limits.seconds)
            yield _result("player", "speed", ok(trial.speed))
            for record in trial.records.values():
                yield from record.results(
                    no_graphics=loaded.config.base_config.unity_args.no_graphics is True
                )
            yield _result("player", "statistics", *_statistics(env.metrics()))
    except UserError as refused:
        yield _result("player", "failure", refusal(refused))


def _make(loaded: LoadedConfig, on_fault: OnFault) -> VecEnv:
    base = loaded.config.base_config
    return make_vec_env(
        base.env_type,
        base.env_name,
        folder=loaded.env_dir,
        env_args=base.env_args,
        seed_of=episode_seeds(loaded.seed, "check"),
        options=loaded.config.reset_config,
        pool=PoolOptions(
            timeout=base.env_timeout,
            restarts=0,
            on_fault=on_fault,
            unity=UnityOptions(args=base.unity_args, behaviours=tuple(loaded.behaviours), purpose="check"),
        ),
    )


class _Trial:
    """Random steps of a player, and what was seen of each behaviour."""

    def __init__(self, env: VecEnv, seed: int) -> None:
        self._env, self._rng = env, np.random.default_rng(seed)
        self.records = {name: _Record(name, spec) for name, spec in env.specs.items()}
        self._messages, self._seconds = 0, 0.0

    def run(self, seconds: float) -> None:
        """Step for some seconds. Raises EnvError."""
        masks = {name: self.records[name].begin(first) for name, first in self._env.reset().items()}
        began = time.monotonic()
        while self._seconds < seconds:
            actions = {
                name: self._env.specs[name].action.random(self._rng, mask)[0] for name, mask in masks.items()
            }
            self._messages += 1
            results = self._env.step(actions)
            masks = {name: self.records[name].add(result, self._messages) for name, result in results.items()}
            self._seconds = time.monotonic() - began

    @property
    def speed(self) -> str:
        """Steps and messages per second."""
        steps = sum(record.steps for record in self.records.values())
        each = steps / max(1, self._messages)
        return (
            f"{steps / self._seconds:,.0f} steps/s: {self._messages / self._seconds:,.0f} messages/s with "
            f"{each:.1f} steps each"
        )


class _Record:
    """Counts and images of one behaviour over the steps of the check."""

    def __init__(self, name: str, spec: AgentSpec) -> None:
        self._name, self._spec = name, spec
        self.steps = 0
        self._asked: dict[int, int] = {}  # agent -> message of its open question
        self._length: Counter[int] = Counter()
        self._most = 0
        self._gaps: list[int] = []  # messages between a question and what came of it
        self._lengths: list[int] = []
        self._interrupted = 0
        self._rewards: list[float] = []
        self._choices = self._masked = 0
        self._high: dict[str, float] = dict.fromkeys(spec.obs.names, -np.inf)
        self._low: dict[str, float] = dict.fromkeys(spec.obs.names, np.inf)
        self._bad: set[str] = set()

    def begin(self, first: ResetResult) -> Bool:
        """Take the first observations; return the masks of the agents that ask."""
        self._ask(first.ids, first.obs, first.action_mask, 0)
        return first.action_mask

    def add(self, result: StepResult, message: int) -> Bool:
        """Take the result of a message; return the masks of the agents that ask."""
        ended = result.terminated | result.truncated
        for row, agent in enumerate(result.ids.tolist()):
            asked = self._asked.pop(agent, None)
            if asked is None:
                continue
            self.steps += 1
            self._gaps.append(message - asked)
            self._rewards.append(float(result.reward[row]))
            self._length[agent] += 1
            if ended[row]:
                self._lengths.append(self._length.pop(agent))
                self._interrupted += bool(result.truncated[row])
        here = np.ones(len(result.ids), np.bool_) if result.left is None else ~result.left
        obs = {name: value[here] for name, value in result.obs.items()}
        self._ask(result.ids[here], obs, result.action_mask[here], message)
        return result.action_mask[here]

    def _ask(self, ids: Int, obs: Mapping[str, Array], mask: Bool, message: int) -> None:
        self._asked |= dict.fromkeys(ids.tolist(), message)
        self._most = max(self._most, len(self._asked))
        self._choices += mask.size
        self._masked += int((~mask).sum())
        for name, value in obs.items():
            if value.size:
                low, high = float(value.min()), float(value.max())
                self._low[name], self._high[name] = min(low, self._low[name]), max(high, self._high[name])
                if not np.isfinite([low, high]).all():
                    self._bad.add(name)

    def results(self, *, no_graphics: bool) -> Iterator[CheckResult]:
        """Yield the findings."""
        group = f"behaviour {visible(self._name)}"
        yield _result(group, "sensors", *self._sensors(no_graphics))
        yield _result(group, "actions", ok(self._actions))
        yield _result(group, "decisions", *self._decisions())
        yield _result(group, "rewards", *self._reward_findings())
        yield _result(group, "episodes", *self._episodes())

    def _sensors(self, no_graphics: bool) -> Iterator[Finding]:
        obs = self._spec.obs
        for (name, shape, dtype), axes in zip(obs.items(), obs.axes, strict=True):
            text = f"{name}: {'×'.join(map(str, shape))} {dtype}{f' {axes}' * bool(axes)}"
            low, high = self._low[name], self._high[name]
            if name in self._bad:
                yield error(
                    f"{text}, with numbers that are not finite",
                    why="a training would end there, or drop the episode (base_config.on_non_finite)",
                    fix="see what the sensor divides by; the build has to send finite numbers",
                )
            elif low > high:
                yield note(f"{text}, never seen")
            elif axes and high <= 0:
                yield warning(
                    f"{text}, all black",
                    why="the player has no graphics" if no_graphics else "the camera sees nothing",
                    fix="set base_config.unity_args.no_graphics: false; without a display use xvfb-run"
                    if no_graphics
                    else "look at the camera in the scene",
                )
            elif low == high:
                yield note(f"{text}, always {low:.4g}", why="an agent learns nothing from it")
            else:
                yield ok(f"{text}, from {low:.4g} to {high:.4g}")

    @property
    def _actions(self) -> str:
        if not self._masked:
            return self._spec.action.description
        share = self._masked / self._choices
        return f"{self._spec.action.description}, {share:.0%} of the choices masked"

    def _decisions(self) -> Iterator[Finding]:
        if not self._gaps:
            yield warning(
                "no agent has taken a step",
                why="none asked for a second decision, or ended",
                fix="add a Decision Requester to the agents, or call RequestDecision",
            )
            return
        periods = Counter(self._gaps)
        shown = ", ".join(f"{gap} ({count / len(self._gaps):.0%})" for gap, count in periods.most_common(3))
        yield ok(
            f"{plural(self.steps, 'step')} of {plural(self._most, 'agent')} at once; "
            f"messages from a decision to its result: {shown}"
        )

    def _reward_findings(self) -> Iterator[Finding]:
        rewards = np.array(self._rewards)
        if not np.isfinite(rewards).all():
            yield error(
                "a reward is not finite",
                why="a training would end there, or drop the episode (base_config.on_non_finite)",
                fix="see what is added to it in the scene",
            )
        elif len(rewards) < _FEW:
            yield note(f"only {plural(len(rewards), 'reward')}: too few to judge")
        elif not rewards.any():
            yield note(
                "all 0", why=f"with random actions; where the reward is rare, {RUN_BLOCK}.use_rnd may help"
            )
        else:
            yield ok(f"from {rewards.min():.4g} to {rewards.max():.4g}, mean {rewards.mean():.4g}")

    def _episodes(self) -> Iterator[Finding]:
        if not self._lengths:
            yield note(
                f"none has ended in {plural(self.steps, 'step')}",
                why="evaluations cut them off (eval_config.max_step); a limit is Max Step of the agent, or "
                "max_step_each_iter",
            )
            return
        terminated = len(self._lengths) - self._interrupted
        yield ok(
            f"{len(self._lengths)} ended, {terminated} terminated and {self._interrupted} interrupted, "
            f"after {np.mean(self._lengths):.1f} steps in the mean"
        )


def _statistics(metrics: Mapping[str, float]) -> Iterator[Finding]:
    if not metrics:
        yield ok("none are recorded")
    for name, value in metrics.items():
        yield ok(f"{name} {value:.4g}")


def _result(group: str, title: str, *findings: Finding) -> CheckResult:
    return CheckResult(group=group, title=title, findings=findings)
