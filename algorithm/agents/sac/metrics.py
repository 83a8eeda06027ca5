"""Metrics of Soft Actor-Critic, with their meaning, and their charts in a report."""

from __future__ import annotations

from collections.abc import Mapping

from algorithm.core.panels import panel, readout

METRICS: Mapping[str, str] = {
    "loss/alpha": "loss of temperatures, continuous plus discrete part",
    "policy/entropy_c": "entropy of the continuous part",
    "policy/target_entropy_c": "target of the continuous entropy",
    "policy/alpha_c": "temperature of the continuous part",
    "policy/entropy_d": "entropy of the discrete part, mean over branches",
    "policy/target_entropy_d": "target of the discrete entropy",
    "policy/alpha_d": "temperature of the discrete part",
}

PANELS = (
    panel("Entropy, discrete", entropy="policy/entropy_d", aims={"policy/target_entropy_d": "target"}),
    panel("Entropy, continuous", entropy="policy/entropy_c", aims={"policy/target_entropy_c": "target"}),
    panel("Temperature", log=True, discrete="policy/alpha_d", continuous="policy/alpha_c"),
    panel("Temperature loss", loss="loss/alpha"),
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
