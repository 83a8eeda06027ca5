"""``--check`` of a Unity build, or a scene in the editor, with random actions."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import replace

import numpy as np

from algorithm.config.loader import LoadedConfig
from algorithm.core.data import Array, Bool, Int
from algorithm.core.errors import UserError
from algorithm.core.seeding import episode_seeds
from algorithm.core.spec import AgentSpec
from algorithm.core.wording import counted
from algorithm.env.base import Fault, OnFault, ResetResult, StepResult, VecEnv
from algorithm.env.config import opponents
from algorithm.env.registry import make_vec_env
from algorithm.extras.check.context import CheckLimits
from algorithm.extras.check.finding import CheckResult, Finding, error, note, ok, refusal, warning
from algorithm.run.experience.requests import env_request

_FEW = 20  # rewards of a behaviour below which nothing is concluded


def check_player(loaded: LoadedConfig, limits: CheckLimits) -> Generator[CheckResult, None, None]:
    """Yield findings about one player that acts at random for ``limits.seconds``.

    A failure of the player is a finding too.
    """
    yield _result("player", "start")
    began = time.monotonic()
    try:
        faults: list[Fault] = []
        with closing(_make(loaded, faults.append)) as env:
            seconds = time.monotonic() - began
            unusual = [note(fault.what, where=fault.where) for fault in faults]
            yield _result("player", "start", ok(f"{env.arrangement}, ready in {seconds:.1f} s"), *unusual)
            if lines := opponents(env.specs):
                yield _result("player", "teams", *map(note, lines))
            yield _result("player", "random steps")
            records, speed = _play(env, loaded.seed, limits.seconds)
            yield _result("player", "speed", ok(speed))
            for record in records:
                yield from record.results(
                    no_graphics=loaded.config.base_config.unity_args.no_graphics is True
                )
            statistics = [ok(f"{name} {value:.4g}") for name, value in env.metrics().items()]
            yield _result("player", "statistics", *(statistics or [ok("none are recorded")]))
    except UserError as refused:
        yield _result("player", "failure", refusal(refused))


def _make(loaded: LoadedConfig, on_fault: OnFault) -> VecEnv:
    return make_vec_env(
        replace(
            env_request(loaded, "train"),
            seed_of=episode_seeds(loaded.seed, "check"),
            restarts=0,
            on_fault=on_fault,
            purpose="check",
        )
    )


def _play(env: VecEnv, seed: int, seconds: float) -> tuple[list[BehaviourRecord], str]:
    """Act at random for some seconds; return the record of each behaviour, and the speed as text."""
    rng, records = np.random.default_rng(seed), {n: BehaviourRecord(n, spec) for n, spec in env.specs.items()}
    masks = {name: records[name].begin(first) for name, first in env.reset().items()}
    began, taken, messages = time.monotonic(), 0.0, 0
    while taken < seconds:
        actions = {name: env.specs[name].action.random(rng, mask)[0] for name, mask in masks.items()}
        messages += 1
        results = env.step(actions)
        masks = {name: records[name].add(result, messages) for name, result in results.items()}
        taken = time.monotonic() - began
    steps = sum(record.steps for record in records.values())
    each = steps / max(1, messages)
    speed = f"{steps / taken:,.0f} steps/s: {messages / taken:,.0f} messages/s with {each:.1f} steps each"
    return [*records.values()], speed


class BehaviourRecord:
    """Counts and images of one behaviour over the steps of the check."""

    def __init__(self, name: str, spec: AgentSpec) -> None:
        self._name = name
        self._spec = spec
        self._asked: dict[int, int] = {}  # agent -> message in which it requested a decision
        self._most = 0  # agents at once
        self._age: Counter[int] = Counter()  # agent -> steps of its open episode
        self._gaps: list[int] = []  # messages between a request and its result
        self._rewards: list[float] = []
        self._ends: list[tuple[int, bool]] = []  # length, interrupted
        self._masked: list[float] = []  # share of the choices, of each message
        self._range = dict.fromkeys(spec.obs.names, (np.inf, -np.inf))

    @property
    def steps(self) -> int:
        """Number of steps of all agents."""
        return len(self._gaps)

    def begin(self, first: ResetResult) -> Bool:
        """Record the first observations; return the masks of the agents that need an action."""
        self._record(first.ids, first.obs, first.action_mask, 0)
        return first.action_mask

    def add(self, result: StepResult, message: int) -> Bool:
        """Record the result of a message; return the masks of the agents that need an action."""
        ended = result.terminated | result.truncated
        for row, agent in enumerate(result.ids.tolist()):
            if (asked := self._asked.pop(agent, None)) is None:
                continue
            self._gaps.append(message - asked)
            self._rewards.append(float(result.reward[row]))
            self._age[agent] += 1
            if ended[row]:
                self._ends.append((self._age.pop(agent), bool(result.truncated[row])))
        here = np.ones(len(result.ids), np.bool_) if result.left is None else ~result.left
        obs = {name: value[here] for name, value in result.obs.items()}
        self._record(result.ids[here], obs, result.action_mask[here], message)
        return result.action_mask[here]

    def _record(self, ids: Int, obs: Mapping[str, Array], mask: Bool, message: int) -> None:
        """Record observations and masks of the agents that need an action."""
        self._asked |= dict.fromkeys(ids.tolist(), message)
        self._most = max(self._most, len(self._asked))
        if mask.size:
            self._masked.append(1 - float(mask.mean()))
        for name, value in obs.items():
            if value.size:
                low, high = self._range[name]
                self._range[name] = float(np.minimum(low, value.min())), float(np.maximum(high, value.max()))

    def results(self, *, no_graphics: bool) -> Iterator[CheckResult]:
        """Yield the findings about the behaviour; no_graphics: the player was started without graphics."""
        group = f"behaviour {self._name}"
        share = float(np.mean(self._masked or 0.0))
        masked = f", {share:.0%} of the choices masked" if share else ""
        yield _result(group, "sensors", *self._sensors(no_graphics))
        yield _result(group, "actions", ok(f"{self._spec.action.description}{masked}"))
        yield _result(group, "decisions", self._decisions())
        yield _result(group, "rewards", self._reward())
        yield _result(group, "episodes", self._episodes())

    def _sensors(self, no_graphics: bool) -> Iterator[Finding]:
        obs = self._spec.obs
        for (name, shape, dtype), axes in zip(obs.items(), obs.axes, strict=True):
            text = f"{name}: {'×'.join(map(str, shape))} {dtype}{f' {axes}' * bool(axes)}"
            low, high = self._range[name]
            if low > high:
                yield note(f"{text}, never seen")
            elif not np.isfinite(high - low):
                yield error(
                    f"{text}, with numbers that are not finite",
                    why="training would stop there",
                    fix="check what the sensor divides by; the build must send finite numbers",
                )
            elif axes and high <= 0:
                yield warning(
                    f"{text}, all black",
                    why="the player has no graphics" if no_graphics else "the camera sees nothing",
                    fix="set base_config.unity_args.no_graphics: false; without a display use xvfb-run"
                    if no_graphics
                    else "check the camera in the scene",
                )
            elif low == high:
                yield note(f"{text}, always {low:.4g}", why="it carries no information")
            else:
                yield ok(f"{text}, from {low:.4g} to {high:.4g}")

    def _decisions(self) -> Finding:
        if not self._gaps:
            return warning(
                "no agent has taken a step",
                why="none asked for a second decision, or ended",
                fix="add a Decision Requester to the agents, or call RequestDecision",
            )
        usual = Counter(self._gaps).most_common(3)
        shown = ", ".join(f"{gap} ({count / self.steps:.0%})" for gap, count in usual)
        return ok(
            f"{counted(self.steps, 'step')} of {counted(self._most, 'agent')} at once; "
            f"messages from a decision to its result: {shown}"
        )

    def _reward(self) -> Finding:
        rewards = np.array(self._rewards)
        if not np.isfinite(rewards).all():
            return error(
                "a reward is not finite",
                why="training would stop there",
                fix="check what is added to it in the scene",
            )
        if len(rewards) < _FEW:
            return note(f"only {counted(len(rewards), 'reward')}: too few to judge")
        if not rewards.any():
            return note(
                "all 0", why="with random actions; where the reward is rare, sac_config.use_rnd may help"
            )
        return ok(f"from {rewards.min():.4g} to {rewards.max():.4g}, mean {rewards.mean():.4g}")

    def _episodes(self) -> Finding:
        if not self._ends:
            return note(
                f"none has ended in {counted(self.steps, 'step')}",
                why="evaluations cut them off (eval_config.max_step); a limit is Max Step of the agent, or "
                "max_step_each_iter",
            )
        lengths, interrupted = zip(*self._ends, strict=True)
        cut = sum(interrupted)
        return ok(
            f"{len(lengths)} ended, {len(lengths) - cut} terminated and {cut} interrupted, after "
            f"{np.mean(lengths):.1f} steps on average"
        )


def _result(group: str, title: str, *findings: Finding) -> CheckResult:
    return CheckResult(group=group, title=title, findings=findings)
