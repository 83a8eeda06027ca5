"""Inputs of an extension's maker."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import torch
from torch import nn

from algorithm.core.data import SequenceBatch
from algorithm.core.spec import AgentSpec


class Options(Protocol):
    """Keys of ``sac_config`` for extensions."""

    siamese: Literal["ATC", "BYOL"] | None
    siamese_use_q: bool
    siamese_use_adaptive: bool
    use_prediction: bool
    transition_kl: float
    use_extra_data: bool
    curiosity: Literal["FORWARD", "INVERSE"] | None
    curiosity_strength: float
    use_rnd: bool
    rnd_n_sample: int
    extensions: Sequence[Mapping[str, Mapping[str, Any] | None]]
    n_step: int


class ExtrinsicOptions(Protocol):
    """Keys of ``reward_signals.extrinsic``."""

    strength: float


class RndOptions(Protocol):
    """Keys of ``reward_signals.rnd``."""

    strength: float
    learning_rate: float


class GailOptions(Protocol):
    """Keys of ``reward_signals.gail``."""

    strength: float
    form: Literal["GAIL", "AIRL"]
    learning_rate: float
    use_actions: bool
    gradient_penalty: float
    dense_n: int
    dense_depth: int


class Signals(Protocol):
    """Blocks of ``reward_signals``."""

    extrinsic: ExtrinsicOptions
    rnd: RndOptions
    gail: GailOptions


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
    options: Options
    signals: Signals
    demonstrations: Demonstrated | None = None
    make_network: Callable[..., nn.Module]
