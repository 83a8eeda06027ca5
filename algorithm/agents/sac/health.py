"""Health rules of Soft Actor-Critic, each a function and a row of the table in :func:`make_rules`.

Each requires several signs at once, over many summaries, because a false alarm costs more trust than a late
one. The tests hold recorded runs of both kinds, healthy ones and one in trouble.
"""

from __future__ import annotations

import math
from functools import partial

from algorithm.agents.behaviour_config import BehaviourConfig
from algorithm.agents.health import RETURNS, WINDOW, History, Rule, grows
from algorithm.agents.sac.config import SacConfig, sac_keys
from algorithm.core.wording import short

WATCHED = (
    *RETURNS,
    "loss/q",
    "value/q_mean",
    "value/clipped",
    "value/clamped",
    "norm/shift",
    "norm/shift_policy",
    "value/return_scale",
    *(f"policy/{name}_{part}" for name in ("entropy", "target_entropy", "alpha") for part in "cd"),
    "policy/saturation",
    "replay/priority_mean",
    "replay/priority_saturated",
    "time/replay_ratio",
)
"""Metrics kept of a summary."""


def make_rules(config: BehaviourConfig) -> dict[str, Rule]:
    """Return the rules that can hold for this configuration, by name."""
    sac = sac_keys(config)
    replay, learned = sac.use_replay_buffer, sac.use_auto_alpha
    table = (
        ("diverging", True, diverging_critics),
        ("values_of_entropy", True, values_of_entropy),
        ("saturated", True, saturated_actions),
        ("statistics", True, runaway_statistics),
        ("clamped", sac.value_head == "categorical", clamped_targets),
        ("held_back", sac.clip_epsilon > 0, held_back_critic),
        ("priorities", sac.use_priority and replay, saturated_priorities),
        ("temperature_c", learned, partial(runaway_temperature, part="c")),
        ("temperature_d", learned, partial(runaway_temperature, part="d")),
        ("too_much_entropy_c", learned, partial(entropy_out_of_reach, part="c")),
        ("too_much_entropy_d", learned, partial(entropy_out_of_reach, part="d")),
        ("too_little_entropy", learned, entropy_too_low),
        ("ratio", replay, ratio_not_kept),
        ("starved", True, starved_learner),
    )
    return {name: partial(rule, config) for name, applies, rule in table if applies}


def saturated_actions(config: BehaviourConfig, history: History) -> str | None:
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


def ratio_not_kept(config: BehaviourConfig, history: History) -> str | None:
    """Report that fewer than 0.8 of the configured updates per step were made, in five summaries in a row."""
    sac = sac_keys(config)
    if not history.most("time/replay_ratio", 5) < 0.8 * sac.replay_ratio:
        return None
    return (
        f"the replay ratio is not kept: time/replay_ratio is {short(history.now('time/replay_ratio'))} of "
        f"{sac.replay_ratio:g}, since the replay often holds no whole batch · raise replay_config.capacity "
        f"({config.replay_config.capacity}) or lower sac_config.batch_size ({sac.batch_size})"
    )


def starved_learner(config: BehaviourConfig, history: History) -> str | None:
    """Report that no update was made in five summaries in which at least ten were due.

    The metrics keep the values of the last update. Without a new one the loss is therefore the same to the
    last digit; before the first update there is none.
    """
    sac, rows = sac_keys(config), list(history.rows)[-6:]
    if len(rows) < 6 or rows[0].step < sac.start_step:
        return None
    steps = history.span(5)
    due = steps * (sac.replay_ratio if sac.use_replay_buffer else 1 / (sac.batch_size * sac.learn_step))
    if due < 10 or len({row.values.get("loss/q") for row in rows}) > 1:
        return None
    return (
        f"the learner is starved: not one update in the last {steps:,} steps, since the replay holds no "
        f"whole batch · raise replay_config.capacity or lower sac_config.batch_size ({sac.batch_size})"
    )


def diverging_critics(config: BehaviourConfig, history: History) -> str | None:
    """Report that values rose in each of five summaries, two-fold in all, to five times what is possible.

    That is the largest return, or largest reward · 1 / (1 − γ) if that is larger, plus the largest bonus.
    """
    sac = sac_keys(config)
    sizes = [abs(value) for value in history.last("value/q_mean", 6)]
    possible = history.earned(sac.gamma) + sum(map(abs, _bonus(sac, history).values()))
    if not history.largest_return or not grows(sizes, 2.0) or sizes[-1] <= 5 * possible:
        return None
    n_step = f", or sac_config.n_step ({sac.n_step})" if sac.n_step > 1 else ""
    return (
        f"the critics diverge: value/q_mean is {short(history.now('value/q_mean'))}, and no more than "
        f"{short(possible)} is possible · lower sac_config.learning_rate ({sac.learning_rate:g}) or "
        f"sac_config.tau ({sac.tau:g}){n_step}"
    )


