"""The watchdog's rules about temperatures and the entropies that they steer."""

from __future__ import annotations

import math

from algorithm.run.health.history import WINDOW, History, rises
from algorithm.run.pages.wording import short
from algorithm.sac.config import SacConfig


class RunawayTemperature:
    """The bonus for entropy has become worth more than anything the task pays, and grows on.

    α grew at least ten-fold since the start and rose in each of the last five summaries, by a quarter in all;
    α · abs(H̄) · horizon, what the bonus adds to a value, has passed the largest return of any episode. A
    temperature that merely grows with the rewards never gets there: on CartPole it stays below half of that.
    """

    _GROWTH, _RISES, _RECENT = 10.0, 5, 1.25

    def __init__(self, sac: SacConfig, part: str) -> None:
        self._part, self._gamma = part, sac.gamma
        self._start = math.exp(sac.init_log_alpha)
        self._fix = _less_entropy(sac, part)

    def __call__(self, history: History) -> str | None:
        """See the class."""
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
    """The entropy cannot rise to its target, however large the temperature.

    Over twelve summaries it stayed at least 0.1 below and came no closer by a fifth, while α rose in each of
    them to more than a thousand times its start.
    """

    _GROWTH, _GAP, _CLOSER = 1000.0, 0.1, 0.8

    def __init__(self, sac: SacConfig, part: str) -> None:
        self._part = part
        self._start = math.exp(sac.init_log_alpha)
        self._fix = _less_entropy(sac, part)

    def __call__(self, history: History) -> str | None:
        """See the class."""
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
    """The continuous policy is as narrow as it gets and shall be narrower still.

    Over twelve summaries the entropy stayed at least 1 per action above a target below −3 per action and came
    no closer by a fifth, itself below −2 per action, while α fell in each of them to less than a thousandth
    of its start. A policy with no reason to be narrow, because actions do not matter, is not meant: its
    entropy is near that of random actions, log 2 per action.
    """

    _FALL, _GAP, _CLOSER, _NARROW, _TARGET = 1e-3, 1.0, 0.8, -2.0, 3.0

    def __init__(self, sac: SacConfig) -> None:
        self._start = math.exp(sac.init_log_alpha)
        self._target = sac.target_c_alpha

    def __call__(self, history: History) -> str | None:
        """See the class."""
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


def rewarded(sac: SacConfig) -> str:
    """The parts of an action whose entropy is in the targets, and so in values."""
    return "cd" if sac.discrete_soft_target else "c"


def _gaps(history: History, part: str) -> list[float]:
    """Entropy less its target over the whole window; empty unless all summaries have both."""
    entropy = history.last(f"policy/entropy_{part}", WINDOW)
    target = history.last(f"policy/target_entropy_{part}", WINDOW)
    return [e - t for e, t in zip(entropy, target, strict=True)] if entropy and target else []


def _less_entropy(sac: SacConfig, part: str) -> str:
    if part == "d":
        return f"lower sac_config.target_d_alpha ({sac.target_d_alpha:g})"
    return f"raise sac_config.target_c_alpha ({sac.target_c_alpha:g})"
