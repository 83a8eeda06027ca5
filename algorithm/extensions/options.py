"""What an extension is built from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

from torch import nn

from algorithm.spec import AgentSpec


class Options(Protocol):
    """The keys of ``sac_config`` that extensions read."""

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
    """The agent that an extension belongs to.

    make_network: one of the optional classes of an ``nn.py``, by its name and what it is built with
    """

    spec: AgentSpec
    state_size: int  # S
    options: Options
    make_network: Callable[..., nn.Module]
