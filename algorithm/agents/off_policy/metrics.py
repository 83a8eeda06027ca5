"""Metrics of off-policy learning and its extensions, with their meaning, and their charts in a report."""

from __future__ import annotations

from collections.abc import Mapping

from algorithm.core.panels import panel

METRICS: Mapping[str, str] = {
    "loss/q": "loss of the critics and the encoder",
    "loss/policy": "loss of the policy, continuous and discrete part added",
    "loss/transition": "loss of the transition model",
    "loss/reward": "loss of the reward model",
    "loss/observation": "loss of the observation model",
    "loss/siamese": "loss of ATC or BYOL, which trains the encoder",
    "loss/siamese_q": "error of the critics on augmented observations",
    "siamese/accuracy": "share of ATC's anchors whose best match is their own positive",
    "value/q_mean": "mean Q-value of the stored actions",
    "value/target": "mean target of the critics or values",
    "value/clipped": "share of Q-values without a gradient because of `clip_epsilon`",
    "value/spread": "spread of the quantiles in units of reward, with `value_head: quantile`",
    "value/clamped": "share of the targets beyond `categorical_range`",
    "value/return_scale": "divisor of the rewards, with `reward_scaling`",
    "norm/shift": "largest shift of a batch's mean from the critics' batch norm",
    "norm/shift_policy": "the same for the policy's batch norm",
    "optim/weight_norm": "norm of the weights of encoder and critics, with a norm or weight decay",
    "policy/saturation": "share of the continuous actions at the end of their range",
    "vtrace/rho_mean": "mean importance ratio, clipped",
    "vtrace/clip_frac": "share of the ratios that were clipped",
    "loss/curiosity": "loss of the curiosity model",
    "curiosity/bonus_mean": "mean bonus of curiosity",
    "curiosity/bonus_std": "standard deviation of the bonus within an update",
    "loss/rnd": "loss of the network that predicts RND's fixed random network",
    "memory/delta_q_first": "relative change in Q from stale stored states, at the first learned step",
    "memory/delta_q_last": "the same at the last learned step of the window",
}

PANELS = (
    panel("Values", critics="value/q_mean", target="value/target"),
    panel("Critic loss", log=True, loss="loss/q"),
    panel("Policy loss", loss="loss/policy"),
    panel("Share of actions at their bounds", share="policy/saturation"),
)
