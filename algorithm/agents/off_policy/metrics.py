"""Metrics of off-policy learning and its extensions, with their meaning, and their charts in a report."""

from __future__ import annotations

from collections.abc import Mapping

from algorithm.core.panels import panel

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
    "norm/shift": "largest shift of a batch from the critics' batch norm",
    "norm/shift_policy": "the same for the policy",
    "optim/weight_norm": "weight norm of encoder and critics, with a norm or weight decay",
    "policy/saturation": "share of continuous actions at their bounds",
    "vtrace/rho_mean": "mean clipped importance ratio",
    "vtrace/clip_frac": "share of clipped ratios",
    "loss/curiosity": "loss of the curiosity model",
    "curiosity/bonus_mean": "mean curiosity bonus",
    "curiosity/bonus_std": "standard deviation of the bonus",
    "loss/rnd": "loss of RND's predictor",
    "memory/delta_q_first": "relative error of Q by stored states, first learned step",
    "memory/delta_q_last": "the same at the last learned step",
}

PANELS = (
    panel("Values", critics="value/q_mean", target="value/target"),
    panel("Critic loss", log=True, loss="loss/q"),
    panel("Policy loss", loss="loss/policy"),
    panel("Share of actions at their bounds", share="policy/saturation"),
)
