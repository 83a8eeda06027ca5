"""Health rules of TD3: values beyond what is possible, and actions that no longer differ."""

from __future__ import annotations

from functools import partial

from algorithm.agents.behaviour_config import BehaviourConfig
from algorithm.agents.health import WINDOW, History, Rule, rises
from algorithm.agents.td3.config import shared_keys
from algorithm.core.errors import RUN_BLOCK
from algorithm.core.wording import short

WATCHED = (
    "rollout/return_mean",
    "rollout/return_min",
    "rollout/return_max",
    "rollout/length",
    "value/q_mean",
    "policy/saturation",
)
"""Metrics kept of a summary."""


def make_rules(config: BehaviourConfig) -> dict[str, Rule]:
    """Return the rules by name."""
    return {"diverging": partial(diverging, shared_keys(config).gamma), "saturated": saturated}


def diverging(gamma: float, history: History) -> str | None:
    """Return a line once abs(value/q_mean) rose five times, two-fold in all, beyond five possible returns."""
    sizes = [abs(value) for value in history.last("value/q_mean", 6)]
    if not sizes or not history.largest_return or not rises(sizes) or sizes[-1] < 2.0 * sizes[0]:
        return None
    possible = history.earned(gamma)
    if sizes[-1] <= 5.0 * possible:
        return None
    found = short(history.last("value/q_mean", 1)[0])
    return (
        f"the critics diverge: value/q_mean is {found}, and no more than {short(possible)} is possible "
        f"· lower {RUN_BLOCK}.learning_rate or {RUN_BLOCK}.tau"
    )


def saturated(history: History) -> str | None:
    """Return a line once 95 % of actions were at their bounds, for the return of random ones."""
    shares = history.last("policy/saturation", WINDOW)
    returns = history.known("rollout/return_mean", WINDOW)
    if not shares or min(shares) < 0.95 or len(returns) < WINDOW // 2 or history.span(WINDOW - 1) < 5000:
        return None
    before, now = history.random_return, sum(returns) / len(returns)
    if now > before:
        return None
    return (
        f"actions are stuck at their bounds: policy/saturation is {short(shares[-1])}, and episodes return "
        f"{short(now)}, no more than random actions did ({short(before)}) · lower {RUN_BLOCK}.learning_rate, "
        "or raise td3_config.exploration_noise"
    )
