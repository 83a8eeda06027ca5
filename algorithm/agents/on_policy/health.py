"""Health rules of PPO and A2C, over the last summaries; see ``sac/health.py`` for what they owe.

Each asks for returns that are no better, since a policy that learns needs no advice. A metric of a summary is
that of its last rollout, and rollouts are noisy: what holds in every one of many is no accident.
"""

from __future__ import annotations

from algorithm.agents.behaviour_config import BehaviourConfig
from algorithm.agents.health import WINDOW, History, Rule, rises
from algorithm.agents.on_policy.config import BLOCKS, A2cConfig, PpoConfig, own_block
from algorithm.core.errors import RUN_BLOCK
from algorithm.core.wording import short

WATCHED = (
    "rollout/return_mean",
    "rollout/return_min",
    "rollout/return_max",
    "rollout/length",
    "policy/entropy_share",
    "policy/std",
    "ppo/approx_kl",
    "ppo/clip_fraction",
    "ppo/explained_variance",
)
"""Metrics kept of a summary."""


def make_rules(config: BehaviourConfig) -> dict[str, Rule]:
    """Return the rules that can hold for this configuration, by name."""
    own, name = own_block(config), BLOCKS[config.algorithm]
    rules: dict[str, Rule] = {
        "values": ValuesLearnNothing(own, name, scaled=config.run.reward_scaling),
        "collapsed": CollapsedEntropy(own, name),
        "widening": WideningPolicy(own, name),
    }
    if isinstance(own, PpoConfig):
        rules["too_far"] = MovesTooFar(own)
    return rules


def _no_better(history: History) -> tuple[float, float] | None:
    """Return the first return and the mean of the last ones, where they are known and no better."""
    returns = history.known("rollout/return_mean", WINDOW)
    if len(returns) < WINDOW // 2 or not history.random_returns:
        return None
    first, now = history.random_returns[0], sum(returns) / len(returns)
    return (first, now) if now <= first else None


class MovesTooFar:
    """Rule: an update of a rollout changes the policy too much, and returns fall.

    In six summaries ppo/approx_kl was above 0.1, or half of the ratios had left the clip; Spinning Up's page
    calls 0.01 and 0.05 usual for ``target_kl``. Mean returns of the later half of the last twelve summaries
    are below those of the earlier half.
    """

    _COUNT, _KL, _SHARE = 6, 0.1, 0.5

    def __init__(self, own: PpoConfig) -> None:
        self._fix = (
            f"lower ppo_config.learning_rate ({own.learning_rate:g}) or ppo_config.num_epoch "
            f"({own.num_epoch})" + (", or set ppo_config.target_kl" if own.target_kl is None else "")
        )

    def __call__(self, history: History) -> str | None:
        """Return the line, or None."""
        kl = history.last("ppo/approx_kl", self._COUNT)
        clipped = history.last("ppo/clip_fraction", self._COUNT)
        returns = history.known("rollout/return_mean", WINDOW)
        if not kl or not clipped or len(returns) < self._COUNT:
            return None
        if min(kl) <= self._KL and min(clipped) <= self._SHARE:
            return None
        half = len(returns) // 2
        before, now = sum(returns[:half]) / half, sum(returns[-half:]) / half
        if now >= before:
            return None
        return (
            f"updates move the policy too far: ppo/approx_kl is {short(kl[-1])} and ppo/clip_fraction "
            f"{short(clipped[-1])}, and returns fall, {short(now)} after {short(before)} · {self._fix}"
        )


class ValuesLearnNothing:
    """Rule: values explain nothing of the returns, in twelve summaries, and returns are no better.

    ppo/explained_variance was never above 0, which a constant reaches. Returns that hardly differ leave
    nothing to explain, which is how a task that is solved looks: hence the look at the returns.
    """

    def __init__(self, own: PpoConfig | A2cConfig, name: str, *, scaled: bool) -> None:
        keys = [f"{name}.value_coef ({own.value_coef:g})", f"{name}.learning_rate ({own.learning_rate:g})"]
        self._fix = f"raise {' or '.join(keys)}, or lower {name}.gae_lambda ({own.gae_lambda:g})"
        if not scaled:
            self._fix += f", or set {RUN_BLOCK}.reward_scaling to true"

    def __call__(self, history: History) -> str | None:
        """Return the line, or None."""
        shares = history.last("ppo/explained_variance", WINDOW)
        found = _no_better(history)
        if not shares or max(shares) > 0.0 or found is None:
            return None
        first, now = found
        return (
            f"values learn nothing: ppo/explained_variance is {short(shares[-1])}, and episodes return "
            f"{short(now)}, no more than at the start ({short(first)}) · {self._fix}"
        )


class CollapsedEntropy:
    """Rule: the policy has stopped trying other choices before it got better.

    policy/entropy_share stayed below 0.01 in six summaries and was above 0.05 within the last twelve. Where
    masks leave one choice it is always low.
    """

    _COUNT, _LOW, _BEFORE = 6, 0.01, 0.05

    def __init__(self, own: PpoConfig | A2cConfig, name: str) -> None:
        self._fix = (
            f"raise {name}.entropy_coef ({own.entropy_coef:g}) or lower {name}.learning_rate "
            f"({own.learning_rate:g})"
        )

    def __call__(self, history: History) -> str | None:
        """Return the line, or None."""
        shares = history.last("policy/entropy_share", self._COUNT)
        found = _no_better(history)
        if not shares or max(shares) >= self._LOW or found is None:
            return None
        if max(history.known("policy/entropy_share", WINDOW)) < self._BEFORE:
            return None
        first, now = found
        return (
            f"the policy has stopped exploring: its entropy is {short(100 * shares[-1])} % of that of random "
            f"choices, and episodes return {short(now)}, no more than at the start ({short(first)}) · "
            f"{self._fix}"
        )


class WideningPolicy:
    """Rule: the standard deviation grows for its own sake.

    policy/std is above 3, where three quarters of the actions are clipped to a bound: 2 − 2Φ(1/3) = 0.74. It
    rose in each of the last five summaries, and returns are no better than at the start.
    """

    _RISES, _WIDE = 5, 3.0

    def __init__(self, own: PpoConfig | A2cConfig, name: str) -> None:
        entropy = f"{name}.entropy_coef ({own.entropy_coef:g})"
        rate = f"{name}.learning_rate ({own.learning_rate:g})"
        self._fix = f"lower {entropy}" if own.entropy_coef else f"lower {rate}"

    def __call__(self, history: History) -> str | None:
        """Return the line, or None."""
        widths = history.last("policy/std", self._RISES + 1)
        found = _no_better(history)
        if not widths or not rises(widths) or widths[-1] <= self._WIDE or found is None:
            return None
        first, now = found
        return (
            f"the policy only grows wider: policy/std is {short(widths[-1])} and still grows, so that most "
            f"actions lie at a bound, and episodes return {short(now)}, no more than at the start "
            f"({short(first)}) · {self._fix}"
        )
