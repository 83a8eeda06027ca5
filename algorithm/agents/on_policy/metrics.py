"""Metrics of on-policy families, with their meaning, and their charts in a report.

Health rules of on-policy families, under the conditions of ``off_policy/metrics.py``.

Each holds only if returns are no better, since a policy that learns needs no advice. A metric of a summary is
of its last rollout, and rollouts are noisy: a condition must hold in each of several summaries.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from algorithm.agents.health import RETURNS, SIGNALS, History, Rule, certain_discriminator, grows
from algorithm.agents.on_policy.family_config import BLOCKS, AcktrConfig, PpoConfig, own_block
from algorithm.core.console import panel, readout
from algorithm.core.errors import COMMON_BLOCK
from algorithm.core.wording import short
from algorithm.keys.behaviour import BehaviourConfig

METRICS: Mapping[str, str] = {
    "loss/value": "mean squared error of values",
    "policy/entropy": "entropy of the policy",
    "policy/entropy_share": "discrete entropy; 1 is uniformly random",
    "policy/std": "standard deviation of continuous actions",
    "ppo/approx_kl": "KL divergence from the policy that acted",
    "ppo/clip_fraction": "share of clipped ratios",
    "ppo/ratio_max": "largest ratio of action probabilities",
    "ppo/explained_variance": "share of the returns' variance that values explain",
    "ppo/trace_weight": "mean truncated ratio; below 1 for older weights",
    "a3c/staleness": "updates of other processes during one update",
    "ppo/epochs_done": "epochs done, fewer after `target_kl`",
    "acktr/step_scale": "scaling of steps by `kl_clip`",
}

PANELS = (
    panel("Value loss", log=True, loss="loss/value"),
    panel("Entropy of the policy", entropy="policy/entropy"),
    panel("Spread of the policy", entropy="policy/entropy_share", std="policy/std"),
    panel("Divergence from the policy that acted", kl="ppo/approx_kl"),
    panel("Share of clipped ratios", share="ppo/clip_fraction"),
    panel("Share of the natural step", share="acktr/step_scale"),
    panel("Explained variance of the returns", share="ppo/explained_variance"),
    panel("Updates by other processes during one", staleness="a3c/staleness"),
)

_LOSSES = readout(
    "loss",
    policy="loss/policy",
    value="loss/value",
    explained="ppo/explained_variance",
    gradient="optim/grad_norm",
)
READOUTS = (
    _LOSSES,
    readout("policy", entropy="policy/entropy", KL="ppo/approx_kl", clipped="ppo/clip_fraction"),
)
ACKTR_READOUTS = (_LOSSES, readout("policy", entropy="policy/entropy", step="acktr/step_scale"))

WATCHED = (
    *RETURNS,
    *SIGNALS,
    "policy/entropy_share",
    "policy/std",
    "ppo/approx_kl",
    "ppo/clip_fraction",
    "ppo/explained_variance",
)
"""Metrics of a summary that health rules read."""


def make_rules(config: BehaviourConfig) -> dict[str, Rule]:
    """Return the health rules that apply to this configuration, by name."""
    ppo = isinstance(own_block(config), PpoConfig)
    table = (
        ("values", True, values_learn_nothing),
        ("collapsed", True, collapsed_entropy),
        ("widening", True, widening_policy),
        ("too_far", ppo, moves_too_far),
    )
    rules: dict[str, Rule] = {name: partial(rule, config) for name, applies, rule in table if applies}
    keys, gail = own_block(config), config.reward_signals.gail
    if gail.strength:
        size = keys.rollout_step * config.base_config.n_envs
        rate = keys.num_epoch * keys.num_minibatch / size
        rules["told_apart"] = partial(certain_discriminator, rate, gail.gradient_penalty)
    return rules


def moves_too_far(config: BehaviourConfig, history: History) -> str | None:
    """Report that updates on a rollout change the policy too much, and returns fall.

    In six summaries ppo/approx_kl was above 0.1, or half of the ratios were clipped; in Spinning Up 0.01 to
    0.05 are usual for ``target_kl``. Mean returns of the later half of the last twelve summaries are below
    those of the earlier half.
    """
    keys, returns = own_block(config), history.known("rollout/return_mean")
    far = history.least("ppo/approx_kl", 6) > 0.1 or history.least("ppo/clip_fraction", 6) > 0.5
    if not far or len(returns) < 6:
        return None
    half = len(returns) // 2
    before, now = sum(returns[:half]) / half, sum(returns[-half:]) / half
    if now >= before:
        return None
    assert isinstance(keys, PpoConfig)
    target_kl = ", or set ppo_config.target_kl" if keys.target_kl is None else ""
    return (
        f"updates move the policy too far: ppo/approx_kl is {short(history.now('ppo/approx_kl'))} and "
        f"ppo/clip_fraction {short(history.now('ppo/clip_fraction'))}, and returns fall from "
        f"{short(before)} to {short(now)} · lower ppo_config.learning_rate ({keys.learning_rate:g}) or "
        f"ppo_config.num_epoch ({keys.num_epoch}){target_kl}"
    )


def values_learn_nothing(config: BehaviourConfig, history: History) -> str | None:
    """Report that values explain nothing of the returns, in twelve summaries, and returns are no better.

    ppo/explained_variance was never above 0, which a constant value reaches. In a solved task returns hardly
    differ, so there is no variance to explain: therefore returns are compared, too.
    """
    keys, name = own_block(config), BLOCKS[config.algorithm]
    if not history.most("ppo/explained_variance") <= 0 or not _no_better(history):
        return None
    scaling = "" if config.run.reward_scaling is True else f", or set {COMMON_BLOCK}.reward_scaling to true"
    return (
        f"values learn nothing: ppo/explained_variance is {short(history.now('ppo/explained_variance'))}, "
        f"and {_returns(history)} · raise {name}.value_coef ({keys.value_coef:g}) or {_length_key(config)}, "
        f"or lower {name}.gae_lambda ({keys.gae_lambda:g}){scaling}"
    )


def collapsed_entropy(config: BehaviourConfig, history: History) -> str | None:
    """Report that the policy has stopped trying other choices before it got better.

    policy/entropy_share stayed below 0.01 in six summaries and was above 0.05 within the last twelve; if
    masks leave a single choice, it is always low.
    """
    keys, name = own_block(config), BLOCKS[config.algorithm]
    low, share = history.most("policy/entropy_share", 6) < 0.01, 100 * history.now("policy/entropy_share")
    if not low or max(history.known("policy/entropy_share")) < 0.05 or not _no_better(history):
        return None
    return (
        f"the policy has stopped exploring: its entropy is {short(share)} % "
        f"of that of random choices, and {_returns(history)} · raise {name}.entropy_coef "
        f"({keys.entropy_coef:g}) or lower {_length_key(config)}"
    )


def widening_policy(config: BehaviourConfig, history: History) -> str | None:
    """Report that the standard deviation grows for its own sake.

    policy/std is above 3, where three quarters of the actions are clipped to a bound: 2 − 2Φ(1/3) = 0.74. It
    rose in each of the last five summaries, and returns are no better than at the start.
    """
    keys, name = own_block(config), BLOCKS[config.algorithm]
    widths = history.last("policy/std", 6)
    if not grows(widths) or widths[-1] <= 3 or not _no_better(history):
        return None
    key = f"{name}.entropy_coef ({keys.entropy_coef:g})" if keys.entropy_coef else _length_key(config)
    return (
        f"the policy only grows wider: policy/std is {short(widths[-1])} and still grows, so most actions "
        f"are at a bound, and {_returns(history)} · lower {key}"
    )


def _length_key(config: BehaviourConfig) -> str:
    """Return the key that sets the length of a step, with its value."""
    keys, name = own_block(config), BLOCKS[config.algorithm]
    if isinstance(keys, AcktrConfig):
        return f"{name}.kl_clip ({keys.kl_clip:g})"
    return f"{name}.learning_rate ({keys.learning_rate:g})"


def _no_better(history: History) -> bool:
    return bool(history.random_returns) and history.returns() <= history.random_returns[0]


def _returns(history: History) -> str:
    first = history.random_returns[0]
    return f"episodes return {short(history.returns())}, no more than at the start ({short(first)})"