def runaway_temperature(config: BehaviourConfig, history: History, *, part: str) -> str | None:
    """Report a growing bonus in a value, α · abs(H̄) · horizon, above the largest return of any episode.

    α rose in each of five summaries, by a quarter in all, to ten times its start. A temperature that merely
    grows with the rewards stays below that: on CartPole at less than half.
    """
    sac, alpha = sac_keys(config), history.last(f"policy/alpha_{part}", 6)
    start, unit = math.exp(sac.init_log_alpha), _return_scale(history) * history.horizon(sac.gamma)
    bonus = history.now(f"policy/alpha_{part}") * abs(history.now(f"policy/target_entropy_{part}")) * unit
    if not grows(alpha, 1.25) or alpha[-1] < 10 * start or not 0 < history.largest_return < bonus:
        return None
    scaled = "" if history.reward_scale == 1 else f", scaled by reward_scale ({history.reward_scale:g})"
    return (
        f"the temperature runs away: policy/alpha_{part} is {short(alpha[-1])}, {alpha[-1] / start:.0f} "
        f"times its start, and still grows; its bonus adds {short(bonus)} to a value, and no "
        f"episode returned more than {short(history.largest_return)}{scaled} · {_less_entropy(sac, part)}"
    )


def entropy_out_of_reach(config: BehaviourConfig, history: History, *, part: str) -> str | None:
    """Report that the entropy cannot rise to its target, however large the temperature.

    Over twelve summaries it stayed at least 0.1 below and came no closer by a fifth, while α rose in each of
    them to a thousand times its start.
    """
    sac, alpha = sac_keys(config), history.last(f"policy/alpha_{part}")
    start, missing = math.exp(sac.init_log_alpha), [-gap for gap in _gaps(history, part)]
    if not _stuck(missing, 0.1) or not grows(alpha) or alpha[-1] < 1000 * start:
        return None
    return (
        f"the target entropy is out of reach: policy/entropy_{part} stays {short(missing[-1])} below it, "
        f"while the temperature has grown {alpha[-1] / start:.0f}-fold · {_less_entropy(sac, part)}"
    )


def entropy_too_low(config: BehaviourConfig, history: History) -> str | None:
    """Report that the continuous policy has its smallest width, and the target is narrower still.

    Over twelve summaries the entropy stayed at least 1 per action above a target below −3 per action. It came
    no closer by a fifth, itself below −2 per action, while α fell in each of them to less than a thousandth
    of its start. A policy with no reason to be narrow, because actions have no effect, causes no alarm: its
    entropy is near log 2 per action.
    """
    sac, alpha, gaps = sac_keys(config), history.last("policy/alpha_c"), _gaps(history, "c")
    if sac.target_c_alpha < 3:
        return None
    actions = -history.now("policy/target_entropy_c") / sac.target_c_alpha
    falling = grows(alpha[::-1]) and alpha[-1] < 1e-3 * math.exp(sac.init_log_alpha)
    narrow = history.now("policy/entropy_c") <= -2 * actions
    if not _stuck(gaps, actions) or not falling or not narrow:
        return None
    return (
        f"the target entropy is out of reach: policy/entropy_c stays {short(gaps[-1])} above it, while the "
        f"temperature has fallen to {short(alpha[-1])} · lower sac_config.target_c_alpha "
        f"({sac.target_c_alpha:g}; usual: 1)"
    )


def held_back_critic(config: BehaviourConfig, history: History) -> str | None:
    """Report that the clip limits a value's change to τ · ε an update, and the TD errors are much larger.

    In three summaries over 1,000 steps the clip removed the gradient of 0.8 of the learned positions, and TD
    errors of five times ε have not fallen by a fifth. A clip that is wide enough for the rewards removes
    hardly any gradient after the first thousand updates.
    """
    sac, errors = sac_keys(config), history.last("replay/priority_mean", 3)
    clipped = history.least("value/clipped", 3) >= 0.8 and history.span(2) >= 1000
    if not clipped or not _stuck(errors, 5 * sac.clip_epsilon):
        return None
    speed = sac.tau * sac.clip_epsilon / sac.update_target_per_step
    return (
        f"the clip holds the critics back: value/clipped is {short(history.now('value/clipped'))}, so that "
        f"values move by about {speed:.2g} an update, tau times epsilon; TD errors are {short(errors[-1])} · "
        f"set sac_config.clip_epsilon ({sac.clip_epsilon:g}) to -1, which turns it off"
    )


