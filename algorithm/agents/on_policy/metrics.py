"""Metrics of on-policy families, with their meaning, and their charts in a report."""

from __future__ import annotations

from collections.abc import Mapping

from algorithm.core.panels import panel, readout

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
    panel("Updates of others while one is made", staleness="a3c/staleness"),
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
