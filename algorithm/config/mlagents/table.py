"""The whole table: which keys of ML-Agents become which of ours, and which are told."""

from __future__ import annotations

import re
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
    for key in (key for keys in TRAINERS.values() for key in keys if key.theirs):
        name = _as_block(key) if not key.ours else key.theirs
        ours, says = rows.setdefault(name, ({}, {}))
        ours |= dict.fromkeys(_NETWORK.sub(r"`\1`: `\2`", f"`{one}`") for one in key.ours)
        says |= dict.fromkeys(one for one in (key.says, key.means) if one not in ("", "as there"))
    lines = ["| key of ML-Agents | here | what differs |", "|---|---|---|"]
    for name, (ours, says) in rows.items():
        words = _CODE.sub(r"`\g<0>`", "; ".join(says))
        lines.append(f"| `{name}` | {', '.join(ours) or 'told'} | {words} |")
    return "\n".join(lines)


_CODE = re.compile(r"(?<!\w)--?[a-z]\w*(?: [A-Z]+)?|[a-z]\w*_\w+(?:\.\w+)*")
_NETWORK = re.compile(r"`(nn_config\.\w+)\.(\w+)`")


def _as_block(told: TrainerKey) -> str:
    """Return the name of a key that is told, or of its block where several of that are told alike."""
    block = told.theirs.rpartition(".")[0]
    beside = (key for key in COMMON + SIGNALS if key.theirs.startswith(f"{block}."))
    alike = [key for key in beside if key.says == told.says and not key.ours]
    return f"{block}.*" if block and len(alike) > 2 else told.theirs
