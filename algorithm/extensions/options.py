"""Inputs of an extension's maker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

from torch import nn

from algorithm.spec import AgentSpec


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
    n_step: int


@dataclass(frozen=True, kw_only=True)
class Build:
    """Inputs of an extension's maker.

    make_network: one of the optional classes of an ``nn.py``, by its name and arguments
    """

    spec: AgentSpec
    state_size: int  # S
    options: Options
    make_network: Callable[..., nn.Module]
