"""Metrics of off-policy learning and its extensions, with their meaning, and their charts in a report.

Health rules of any learner with critics, each a function and a row of the table in :func:`critic_rules`.

Each requires several signs at once, over many summaries, because a false alarm costs more trust than a late
one. They are tested with recorded healthy runs, and with runs in trouble.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from algorithm.agents.health import RETURNS, WINDOW, History, Rule, grows
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
    "loss/q",
    "value/q_mean",
    "value/clipped",
    "value/clamped",
    "value/return_scale",
    "policy/saturation",
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
        ("saturated", True, saturated_actions),
        ("clamped", keys.value_head == "categorical", partial(clamped_targets, keys)),
        ("held_back", keys.clip_epsilon > 0, partial(held_back_critic, keys)),
        ("starved", True, partial(starved_learner, keys)),
    )
    return {name: rule for name, applies, rule in table if applies}


def saturated_actions(history: History) -> str | None:
    """Report actions at their bounds, in twelve summaries over 5,000 steps, without a gain.

    A task whose best actions are the bounds causes no alarm: there the returns have risen.
    """
    before, now = history.random_return, history.returns()
    at_bounds = history.least("policy/saturation") >= 0.95
    if not at_bounds or history.span(WINDOW - 1) < 5000 or not now <= before:
        return None
    return (
        f"actions are stuck at their bounds: policy/saturation is {short(history.now('policy/saturation'))}, "
        f"and episodes return {short(now)}, no more than random actions did ({short(before)}) · lower "
        "sac_config.learning_rate or the scale of the rewards, or set sac_config.action_noise"
    )


def starved_learner(keys: OffPolicyConfig, history: History) -> str | None:
    """Report that no update was made in five summaries in which at least ten were due.

    The metrics keep the values of the last update. Without a new one the loss is therefore the same to the
    last digit; before the first update there is none.
    """
    rows = list(history.rows)[-6:]
    if len(rows) < 6 or rows[0].step < keys.start_step:
        return None
    steps = history.span(5)
    due = steps * (keys.replay_ratio if keys.use_replay_buffer else 1 / (keys.batch_size * keys.learn_step))
    if due < 10 or len({row.values.get("loss/q") for row in rows}) > 1:
        return None
    return (
        f"the learner is starved: no update in the last {steps:,} steps, because the replay holds less "
        f"than a batch · raise replay_config.capacity or lower sac_config.batch_size ({keys.batch_size})"
    )


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


def clamped_targets(keys: OffPolicyConfig, history: History) -> str | None:
    """Report that 0.01 of the targets lay beyond a histogram's range, in five summaries."""
    if not history.least("value/clamped", 5) >= 0.01:
        return None
    return (
        "targets exceed the range of the critics' histograms and are clipped to it: value/clamped is "
        f"{short(history.now('value/clamped'))} · start a new run with sac_config.categorical_range above "
        f"{keys.categorical_range:g}"
    )


def stuck(values: list[float], least: float) -> bool:
    """Return whether all values are at least ``least``, and the last is less than a fifth below the first."""
    return bool(values) and min(values) >= least and values[-1] >= 0.8 * values[0]
