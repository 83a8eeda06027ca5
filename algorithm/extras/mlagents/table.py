"""The whole table: which keys of ML-Agents become which of ours, and which are told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from algorithm.extras.mlagents.keys import TrainerKey
from algorithm.extras.mlagents.settings import PLACES, RUN
from algorithm.extras.mlagents.signals import SIGNALS
from algorithm.extras.mlagents.trainers import COMMON, OF_TEAMS, PPO, SAC

_PPO = (*COMMON, *PPO, *SIGNALS, *RUN)

TRAINERS: Mapping[str, Sequence[TrainerKey]] = {
    "ppo": _PPO,
    "sac": (*COMMON, *SAC, *SIGNALS, *RUN),
    **dict.fromkeys(OF_TEAMS, _PPO),
}
"""Trainer of ML-Agents -> the rows that hold for it."""

KNOWN: tuple[str, ...] = tuple(
    dict.fromkeys(key.theirs for keys in TRAINERS.values() for key in keys if key.theirs)
)
"""Every key of ML-Agents that is known."""

_FAMILY_BLOCKS = {"sac": "sac_config"}

TRAINED_ALONE = (
    "PPO, each agent separately: there is no team critic. Group rewards are added to each agent's own"
)
"""Notice of a trainer for teams."""

REFUSED = {
    **dict.fromkeys(
        ("offline_bc", "online_bc", "imitation", "bc"),
        (
            "cloning without a reward was a trainer before 0.13",
            "write trainer: ppo and a block behavioral_cloning with its demo_path",
        ),
    ),
}
"""Trainers of ML-Agents that there are not: why, and what to do."""


def place_of(theirs: str, trainer: str) -> str:
    """Return the block of ours that holds the comment on a key that is told."""
    return PLACES.get(theirs.partition(".")[0], "base_config") or _FAMILY_BLOCKS.get(trainer, "ppo_config")


def trainer_rows() -> Mapping[str, Sequence[TrainerKey]]:
    """Return :data:`TRAINERS`, for the table of the documentation."""
    return TRAINERS
