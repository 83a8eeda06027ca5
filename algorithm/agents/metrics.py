"""Metrics of reward signals and cloning, with their meaning, and their charts in a report."""

from __future__ import annotations

from collections.abc import Mapping

from algorithm.core.panels import panel

METRICS: Mapping[str, str] = {
    "loss/gail": "loss of GAIL's discriminator, the penalty on its slope included",
    "gail/expert": "mean D of demonstrated transitions: 1 is sure of them, ½ knows nothing",
    "gail/policy": "mean D of the agent's own transitions: 0 is sure of them",
    "gail/penalty": "mean of (‖∇f‖ − 1)² between demonstrated and own transitions, D = σ(f)",
    "gail/bonus_mean": "mean reward of GAIL, its strength included",
    "rnd/bonus_mean": "mean bonus of random network distillation that is added to a reward",
    "rnd/bonus_std": "standard deviation of that bonus within an update",
    "loss/cloning": "loss of behavioural cloning: squared error of continuous actions, −log π of choices",
}

PANELS = (
    panel("Discriminator", expert="gail/expert", policy="gail/policy"),
    panel("Reward of GAIL", mean="gail/bonus_mean"),
    panel("Loss of cloning", log=True, loss="loss/cloning"),
)
