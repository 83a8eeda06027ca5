"""The watchdog's rules about values and TD errors that do not fit the scale of the rewards."""

from __future__ import annotations

from algorithm.run.health.history import History
from algorithm.run.health.temperature import rewarded
from algorithm.run.pages.wording import short
from algorithm.sac.config import SacConfig


class HeldBackCritic:
    """The clip lets values move by no more than τ · ε an update, and they have far to go.

    In three summaries over at least 1,000 steps the clip took the gradient of 0.8 of what was learned, and TD
    errors of five times ε or more have not fallen by a fifth. Where the clip is wide enough for the rewards
    it takes hardly any after the first thousand updates.
    """

    _COUNT, _STEPS, _SHARE, _BEYOND, _FALLEN = 3, 1000, 0.8, 5.0, 0.8

    def __init__(self, sac: SacConfig) -> None:
        self._epsilon = sac.clip_epsilon
        self._speed = sac.tau * sac.clip_epsilon / sac.update_target_per_step

    def __call__(self, history: History) -> str | None:
        """See the class."""
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
    """Nearly all TD errors count as the largest one, so that all rows are equally likely.

    In six summaries the TD errors of 0.9 of the sampled anchors were ``td_error_max`` or more, and their mean
    was at least twice that.
    """

    _COUNT, _SHARE, _BEYOND = 6, 0.9, 2.0

    def __init__(self, td_error_max: float, *, scaled: bool) -> None:
        """scaled: rewards are on one scale already."""
        self._largest = td_error_max
        raised = f"raise replay_config.td_error_max ({td_error_max:g})"
        self._fix = raised if scaled else f"{raised}, or set sac_config.reward_scaling to true"

    def __call__(self, history: History) -> str | None:
        """See the class."""
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
    """Values are those of the entropy bonus, which is highest where no episode ever ends.

    In five summaries ``value/q_mean`` was more than a quarter above what rewards alone can make of it, the
    bonus for the entropy of now is worth that excess, and the mean return is no better than that of random
    actions. A temperature that is large for a while harms nobody whose returns rise.
    """

    _COUNT, _BEYOND = 5, 1.25

    def __init__(self, sac: SacConfig) -> None:
        self._gamma, self._log_alpha, self._rewarded = sac.gamma, sac.init_log_alpha, rewarded(sac)

    def __call__(self, history: History) -> str | None:
        """See the class."""
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
