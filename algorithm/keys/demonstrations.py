"""The keys of ``demonstrations``. Imports no torch."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import Strict

from algorithm.core.fields import AnyConfig, Block, Finite, Limit, Whole, option

MINARI = "minari:"
"""Prefix of a Minari data set's id, in keys that also take files."""

MINARI_ID = re.compile(r"([-\w][-\w/]*[-\w]/)?[-\w]+-v\d+")
"""Form of a valid id of Minari."""

_OTHER_EPISODES = "fixed: the episodes would differ from those trained on"

_NO_REPLAY = "fixed: nothing is stored offline; start a new run with --init_from instead"
_COUNTED_FROM = "fixed: pending updates are counted from it"

_FileNames = Annotated[tuple[str, ...], Strict(False)]


def dataset_id(text: str) -> str:
    """Return the id in ``minari:ID``. Raises ValueError for one that Minari would refuse."""
    name = text.removeprefix(MINARI)
    if not MINARI_ID.fullmatch(name):
        raise ValueError(f"{name!r:.200} is not a Minari id such as own/pendulum-v0")
    return name


def _other_files(old: AnyConfig, new: AnyConfig) -> str:
    """Return the effect of another path: a name may change, episodes may not."""
    if old.demonstrations.path is None or new.demonstrations.path is None:
        return _OTHER_EPISODES
    return "free: it must hold the same episodes"


class DemoConfig(Block):
    """Episodes that agents learn from: reward signals, cloning, and updates of SAC and TD3."""

    path: str | _FileNames | None = option(
        None,
        "File, folder, pattern, minari:ID, or a list of them. Relative to the task's folder.",
        resume=_other_files,
    )
    min_return: Finite | None = option(
        None, "Skip episodes with a lower return. null: keep all.", resume=_OTHER_EPISODES
    )
    max_episodes: Limit = option(
        -1,
        "Keep this many episodes, those with the highest returns. -1: all.",
        resume=_OTHER_EPISODES,
    )
    share: Finite = option(
        0.0,
        "Share of each batch drawn from demonstrations. SAC and TD3. RLPD: 0.5.",
        ge=0,
        lt=1,
    )
    interventions: bool = option(
        False,
        "A person's steps during training count as demonstrations too, and path may be null. SAC and TD3.",
    )
    pretrain: Whole = option(
        0,
        "Updates on demonstrations before the first environment step, then an evaluation. SAC and TD3.",
        ge=0,
        resume="free: until the first environment step",
    )
    offline: bool = option(
        False,
        "Offline RL with demonstrations only (TD3+BC). SAC and TD3.",
        resume=_NO_REPLAY,
    )
    value_weight: Finite = option(
        2.5,
        "Offline: TD3+BC's α, the weight of values against cloning. Lower it for data of a single good "
        "policy.",
        gt=0,
    )
    warm_up_policy: Whole = option(
        0,
        "Replaces start_step: the initial policy acts instead of random actions (WSRL). SAC and TD3.",
        ge=0,
        resume=_COUNTED_FROM,
    )

    @property
    def without_random(self) -> bool:
        """Whether training starts without random actions: offline, or with actions of the first policy."""
        return self.offline or self.warm_up_policy > 0

    @property
    def learned_from(self) -> bool:
        """Whether updates use demonstrations, in part or wholly."""
        return self.share > 0 or self.pretrain > 0 or self.offline
