"""Health rules of TD3: values beyond what is possible, and actions that no longer differ."""

from __future__ import annotations

from functools import partial

from algorithm.agents.behaviour_config import BehaviourConfig
from algorithm.agents.health import RETURNS, WINDOW, History, Rule, grows
from algorithm.agents.td3.config import shared_keys
from algorithm.core.errors import RUN_BLOCK
from algorithm.core.wording import short

WATCHED = (*RETURNS, "value/q_mean", "policy/saturation")
"""Metrics kept of a summary."""


def make_rules(config: BehaviourConfig) -> dict[str, Rule]:
    """Return the rules by name."""
    return {"diverging": partial(diverging, shared_keys(config).gamma), "saturated": saturated}


def diverging(gamma: float, history: History) -> str | None:
    """Return a line once abs(value/q_mean) rose five times, two-fold in all, beyond five possible returns."""
    sizes = [abs(value) for value in history.last("value/q_mean", 6)]
    possible = history.earned(gamma)
    if not history.largest_return or not grows(sizes, 2.0) or sizes[-1] <= 5 * possible:
        return None
    return (
        f"the critics diverge: value/q_mean is {short(history.now('value/q_mean'))}, and no more than "
        f"{short(possible)} is possible · lower {RUN_BLOCK}.learning_rate or {RUN_BLOCK}.tau"
    )


def saturated(history: History) -> str | None:
    """Return a line once 95 % of actions were at their bounds, for the return of random ones."""
    before, now = history.random_return, history.returns()
    at_bounds = history.least("policy/saturation") >= 0.95
    if not at_bounds or history.span(WINDOW - 1) < 5000 or not now <= before:
        return None
    return (
        f"actions are stuck at their bounds: policy/saturation is {short(history.now('policy/saturation'))}, "
        f"and episodes return {short(now)}, no more than random actions did ({short(before)}) · lower "
        f"{RUN_BLOCK}.learning_rate, or raise td3_config.exploration_noise"
    )
