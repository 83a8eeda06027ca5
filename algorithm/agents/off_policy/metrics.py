"""Metrics of off-policy learning and its extensions, with their meaning, and their charts in a report.

Health rules of any learner with critics, each a function and a row of the table in :func:`critic_rules`.

Each requires several signs at once, over many summaries, because a false alarm costs more trust than a late
one. They are tested with recorded healthy runs, and with runs in trouble.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from algorithm.agents.health import RETURNS, History, Rule, grows
from algorithm.agents.off_policy.config import OffPolicyConfig
from algorithm.core.console import panel
from algorithm.core.wording import short
from algorithm.keys.behaviour import BehaviourConfig

METRICS: Mapping[str, str] = {
    "loss/q": "loss of critics and encoder",
    "loss/policy": "policy loss, continuous plus discrete part",
    "loss/transition": "loss of the transition model",
    "loss/reward": "loss of the reward model",
    "loss/observation": "loss of the observation model",
    "loss/siamese": "loss of ATC or BYOL",
    "loss/siamese_q": "critics' error on augmented observations",
    "siamese/accuracy": "share of ATC's anchors matched correctly",
    "value/q_mean": "mean Q-value of stored actions",
    "value/target": "mean target of critics or values",
    "value/clipped": "share of Q-values that `clip_epsilon` clips",
    "value/spread": "spread of quantiles in units of reward",
    "value/clamped": "share of targets beyond `categorical_range`",
    "value/return_scale": "divisor of rewards with `reward_scaling`",
    "policy/saturation": "share of continuous actions at their bounds",
    "vtrace/rho_mean": "mean clipped importance ratio",
    "vtrace/clip_frac": "share of clipped ratios",
    "loss/curiosity": "loss of the curiosity model",
    "curiosity/bonus_mean": "mean curiosity bonus",
    "curiosity/bonus_std": "standard deviation of the bonus",
    "loss/rnd": "loss of RND's predictor",
}

PANELS = (
    panel("Values", critics="value/q_mean", target="value/target"),
    panel("Critic loss", log=True, loss="loss/q"),
    panel("Policy loss", loss="loss/policy"),
    panel("Share of actions at their bounds", share="policy/saturation"),
)

WATCHED = (
    *RETURNS,
    "value/q_mean",
    "value/clipped",
    "value/return_scale",
    "replay/priority_mean",
)
"""Metrics of a summary that health rules read."""


def critic_rules(
    config: BehaviourConfig, keys: OffPolicyConfig, bonus: Callable[[History], float] = lambda _: 0.0
) -> dict[str, Rule]:
    """Return the health rules that apply to this configuration, by name.

    keys:  shared keys, with the values that the algorithm prescribes
    bonus: returns the most that an algorithm adds to a value of rewards, such as an entropy bonus
    """
    table = (
        ("diverging", True, partial(diverging_critics, keys, bonus)),
        ("held_back", keys.clip_epsilon > 0, partial(held_back_critic, keys)),
    )
    return {name: rule for name, applies, rule in table if applies}


def diverging_critics(
    keys: OffPolicyConfig, bonus: Callable[[History], float], history: History
) -> str | None:
    """Report that values rose in each of five summaries, two-fold in all, to five times what is possible.

    That is the largest return, or largest reward · 1 / (1 − γ) if that is larger, plus the largest bonus.
    """
    sizes = [abs(value) for value in history.last("value/q_mean", 6)]
    possible = history.earned(keys.gamma) + bonus(history)
    if not history.largest_return or not grows(sizes, 2.0) or sizes[-1] <= 5 * possible:
        return None
    n_step = f", or sac_config.n_step ({keys.n_step})" if keys.n_step > 1 else ""
    return (
        f"the critics diverge: value/q_mean is {short(history.now('value/q_mean'))}, but no more than "
        f"{short(possible)} is possible · lower sac_config.learning_rate ({keys.learning_rate:g}) or "
        f"sac_config.tau ({keys.tau:g}){n_step}"
    )


def held_back_critic(keys: OffPolicyConfig, history: History) -> str | None:
    """Report that the clip limits a value's change to τ · ε per update, and the TD errors are much larger.

    In three summaries over 1,000 steps the clip removed the gradient of 0.8 of the learned positions, and TD
    errors of five times ε have not fallen by a fifth. A clip that is wide enough for the rewards removes
    hardly any gradient after the first thousand updates.
    """
    errors = history.last("replay/priority_mean", 3)
    clipped = history.least("value/clipped", 3) >= 0.8 and history.span(2) >= 1000
    if not clipped or not stuck(errors, 5 * keys.clip_epsilon):
        return None
    speed = keys.tau * keys.clip_epsilon / keys.update_target_per_step
    return (
        f"the clip holds the critics back: value/clipped is {short(history.now('value/clipped'))}, so "
        f"values move by only about {speed:.2g} per update, tau times epsilon; TD errors are "
        f"{short(errors[-1])} · set sac_config.clip_epsilon ({keys.clip_epsilon:g}) to -1, which turns it "
        "off"
    )


def stuck(values: list[float], least: float) -> bool:
    """Return whether all values are at least ``least``, and the last is less than a fifth below the first."""
    return bool(values) and min(values) >= least and values[-1] >= 0.8 * values[0]
