"""Health rules of Soft Actor-Critic: small independent rules over the last summaries.

A rule is a function of the history that returns a line, or None. Each requires several signs at once, over
many summaries, because a false alarm costs more trust than a late one. The tests hold recorded runs of both
kinds, healthy ones and one in trouble.
"""

from __future__ import annotations

import math

from algorithm.agents.behaviour_config import BehaviourConfig
from algorithm.agents.health import WINDOW, History, Rule, rises
from algorithm.agents.sac.config import SacConfig, sac_keys
from algorithm.agents.sac.health_values import (
    ClampedTargets,
    HeldBackCritic,
    RunawayStatistics,
    SaturatedPriorities,
    ValuesOfEntropy,
    rewarded,
)
from algorithm.core.wording import short

WATCHED = (
    "rollout/return_mean",
    "rollout/return_min",
    "rollout/return_max",
    "rollout/length",
    "loss/q",
    "value/q_mean",
    "value/clipped",
    "value/clamped",
    "norm/shift",
    "norm/shift_policy",
    "value/return_scale",
    "policy/entropy_c",
    "policy/target_entropy_c",
    "policy/alpha_c",
    "policy/entropy_d",
    "policy/target_entropy_d",
    "policy/alpha_d",
    "policy/saturation",
    "replay/priority_mean",
    "replay/priority_saturated",
    "time/replay_ratio",
)
"""Metrics kept of a summary."""


def make_rules(config: BehaviourConfig) -> dict[str, Rule]:
    """Return the rules that can hold for this configuration, by name."""
    sac = sac_keys(config)
    rules: dict[str, Rule] = {
        "diverging": DivergingCritics(sac),
        "values_of_entropy": ValuesOfEntropy(sac),
        "saturated": SaturatedActions(),
        "statistics": RunawayStatistics(sac),
    }
    if sac.value_head == "categorical":
        rules["clamped"] = ClampedTargets(sac)
    if sac.clip_epsilon > 0:
        rules["held_back"] = HeldBackCritic(sac)
    if sac.use_priority and sac.use_replay_buffer:
        rules["priorities"] = SaturatedPriorities(
            config.replay_config.td_error_max, scaled=sac.reward_scaling
        )
    if sac.use_auto_alpha:
        for part in "cd":
            rules[f"temperature_{part}"] = RunawayTemperature(sac, part)
            rules[f"too_much_entropy_{part}"] = EntropyOutOfReach(sac, part)
        rules["too_little_entropy"] = EntropyTooLow(sac)
    if sac.use_replay_buffer:
        rules["ratio"] = RatioNotKept(sac.replay_ratio, config.replay_config.capacity, sac.batch_size)
    rules["starved"] = StarvedLearner(sac)
    return rules


class SaturatedActions:
    """Rule: nearly all actions lie at their bounds, and the returns are those of random actions.

    In twelve summaries over at least 5,000 steps, policy/saturation was never below 0.95, and the mean of
    their returns does not exceed that of the random actions at the start. A task whose best actions are the
    bounds causes no alarm: there the returns have risen.
    """

    _SHARE, _STEPS = 0.95, 5000

    def __call__(self, history: History) -> str | None:
        """Return the line, or None."""
        shares = history.last("policy/saturation", WINDOW)
        returns = history.known("rollout/return_mean", WINDOW)
        if not shares or min(shares) < self._SHARE or len(returns) < WINDOW // 2:
            return None
        before = history.random_return
        now = sum(returns) / len(returns)
        if history.span(WINDOW - 1) < self._STEPS or now > before:
            return None
        return (
            f"actions are stuck at their bounds: policy/saturation is {short(shares[-1])}, and episodes "
            f"return {short(now)}, no more than random actions did ({short(before)}) · lower "
            "sac_config.learning_rate or the scale of the rewards, or set sac_config.action_noise"
        )


