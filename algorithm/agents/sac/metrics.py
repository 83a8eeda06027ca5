"""Metrics of Soft Actor-Critic, with their meaning, and their charts in a report.

Health rules of Soft Actor-Critic: those of any critics, and those of entropy and its temperatures.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial

from algorithm.agents.health import History, Rule, grows
from algorithm.agents.off_policy import metrics
from algorithm.agents.off_policy.metrics import critic_rules
from algorithm.agents.sac.config import SacConfig, sac_keys
from algorithm.core.console import panel, readout
from algorithm.core.wording import short
from algorithm.keys.behaviour import BehaviourConfig

METRICS: Mapping[str, str] = {
    "loss/alpha": "loss of temperatures, continuous plus discrete part",
    "policy/entropy_c": "entropy of the continuous part",
    "policy/target_entropy_c": "target of the continuous entropy",
    "policy/alpha_c": "temperature of the continuous part",
    "policy/entropy_d": "entropy of the discrete part, mean over branches",
    "policy/target_entropy_d": "target of the discrete entropy",
    "policy/alpha_d": "temperature of the discrete part",
}

PANELS = (
    panel("Entropy, discrete", entropy="policy/entropy_d", aims={"policy/target_entropy_d": "target"}),
    panel("Entropy, continuous", entropy="policy/entropy_c", aims={"policy/target_entropy_c": "target"}),
    panel("Temperature", log=True, discrete="policy/alpha_d", continuous="policy/alpha_c"),
    panel("Temperature loss", loss="loss/alpha"),
)

READOUTS = (
    readout("loss", q="loss/q", policy="loss/policy", alpha="loss/alpha", gradient="optim/grad_norm"),
    readout(
        "continuous",
        entropy="policy/entropy_c",
        target="policy/target_entropy_c",
        temperature="policy/alpha_c",
    ),
    readout(
        "discrete",
        entropy="policy/entropy_d",
        target="policy/target_entropy_d",
        temperature="policy/alpha_d",
    ),
)

WATCHED = (
    *metrics.WATCHED,
    *(f"policy/{name}_{part}" for name in ("entropy", "target_entropy", "alpha") for part in "cd"),
)
"""Metrics of a summary that health rules read."""


def make_rules(config: BehaviourConfig) -> dict[str, Rule]:
    """Return the health rules that apply to this configuration, by name."""
    sac = sac_keys(config)
    rules = critic_rules(config, sac, bonus=lambda history: sum(map(abs, _bonus(sac, history).values())))
    rules["values_of_entropy"] = partial(values_of_entropy, sac)
    if sac.use_auto_alpha:
        for part in "cd":
            rules[f"temperature_{part}"] = partial(runaway_temperature, sac, part)
    return rules


def values_of_entropy(sac: SacConfig, history: History) -> str | None:
    """Report that values consist of the entropy bonus, which is highest where no episode ever ends.

    In five summaries ``value/q_mean`` was more than a quarter above the possible value of rewards alone. The
    bonus for the present entropy accounts for that excess, and the mean return is no better than that of
    random actions. A temporarily large temperature does no harm where returns rise.
    """
    random_return, mean_return, q_mean = (
        history.random_return,
        history.returns(5),
        history.now("value/q_mean"),
    )
    earned, bonus = history.earned(sac.gamma), _bonus(sac, history)
    beyond = history.least("value/q_mean", 5) > 1.25 * earned and sum(bonus.values()) >= q_mean - earned
    if not history.largest_return or not beyond or not mean_return <= random_return:
        return None
    discrete = bonus.get("d", -math.inf) > bonus.get("c", -math.inf)
    other = ", or set sac_config.discrete_soft_target to false" if discrete else ""
    return (
        f"values come mostly from the entropy bonus: value/q_mean is {short(q_mean)}, but rewards allow no "
        f"more than {short(earned)}; episodes return {short(mean_return)}, no more than random actions did "
        f"({short(random_return)}), because the bonus rewards never finishing · "
        f"lower sac_config.init_log_alpha ({sac.init_log_alpha:g}){other}"
    )


def runaway_temperature(sac: SacConfig, part: str, history: History) -> str | None:
    """Report a growing bonus in a value, α · abs(H̄) · horizon, above the largest return of any episode.

    α rose in each of five summaries, by a quarter in all, to ten times its start. A temperature that merely
    grows with the rewards stays below that: on CartPole at less than half.
    """
    alpha = history.last(f"policy/alpha_{part}", 6)
    start, unit = math.exp(sac.init_log_alpha), _return_scale(history) * history.horizon(sac.gamma)
    bonus = history.now(f"policy/alpha_{part}") * abs(history.now(f"policy/target_entropy_{part}")) * unit
    if not grows(alpha, 1.25) or alpha[-1] < 10 * start or not 0 < history.largest_return < bonus:
        return None
    scaled = "" if history.reward_scale == 1 else f", scaled by reward_scale ({history.reward_scale:g})"
    return (
        f"the temperature runs away: policy/alpha_{part} is {short(alpha[-1])}, {alpha[-1] / start:.0f} "
        f"times its start, and still grows; the bonus adds {short(bonus)} to a value, but no episode "
        f"returned more than {short(history.largest_return)}{scaled} · {_less_entropy(sac, part)}"
    )


def _bonus(sac: SacConfig, history: History) -> dict[str, float]:
    """Return the bonus of the present entropy in a value, by action part whose entropy is in the targets."""
    unit = _return_scale(history) * history.ahead(sac.gamma)
    bonuses = {
        part: history.now(f"policy/alpha_{part}") * history.now(f"policy/entropy_{part}") * unit
        for part in ("cd" if sac.discrete_soft_target else "c")
    }
    return {part: bonus for part, bonus in bonuses.items() if math.isfinite(bonus)}


def _less_entropy(sac: SacConfig, part: str) -> str:
    if part == "d":
        return f"lower sac_config.target_d_alpha ({sac.target_d_alpha:g})"
    return f"raise sac_config.target_c_alpha ({sac.target_c_alpha:g})"


def _return_scale(history: History) -> float:
    """Return the divisor of rewards with ``reward_scaling``, else 1."""
    return next(iter(history.last("value/return_scale", 1)), 1.0)
