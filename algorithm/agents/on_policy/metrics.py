"""Metrics of on-policy families, with their meaning, and their charts in a report.

Health rules of on-policy families, under the conditions of ``off_policy/metrics.py``.

Each holds only if returns are no better, since a policy that learns needs no advice. A metric of a summary is
of its last rollout, and rollouts are noisy: a condition must hold in each of several summaries.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from algorithm.agents.health import RETURNS, History, Rule
from algorithm.agents.on_policy.family_config import BLOCKS, AcktrConfig, own_block
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

WATCHED = (*RETURNS, "policy/entropy_share", "ppo/explained_variance")
"""Metrics of a summary that health rules read."""


def make_rules(config: BehaviourConfig) -> dict[str, Rule]:
    """Return the health rules that apply to this configuration, by name."""
    return {
        "values": partial(values_learn_nothing, config),
        "collapsed": partial(collapsed_entropy, config),
    }


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
