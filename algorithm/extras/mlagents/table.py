"""The whole table: which keys of ML-Agents become which of ours, and which are told."""

from __future__ import annotations

import re
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


def as_markdown() -> str:
    """Return the table for the documentation: keys of theirs with ours or a reason, alike ones in one row."""
    rows: dict[str, tuple[dict[str, None], dict[str, None]]] = {}
    for key in (key for keys in TRAINERS.values() for key in keys if key.theirs):
        name = _as_block(key) if not key.ours else key.theirs
        ours, says = rows.setdefault(name, ({}, {}))
        ours |= dict.fromkeys(key.ours)
        says |= dict.fromkeys(one for one in (key.says, key.means) if one not in ("", "as in ML-Agents"))
    alike: dict[str, list[str]] = {}
    for name, (ours, says) in rows.items():
        words = _CODE.sub(r"`\g<0>`", "; ".join(says))
        here = (_same(name, *ours) if not words else "") or _together(list(ours))
        alike.setdefault(f"{here} ({words})" if here and words else here or words, []).append(name)
    lines = (f"| {_listed(names)} | {here} |" for here, names in alike.items())
    return "\n".join(["| key of ML-Agents | here |", "|---|---|", *lines])


_CODE = re.compile(r"(?<!\w)--?[a-z]\w*(?: [A-Z]+)?|[a-z]\w*_\w+(?:\.\w+)*")
_NETWORK = re.compile(r"`(nn_config\.\w+)\.(\w+)`")


def _same(theirs: str, *ours: str) -> str:
    """Return the block of ours that has a key of the same name; nothing if there is none."""
    block, _, last = ours[0].rpartition(".") if len(ours) == 1 else ("", "", "")
    return f"`{block}`, same name" if block and theirs.endswith(f".{last}") else ""


def _together(ours: Sequence[str]) -> str:
    """Return our names for a key; in one word those of networks or systems that have the same."""
    first = ours[0] if ours else ""
    if len(ours) > 1 and first.startswith("nn_config"):
        return f"`nn_config.*.{first.rpartition('.')[2]}`"
    if len(ours) > 1 and "build_path" in first:
        return f"`{first.rpartition('.')[0]}.*`"
    return ", ".join(_NETWORK.sub(r"`\1`: `\2`", f"`{name}`") for name in ours)


def _listed(names: Sequence[str]) -> str:
    """Return names of keys, without a block that is the one before."""
    blocks = ["", *(name.rpartition(".")[0] for name in names)]
    return ", ".join(f"`{name.removeprefix(f'{blocks[at]}.')}`" for at, name in enumerate(names))


def _as_block(told: TrainerKey) -> str:
    """Return the name of a key that is told, or of its block where several of that are told alike."""
    block = told.theirs.rpartition(".")[0]
    beside = (key for key in COMMON + SIGNALS if key.theirs.startswith(f"{block}."))
    alike = [key for key in beside if key.says == told.says and not key.ours]
    return f"{block}.*" if block and len(alike) > 2 else told.theirs