def saturated_priorities(config: BehaviourConfig, history: History) -> str | None:
    """Report that nearly all priorities are the largest there is, so that they choose nothing.

    In six summaries 0.9 of the TD errors were ``td_error_max`` or more, and their mean was twice that.
    """
    largest = config.replay_config.td_error_max
    shares, errors = "replay/priority_saturated", "replay/priority_mean"
    if not (history.least(shares, 6) >= 0.9 and history.least(errors, 6) >= 2 * largest):
        return None
    scaling = "" if sac_keys(config).reward_scaling else ", or set sac_config.reward_scaling to true"
    return (
        f"priorities are saturated: {shares} is {short(history.now(shares))}, so that rows are drawn nearly "
        f"uniformly; TD errors are {short(history.now(errors))} · raise replay_config.td_error_max "
        f"({largest:g}){scaling}"
    )


def values_of_entropy(config: BehaviourConfig, history: History) -> str | None:
    """Report that values consist of the entropy bonus, which is highest where no episode ever ends.

    In five summaries ``value/q_mean`` was more than a quarter above the possible value of rewards alone. The
    bonus for the present entropy accounts for that excess, and the mean return is no better than that of
    random actions. A temporarily large temperature does no harm where returns rise.
    """
    sac = sac_keys(config)
    before, now, value = history.random_return, history.returns(5), history.now("value/q_mean")
    earned, bonus = history.earned(sac.gamma), _bonus(sac, history)
    beyond = history.least("value/q_mean", 5) > 1.25 * earned and sum(bonus.values()) >= value - earned
    if not history.largest_return or not beyond or not now <= before:
        return None
    discrete = bonus.get("d", -math.inf) > bonus.get("c", -math.inf)
    other = ", or set sac_config.discrete_soft_target to false" if discrete else ""
    return (
        f"values are those of the entropy bonus: value/q_mean is {short(value)}, and rewards allow no more "
        f"than {short(earned)}; episodes return {short(now)}, no more than random actions did "
        f"({short(before)}), since the bonus pays for never finishing · lower sac_config.init_log_alpha "
        f"({sac.init_log_alpha:g}){other}"
    )


def clamped_targets(config: BehaviourConfig, history: History) -> str | None:
    """Report that 0.01 of the targets lay beyond a histogram's range, in five summaries."""
    if not history.least("value/clamped", 5) >= 0.01:
        return None
    return (
        f"targets do not fit the histograms of the critics: value/clamped is "
        f"{short(history.now('value/clamped'))}, and counts as the end of the range · begin anew with "
        f"sac_config.categorical_range above {sac_keys(config).categorical_range:g}"
    )


def runaway_statistics(config: BehaviourConfig, history: History) -> str | None:
    """Report a batch norm whose running statistics are not those of the batches; policies act by them.

    In six summaries a mean in a batch lay three standard deviations off; in sound trainings it is below one.
    """
    off = [name for name in ("norm/shift", "norm/shift_policy") if history.least(name, 6) >= 3]
    if not off:
        return None
    rate = sac_keys(config).learning_rate
    return (
        f"the statistics of a batch norm run away: {off[0]} is {short(history.now(off[0]))} standard "
        f"deviations · lower sac_config.learning_rate ({rate:g}), or take norm: layer"
    )


def _bonus(sac: SacConfig, history: History) -> dict[str, float]:
    """Return the present entropy's bonus in a value, by the parts whose entropy is in the targets."""
    unit = _return_scale(history) * history.ahead(sac.gamma)
    found = {
        part: history.now(f"policy/alpha_{part}") * history.now(f"policy/entropy_{part}") * unit
        for part in ("cd" if sac.discrete_soft_target else "c")
    }
    return {part: bonus for part, bonus in found.items() if math.isfinite(bonus)}


def _return_scale(history: History) -> float:
    """Return the reward that corresponds to 1 in the learner's unit."""
    return next(iter(history.last("value/return_scale", 1)), 1.0)


def _gaps(history: History, part: str) -> list[float]:
    """Return entropy less its target over the whole window; empty unless all summaries have both."""
    entropy, target = (history.last(f"policy/{name}_{part}") for name in ("entropy", "target_entropy"))
    return [e - t for e, t in zip(entropy, target, strict=True)] if entropy and target else []


def _stuck(values: list[float], least: float) -> bool:
    """Return whether all values are at least this large, and the last is no fifth below the first."""
    return bool(values) and min(values) >= least and values[-1] >= 0.8 * values[0]


def _less_entropy(sac: SacConfig, part: str) -> str:
    if part == "d":
        return f"lower sac_config.target_d_alpha ({sac.target_d_alpha:g})"
    return f"raise sac_config.target_c_alpha ({sac.target_c_alpha:g})"
