"""Metrics of on-policy families, with their meaning, and their charts in a report."""

from __future__ import annotations

from collections.abc import Mapping

from algorithm.core.panels import panel, readout

METRICS: Mapping[str, str] = {
    "loss/value": "mean squared difference between values and their targets",
    "policy/entropy": "entropy of the policy, the sum over branches and components",
    "policy/entropy_share": "entropy of the branches, as a share of that of random choices",
    "policy/std": "standard deviation of the continuous part, its geometric mean",
    "ppo/approx_kl": "estimate of the KL divergence of the policy from the one that acted, (ρ − 1) − log ρ",
    "ppo/clip_fraction": "share of the actions whose ratio has left the clip",
    "ppo/ratio_max": "largest ratio of an action's probabilities now and while acting, a mean of minibatches",
    "ppo/explained_variance": "share of the targets' variance that the values explained before the update",
    "ppo/trace_weight": "mean of min(1, π/μ) before the update; less than 1 where older weights have acted",
    "a3c/staleness": "updates of other processes between reading the weights and adding to them",
    "ppo/epochs_done": "times that all of the last rollout was learned from, if target_kl has not ended it",
    "acktr/step_scale": "share of a step that kl_clip leaves, ν; 1 where the trust region is wider",
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