class RatioNotKept:
    """Rule: fewer than 0.8 of the configured updates per step, in five summaries in a row."""

    _COUNT, _SHARE = 5, 0.8

    def __init__(self, ratio: float, capacity: int, batch_size: int) -> None:
        self._ratio, self._capacity, self._batch_size = ratio, capacity, batch_size

    def __call__(self, history: History) -> str | None:
        """Return the line, or None."""
        achieved = history.last("time/replay_ratio", self._COUNT)
        if not achieved or max(achieved) >= self._SHARE * self._ratio:
            return None
        return (
            f"the replay ratio is not kept: time/replay_ratio is {short(achieved[-1])} of {self._ratio:g}, "
            "since the replay often holds no whole batch · raise replay_config.capacity "
            f"({self._capacity}) or lower sac_config.batch_size ({self._batch_size})"
        )


class StarvedLearner:
    """Rule: no update in five summaries in which at least ten were due.

    The metrics keep the values of the last update. Without a new one the loss is therefore the same to the
    last digit; before the first update there is none.
    """

    _COUNT, _DUE = 5, 10

    def __init__(self, sac: SacConfig) -> None:
        self._per_step = sac.replay_ratio if sac.use_replay_buffer else 1 / (sac.batch_size * sac.learn_step)
        self._start_step, self._batch_size = sac.start_step, sac.batch_size

    def __call__(self, history: History) -> str | None:
        """Return the line, or None."""
        rows = list(history.rows)[-self._COUNT - 1 :]
        if len(rows) <= self._COUNT or rows[0].step < self._start_step:
            return None
        losses = {row.values.get("loss/q") for row in rows}
        if len(losses) > 1 or history.span(self._COUNT) * self._per_step < self._DUE:
            return None
        return (
            f"the learner is starved: not one update in the last {history.span(self._COUNT):,} steps, since "
            "the replay holds no whole batch · raise replay_config.capacity or lower "
            f"sac_config.batch_size ({self._batch_size})"
        )


class DivergingCritics:
    """Rule: values far beyond the returns that are possible.

    abs(value/q_mean) rose in each of the last five summaries, two-fold in all. It exceeds five times a limit:
    the largest return, or largest reward · 1 / (1 − γ) if that is larger, plus the largest entropy bonus.
    """

    _RISES, _GROWTH, _BEYOND = 5, 2.0, 5.0

    def __init__(self, sac: SacConfig) -> None:
        self._gamma, self._rewarded = sac.gamma, rewarded(sac)
        averaged = f"sac_config.tau ({sac.tau:g})"
        self._fix = f"lower sac_config.learning_rate ({sac.learning_rate:g}) or {averaged}" + (
            f", or sac_config.n_step ({sac.n_step})" if sac.n_step > 1 else ""
        )

    def __call__(self, history: History) -> str | None:
        """Return the line, or None."""
        sizes = [abs(value) for value in history.last("value/q_mean", self._RISES + 1)]
        if not sizes or not history.largest_return or not rises(sizes) or sizes[-1] < self._GROWTH * sizes[0]:
            return None
        bonus = sum(abs(part) for part in history.bonus(self._gamma, self._rewarded).values())
        possible = history.earned(self._gamma) + bonus
        if sizes[-1] <= self._BEYOND * possible:
            return None
        return (
            f"the critics diverge: value/q_mean is {short(history.last('value/q_mean', 1)[0])}, and no more "
            f"than {short(possible)} is possible · {self._fix}"
        )


class RunawayTemperature:
    """Rule: the entropy bonus exceeds every return of the task, and still grows.

    α grew at least ten-fold since the start and rose in each of the last five summaries, by a quarter in all.
    The bonus in a value, α · abs(H̄) · horizon, exceeds the largest return of any episode. A temperature that
    merely grows with the rewards stays below that: on CartPole at less than half.
    """

    _GROWTH, _RISES, _RECENT = 10.0, 5, 1.25

    def __init__(self, sac: SacConfig, part: str) -> None:
        self._part, self._gamma = part, sac.gamma
        self._start = math.exp(sac.init_log_alpha)
        self._fix = _less_entropy(sac, part)

    def __call__(self, history: History) -> str | None:
        """Return the line, or None."""
        alpha = history.last(f"policy/alpha_{self._part}", self._RISES + 1)
        target = history.last(f"policy/target_entropy_{self._part}", 1)
        if not alpha or not target or not history.largest_return:
            return None
        bonus = alpha[-1] * abs(target[0]) * history.return_scale * history.horizon(self._gamma)
        growing = rises(alpha) and alpha[-1] >= self._RECENT * alpha[0]
        if not growing or alpha[-1] < self._GROWTH * self._start or bonus <= history.largest_return:
            return None
        return (
            f"the temperature runs away: policy/alpha_{self._part} is {short(alpha[-1])}, "
            f"{alpha[-1] / self._start:.0f} times its start, and still grows; its bonus adds {short(bonus)} "
            f"to a value, and no episode returned more than {short(history.largest_return)}"
            f"{history.scaled} · {self._fix}"
        )


