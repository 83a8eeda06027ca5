"""Metrics of Soft Actor-Critic and its extensions, with their meaning, and their charts in a report."""

from __future__ import annotations

from collections.abc import Mapping

from algorithm.core.panels import panel, readout

METRICS: Mapping[str, str] = {
    "loss/q": "loss of the critics and the encoder",
    "loss/policy": "loss of the policy, the sum over its parts",
    "loss/alpha": "loss of the temperatures, the sum over the parts",
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
    "policy/entropy_c": "entropy of the continuous part of the policy",
    "policy/target_entropy_c": "what that entropy is steered to",
    "policy/alpha_c": "temperature of the continuous part: the worth of a unit of entropy in reward",
    "policy/saturation": "share of the drawn continuous action components at the end of their range",
    "policy/entropy_d": "entropy of the discrete part of the policy, mean over its branches",
    "policy/target_entropy_d": "what that entropy is steered to",
    "policy/alpha_d": "temperature of the discrete part",
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
    panel("Entropy, discrete", entropy="policy/entropy_d", aims={"policy/target_entropy_d": "target"}),
    panel("Entropy, continuous", entropy="policy/entropy_c", aims={"policy/target_entropy_c": "target"}),
    panel("Temperature", log=True, discrete="policy/alpha_d", continuous="policy/alpha_c"),
    panel("Temperature loss", loss="loss/alpha"),
    panel("Share of actions at their bounds", share="policy/saturation"),
)

READOUTS = (
    readout("loss", q="loss/q", policy="loss/policy", alpha="loss/alpha", gradient="optim/grad_norm"),
    readout(
        "continuous",
        entropy="policy/entropy_c",
        target="policy/target_entropy_c",
        temperature="policy/alpha_c",
    ),
    readout(
        "discrete",
        entropy="policy/entropy_d",
        target="policy/target_entropy_d",
        temperature="policy/alpha_d",
    ),
)
