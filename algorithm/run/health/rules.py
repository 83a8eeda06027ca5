"""What the watchdog knows: small independent rules over the last summaries.

A rule is a function of the history that returns a line, or None. Each asks for several signs at once, over
many summaries, because a false alarm costs more trust than a late one. The tests hold recorded runs of both
kinds, healthy ones and one in trouble.
"""

from __future__ import annotations

from collections.abc import Callable

from algorithm.config.schema import Config
from algorithm.run.health.history import WINDOW, History, rises
from algorithm.run.health.temperature import EntropyOutOfReach, EntropyTooLow, RunawayTemperature, rewarded
from algorithm.run.health.values import HeldBackCritic, SaturatedPriorities, ValuesOfEntropy
from algorithm.run.pages.wording import short
from algorithm.sac.config import SacConfig

Rule = Callable[[History], "str | None"]


def make_rules(config: Config) -> dict[str, Rule]:
    """The rules that can hold for this configuration, by name."""
    sac = config.sac_config
    rules: dict[str, Rule] = {
        "diverging": DivergingCritics(sac),
        "values_of_entropy": ValuesOfEntropy(sac),
        "saturated": SaturatedActions(),
    }
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
    """Nearly all actions lie at their bounds, and that is no better than acting at random.

    In twelve summaries over at least 5,000 steps, policy/saturation was never below 0.95, and the mean of
    their returns does not exceed that of the random actions at the start. A task whose best actions are the
    bounds is left alone: there the returns have risen.
    """

    _SHARE, _STEPS = 0.95, 5000

    def __call__(self, history: History) -> str | None:
        """See the class."""
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
    """Fewer than 0.8 of the configured updates per step, in five summaries in a row."""

    _COUNT, _SHARE = 5, 0.8

    def __init__(self, ratio: float, capacity: int, batch_size: int) -> None:
        self._ratio, self._capacity, self._batch_size = ratio, capacity, batch_size

    def __call__(self, history: History) -> str | None:
        """See the class."""
        achieved = history.last("time/replay_ratio", self._COUNT)
        if not achieved or max(achieved) >= self._SHARE * self._ratio:
            return None
        return (
            f"the replay ratio is not kept: time/replay_ratio is {short(achieved[-1])} of {self._ratio:g}, "
            "since the replay often holds no whole batch · raise replay_config.capacity "
            f"({self._capacity}) or lower sac_config.batch_size ({self._batch_size})"
        )


class StarvedLearner:
    """Nothing was learned over five summaries in which at least ten updates were due.

    What was learned last stays in the metrics, so that without an update the loss is the same to the last
    digit; before the first update there is none.
    """

    _COUNT, _DUE = 5, 10

    def __init__(self, sac: SacConfig) -> None:
        self._per_step = sac.replay_ratio if sac.use_replay_buffer else 1 / (sac.batch_size * sac.learn_step)
        self._start_step, self._batch_size = sac.start_step, sac.batch_size

    def __call__(self, history: History) -> str | None:
        """See the class."""
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
    """Values far beyond what any behaviour could earn.

    abs(value/q_mean) rose in each of the last five summaries, two-fold in all, to more than five times the
    largest return, or largest reward · 1 / (1 − γ) where that is more, plus what the entropy bonus may add.
    """

    _RISES, _GROWTH, _BEYOND = 5, 2.0, 5.0

    def __init__(self, sac: SacConfig) -> None:
        self._gamma, self._rewarded = sac.gamma, rewarded(sac)
        averaged = f"sac_config.tau ({sac.tau:g})"
        self._fix = f"lower sac_config.learning_rate ({sac.learning_rate:g}) or {averaged}" + (
            f", or sac_config.n_step ({sac.n_step})" if sac.n_step > 1 else ""
        )

    def __call__(self, history: History) -> str | None:
        """See the class."""
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
