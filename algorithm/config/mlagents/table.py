"""The whole table: which keys of ML-Agents become which of ours, and which are told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from algorithm.config.mlagents.keys import TrainerKey
from algorithm.config.mlagents.settings import PLACES, RUN
from algorithm.config.mlagents.signals import SIGNALS
from algorithm.config.mlagents.trainers import COMMON, PPO, SAC

TRAINERS: Mapping[str, Sequence[TrainerKey]] = {
    "ppo": (*COMMON, *PPO, *SIGNALS, *RUN),
    "sac": (*COMMON, *SAC, *SIGNALS, *RUN),
}
"""Trainer of ML-Agents -> the rows that hold for it."""

KNOWN: tuple[str, ...] = tuple(
    dict.fromkeys(key.theirs for keys in TRAINERS.values() for key in keys if key.theirs)
)
"""Every key of ML-Agents that is known."""

_FAMILY_BLOCKS = {"ppo": "ppo_config", "sac": "sac_config"}

REFUSED = {
    **dict.fromkeys(
        ("poca", "coma", "ma-poca", "mappo"),
        (
            "it needs a critic of a whole team, which this project does not have",
            "write trainer_type: ppo or sac: each agent for itself; rewards of a group are added to its own",
        ),
    ),
    **dict.fromkeys(
        ("offline_bc", "online_bc", "imitation", "bc"),
        (
            "cloning alone was a trainer of releases before 0.13",
            "write trainer: ppo and a block behavioral_cloning with its demo_path",
        ),
    ),
}
"""Trainers of ML-Agents that there are not: why, and what to do."""


def place_of(theirs: str, trainer: str) -> str:
    """Return the block of ours that holds the comment on a key that is told."""
    return PLACES.get(theirs.partition(".")[0], "base_config") or _FAMILY_BLOCKS[trainer]


def as_markdown() -> str:
    """Return the table for the documentation: a row for each key of theirs, those that are told in words."""
    rows: dict[str, tuple[dict[str, None], dict[str, None]]] = {}
    for keys in TRAINERS.values():
        for key in keys:
            if key.theirs:
                ours, says = rows.setdefault(key.theirs, ({}, {}))
                ours |= dict.fromkeys(f"`{name}`" for name in key.ours)
                says |= dict.fromkeys([key.says] if key.says and key.says != "as there" else [])
    lines = ["| key of ML-Agents | here | |", "|---|---|---|"]
    for theirs, (ours, says) in rows.items():
        lines.append(f"| `{theirs}` | {', '.join(ours) or 'told'} | {'; '.join(says)} |")
    return "\n".join(lines)
