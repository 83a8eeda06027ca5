"""Metrics of on-policy families, with their meaning, and their charts in a report."""

from __future__ import annotations

from collections.abc import Mapping

from algorithm.core.panels import panel, readout

METRICS: Mapping[str, str] = {
    "loss/value": "mean squared error of the values",
    "policy/entropy": "entropy of the policy",
    "policy/entropy_share": "entropy of the discrete part; 1 is uniformly random",
    "policy/std": "standard deviation of the continuous part, geometric mean",
    "ppo/approx_kl": "estimated KL divergence from the policy that acted",
    "ppo/clip_fraction": "share of the ratios outside the clip range",
    "ppo/ratio_max": "largest ratio of new to old action probability",
    "ppo/explained_variance": "share of the returns' variance that the values explain",
    "ppo/trace_weight": "mean truncated ratio; below 1 where older weights acted",
    "a3c/staleness": "updates by other processes while one update was computed",
    "ppo/epochs_done": "epochs over the last rollout; fewer if `target_kl` stopped it",
    "acktr/step_scale": "scale of a step due to `kl_clip`; 1 is the full step",
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
