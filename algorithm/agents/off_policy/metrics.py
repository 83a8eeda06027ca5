"""Metrics of off-policy learning and its extensions, with their meaning, and their charts in a report."""

from __future__ import annotations

from collections.abc import Mapping

from algorithm.core.panels import panel

METRICS: Mapping[str, str] = {
    "loss/q": "loss of the critics and the encoder",
    "loss/policy": "loss of the policy, the sum over its parts",
    "loss/transition": "loss of the transition model of use_prediction",
    "loss/reward": "loss of the reward model",
    "loss/observation": "loss of the observation model, the sum over the observations",
    "loss/siamese": "loss of ATC or BYOL, which trains the encoder",
    "loss/siamese_q": "mean squared difference between critics on augmented observations and their targets",
    "siamese/accuracy": "share of ATC's anchors whose best match is their own positive",
    "value/q_mean": "mean of what the critics say about the stored actions",
    "value/target": "mean of the targets they are trained towards",
    "value/clipped": "share of the learned values that clip_epsilon holds back: they have no gradient",
    "value/spread": "standard deviation of the quantiles of value_head: quantile",
    "value/clamped": "share of the targets beyond categorical_range, which count as its end",
    "value/return_scale": "what rewards are divided by, with reward_scaling",
    "norm/shift": "critics' batch norms: largest distance of a mean in a batch from the running one, in "
    "standard deviations",
    "norm/shift_policy": "the same of the policy's batch norms",
    "optim/weight_norm": "length of all parameters of encoder and critics, with a norm or weight decay",
    "policy/saturation": "share of the drawn continuous action components at the end of their range",
    "vtrace/rho_mean": "mean clipped importance ratio between the policy and the behaviour that was stored",
    "vtrace/clip_frac": "share of the ratios that were clipped",
    "loss/curiosity": "loss of the model whose errors are the bonus of curiosity",
    "curiosity/bonus_mean": "mean bonus that curiosity adds to a reward",
    "curiosity/bonus_std": "standard deviation of that bonus within an update",
    "loss/rnd": "loss of the network that learns to give what a fixed random one gives",
    "memory/delta_q_first": "ΔQ of R2D2 at the first learned position: the relative difference of Q between "
    "the state made from the window's beginning on and that of the carry stored with its own row",
    "memory/delta_q_last": "the same at the last one; if clearly above the first, the burn-in is too short",
}

PANELS = (
    panel("Values", critics="value/q_mean", target="value/target"),
    panel("Critic loss", log=True, loss="loss/q"),
    panel("Policy loss", loss="loss/policy"),
    panel("Share of actions at their bounds", share="policy/saturation"),
)