class EntropyOutOfReach:
    """Rule: the entropy cannot rise to its target, however large the temperature.

    Over twelve summaries it stayed at least 0.1 below and came no closer by a fifth, while α rose in each of
    them to more than a thousand times its start.
    """

    _GROWTH, _GAP, _CLOSER = 1000.0, 0.1, 0.8

    def __init__(self, sac: SacConfig, part: str) -> None:
        self._part = part
        self._start = math.exp(sac.init_log_alpha)
        self._fix = _less_entropy(sac, part)

    def __call__(self, history: History) -> str | None:
        """Return the line, or None."""
        alpha = history.last(f"policy/alpha_{self._part}", WINDOW)
        gaps = [-gap for gap in _gaps(history, self._part)]
        if not alpha or not gaps or min(gaps) < self._GAP or gaps[-1] < self._CLOSER * gaps[0]:
            return None
        if not rises(alpha) or alpha[-1] < self._GROWTH * self._start:
            return None
        return (
            f"the target entropy is out of reach: policy/entropy_{self._part} stays {short(gaps[-1])} below "
            f"it, while the temperature has grown {alpha[-1] / self._start:.0f}-fold · {self._fix}"
        )


class EntropyTooLow:
    """Rule: the continuous policy has its smallest width, and the target is narrower still.

    Over twelve summaries the entropy stayed at least 1 per action above a target below −3 per action. It came
    no closer by a fifth, itself below −2 per action, while α fell in each of them to less than a thousandth
    of its start. A policy with no reason to be narrow, because actions have no effect, causes no alarm: its
    entropy is near log 2 per action.
    """

    _FALL, _GAP, _CLOSER, _NARROW, _TARGET = 1e-3, 1.0, 0.8, -2.0, 3.0

    def __init__(self, sac: SacConfig) -> None:
        self._start = math.exp(sac.init_log_alpha)
        self._target = sac.target_c_alpha

    def __call__(self, history: History) -> str | None:
        """Return the line, or None."""
        alpha, gaps = history.last("policy/alpha_c", WINDOW), _gaps(history, "c")
        target = history.last("policy/target_entropy_c", 1)
        if self._target < self._TARGET or not alpha or not gaps or not target:
            return None
        actions = -target[0] / self._target
        entropy = target[0] + gaps[-1]
        stuck = min(gaps) >= self._GAP * actions and gaps[-1] >= self._CLOSER * gaps[0]
        falling = rises(alpha[::-1]) and alpha[-1] < self._FALL * self._start
        if not stuck or not falling or entropy > self._NARROW * actions:
            return None
        return (
            f"the target entropy is out of reach: policy/entropy_c stays {short(gaps[-1])} above it, while "
            f"the temperature has fallen to {short(alpha[-1])} · lower sac_config.target_c_alpha "
            f"({self._target:g}; usual: 1)"
        )


def _gaps(history: History, part: str) -> list[float]:
    """Return entropy less its target over the whole window; empty unless all summaries have both."""
    entropy = history.last(f"policy/entropy_{part}", WINDOW)
    target = history.last(f"policy/target_entropy_{part}", WINDOW)
    return [e - t for e, t in zip(entropy, target, strict=True)] if entropy and target else []


def _less_entropy(sac: SacConfig, part: str) -> str:
    if part == "d":
        return f"lower sac_config.target_d_alpha ({sac.target_d_alpha:g})"
    return f"raise sac_config.target_c_alpha ({sac.target_c_alpha:g})"
