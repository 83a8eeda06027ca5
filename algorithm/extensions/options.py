"""Inputs of an extension's maker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import nn

from algorithm.agents.config import RewardSignals
from algorithm.agents.run_config import RunConfig
from algorithm.core.data import SequenceBatch
from algorithm.core.spec import AgentSpec


class Demonstrated(Protocol):
    """Source of demonstrated windows, whose learned part is ``learned``."""

    learned: slice

    def draw(self, n: int, generator: torch.Generator) -> SequenceBatch:
        """Return n windows on the CPU."""
        ...


@dataclass(frozen=True, kw_only=True)
class Build:
    """Inputs of an extension's maker.

    make_network: one of the optional classes of an ``nn.py``, by its name and arguments
    demonstrations: None where nothing is learned: agents that only play, remote actors
    """

    spec: AgentSpec
    state_size: int  # S
    options: RunConfig
    signals: RewardSignals
    demonstrations: Demonstrated | None = None
    make_network: Callable[..., nn.Module]
