"""Metrics of ACER, with their meaning, and their charts in a report."""

from __future__ import annotations

from collections.abc import Mapping

from algorithm.core.console import panel, readout

METRICS: Mapping[str, str] = {
    "acer/ratio": "mean truncated importance weight",
    "acer/cut_off": "share of truncated importance weights",
    "acer/shortened": "share of steps shortened by the trust region",
    "acer/replays": "replay updates after the last rollout",
}

PANELS = (
    panel("Importance weights", ratio="acer/ratio"),
    panel("Updates from the replay", number="acer/replays"),
    panel("Truncated and shortened shares", cut_off="acer/cut_off", shortened="acer/shortened"),
)

READOUTS = (
    readout("loss", policy="loss/policy", q="loss/q", gradient="optim/grad_norm"),
    readout("policy", entropy="policy/entropy", ratio="acer/ratio", shortened="acer/shortened"),
)
