"""Health rules about the values of the critics; see :mod:`algorithm.agents.sac.health`."""

from __future__ import annotations

from algorithm.agents.health import History
from algorithm.agents.sac.config import SacConfig
from algorithm.core.wording import short


def rewarded(sac: SacConfig) -> str:
    """Return the parts of an action whose entropy is in the targets, and so in values."""
    return "cd" if sac.discrete_soft_target else "c"


class HeldBackCritic:
    """Rule: the clip limits a value's change to τ · ε an update, and the TD errors are much larger.

    In three summaries over at least 1,000 steps the clip removed the gradient of 0.8 of the learned
    positions. TD errors of five times ε or more have not fallen by a fifth. A clip that is wide enough for
    the rewards removes hardly any gradient after the first thousand updates.
    """

    _COUNT, _STEPS, _SHARE, _BEYOND, _FALLEN = 3, 1000, 0.8, 5.0, 0.8

    def __init__(self, sac: SacConfig) -> None:
        self._epsilon = sac.clip_epsilon
        self._speed = sac.tau * sac.clip_epsilon / sac.update_target_per_step

    def __call__(self, history: History) -> str | None:
        """Return the line, or None."""
        shares = history.last("value/clipped", self._COUNT)
        errors = history.last("replay/priority_mean", self._COUNT)
        if not shares or not errors or min(shares) < self._SHARE:
            return None
        if min(errors) < self._BEYOND * self._epsilon or errors[-1] < self._FALLEN * errors[0]:
            return None
        if history.span(self._COUNT - 1) < self._STEPS:
            return None
        return (
            f"the clip holds the critics back: value/clipped is {short(shares[-1])}, so that values move by "
            f"about {self._speed:.2g} an update, tau times epsilon; TD errors are {short(errors[-1])} · set "
            f"sac_config.clip_epsilon ({self._epsilon:g}) to -1, which turns it off"
        )


class SaturatedPriorities:
    """Rule: nearly all TD errors reach the limit of priorities, so that all rows are equally likely.

    In six summaries the TD errors of 0.9 of the sampled anchors were ``td_error_max`` or more, and their mean
    was at least twice that.
    """

    _COUNT, _SHARE, _BEYOND = 6, 0.9, 2.0

    def __init__(self, td_error_max: float, *, scaled: bool) -> None:
        """Set the limits; scaled: rewards are on one scale already."""
        self._largest = td_error_max
        raised = f"raise replay_config.td_error_max ({td_error_max:g})"
        self._fix = raised if scaled else f"{raised}, or set sac_config.reward_scaling to true"

    def __call__(self, history: History) -> str | None:
        """Return the line, or None."""
        shares = history.last("replay/priority_saturated", self._COUNT)
        errors = history.last("replay/priority_mean", self._COUNT)
        if (
            not shares
            or not errors
            or min(shares) < self._SHARE
            or min(errors) < self._BEYOND * self._largest
        ):
            return None
        return (
            f"priorities are saturated: replay/priority_saturated is {short(shares[-1])}, so that rows are "
            f"drawn nearly uniformly; TD errors are {short(errors[-1])} · {self._fix}"
        )


class ValuesOfEntropy:
    """Rule: values consist of the entropy bonus, which is highest where no episode ever ends.

    In five summaries ``value/q_mean`` was more than a quarter above the possible value of rewards alone. The
    bonus for the present entropy accounts for that excess, and the mean return is no better than that of
    random actions. A temporarily large temperature does no harm where returns rise.
    """

    _COUNT, _BEYOND = 5, 1.25

    def __init__(self, sac: SacConfig) -> None:
        self._gamma, self._log_alpha, self._rewarded = sac.gamma, sac.init_log_alpha, rewarded(sac)

    def __call__(self, history: History) -> str | None:
        """Return the line, or None."""
        values = history.last("value/q_mean", self._COUNT)
        returns = history.known("rollout/return_mean", self._COUNT)
        earned = history.earned(self._gamma)
        bonus = history.bonus(self._gamma, self._rewarded)
        if not values or len(returns) <= self._COUNT // 2 or not history.largest_return:
            return None
        if min(values) <= self._BEYOND * earned or sum(bonus.values()) < values[-1] - earned:
            return None
        before, now = history.random_return, sum(returns) / len(returns)
        if now > before:
            return None
        return (
            f"values are those of the entropy bonus: value/q_mean is {short(values[-1])}, and rewards allow "
            f"no more than {short(earned)}; episodes return {short(now)}, no more than random actions did "
            f"({short(before)}), since the bonus pays for never finishing · {self._fix(bonus)}"
        )

    def _fix(self, bonus: dict[str, float]) -> str:
        lower = f"lower sac_config.init_log_alpha ({self._log_alpha:g})"
        if max(bonus, key=lambda part: bonus[part]) == "d":
            return f"{lower}, or set sac_config.discrete_soft_target to false"
        return lower


class ClampedTargets:
    """Rule: a histogram's range is too small for the returns.

    In five summaries 0.01 of the targets lay beyond it, and counted as its end.
    """

    _COUNT, _SHARE = 5, 0.01

    def __init__(self, sac: SacConfig) -> None:
        self._range = sac.categorical_range

    def __call__(self, history: History) -> str | None:
        """Return the line, or None."""
        shares = history.last("value/clamped", self._COUNT)
        if not shares or min(shares) < self._SHARE:
            return None
        return (
            f"targets do not fit the histograms of the critics: value/clamped is {short(shares[-1])}, and "
            f"counts as the end of the range · begin anew with sac_config.categorical_range above "
            f"{self._range:g}"
        )


class RunawayStatistics:
    """Rule: the running statistics of a batch norm are not those of the batches, and policies act by them.

    In six summaries a feature's mean in a batch lay three standard deviations off. In sound trainings it is
    below one.
    """

    _COUNT, _FAR = 6, 3.0

    def __init__(self, sac: SacConfig) -> None:
        self._rate = sac.learning_rate

    def __call__(self, history: History) -> str | None:
        """Return the line, or None."""
        for name in ("norm/shift", "norm/shift_policy"):
            shifts = history.last(name, self._COUNT)
            if shifts and min(shifts) >= self._FAR:
                return (
                    f"the statistics of a batch norm run away: {name} is {short(shifts[-1])} standard "
                    f"deviations · lower sac_config.learning_rate ({self._rate:g}), or take norm: layer"
                )
        return None
