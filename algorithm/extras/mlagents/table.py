"""The whole table: the translation of every key of ML-Agents, by trainer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from algorithm.extras.mlagents.keys import TrainerKey
from algorithm.extras.mlagents.settings import RUN
from algorithm.extras.mlagents.signals import SIGNALS
from algorithm.extras.mlagents.trainers import COMMON, POCA, PPO, SAC

_PPO = (*COMMON, *PPO, *SIGNALS, *RUN)

TRAINERS: Mapping[str, Sequence[TrainerKey]] = {
    "ppo": _PPO,
    "sac": (*COMMON, *SAC, *SIGNALS, *RUN),
    POCA: _PPO,
}
"""Trainer of ML-Agents -> the rows that hold for it."""

TRAINED_ALONE = (
    "PPO, each agent separately: there is no team critic. Group rewards are added to each agent's own"
)
"""Comment on a trainer for teams."""


def trainer_rows() -> Mapping[str, Sequence[TrainerKey]]:
    """Return :data:`TRAINERS`, for the table of the documentation."""
    return TRAINERS
