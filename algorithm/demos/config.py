"""The keys of ``demonstrations``. Imports no torch."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BeforeValidator, Field, Strict

from algorithm.core.fields import AnyConfig, Block, Finite, Limit, Whole, option, to_number

ENDINGS = (".npz", ".demo")
"""Endings of the files that recordings are read from and written to."""

MINARI = "minari:"
"""Beginning of the name of a data set of Minari, where files may be named, too."""

MINARI_ID = re.compile(r"([-\w][-\w/]*[-\w]/)?[-\w]+-v\d+")
"""The ids that Minari takes."""

_OTHER_EPISODES = "fixed: the episodes would be others than those that were learned from"

_NO_REPLAY = "fixed: nothing is stored offline; begin another run with what this one has learned"
_COUNTED_FROM = "fixed: the updates that are owed are counted from it"

_BelowOne = Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False), BeforeValidator(to_number)]
"""Share of a batch; all of it is ``offline``."""

_FileNames = Annotated[tuple[str, ...], Strict(False)]


def _other_files(old: AnyConfig, new: AnyConfig) -> str:
    """Return the effect of another path: a name may change, episodes may not."""
    if old.demonstrations.path is None or new.demonstrations.path is None:
        return _OTHER_EPISODES
    return "free: it must hold the same episodes"


class DemoConfig(Block):
    """Episodes that agents learn from: reward signals, cloning, and updates of SAC and TD3."""

    path: str | _FileNames | None = option(
        None,
        "Recordings of --record: a file, a folder, a pattern such as 'demos/*.npz', a data set minari:ID, or "
        "a list of these; relative to the task's folder.",
        resume=_other_files,
        names="demos",
    )
    min_return: Finite | None = option(
        None, "Episodes with a lower return are left out. null: none is.", resume=_OTHER_EPISODES
    )
    max_episodes: Limit = option(
        -1,
        "So many episodes are taken, those with the highest returns. -1: all.",
        resume=_OTHER_EPISODES,
    )
    rename: dict[str, str] = option(
        {},
        "Other names for observations of the recordings: {name in the files: name here}.",
        resume="free: the episodes must be the same with it",
    )
    record: Annotated[str, Field(min_length=1)] | None = option(
        None,
        "Folder for the episodes of evaluations while training, a .npz for each evaluation; relative to the "
        "run's folder.",
    )
    share: Finite = option(
        0.0,
        "Share of the windows of every batch that is drawn from them, with SAC and TD3. RLPD: 0.5.",
        ge=0,
        lt=1,
    )
    share_end: _BelowOne | None = option(
        None, "Share at step share_until and from then on. null: share stays."
    )
    share_until: Whole = option(0, "Environment steps over which share becomes share_end, linearly.", ge=0)
    pretrain: Whole = option(
        0,
        "Updates on them alone before the first environment step, with an evaluation behind them; SAC and "
        "TD3.",
        ge=0,
        resume="free: until the first environment step",
    )
    offline: bool = option(
        False,
        "No environment is stepped for training: all updates are on them, and the policy is held near their "
        "actions (TD3+BC). SAC and TD3.",
        resume=_NO_REPLAY,
    )
    value_weight: Finite = option(
        2.5,
        "offline: what values weigh beside cloning, α of TD3+BC; less for episodes of one good policy, whose "
        "values say little of other actions.",
        gt=0,
    )
    warm_up_policy: Whole = option(
        0,
        "Environment steps before learning begins, taken by the policy as it begins instead of at random; in "
        "place of start_step (WSRL). SAC and TD3.",
        ge=0,
        resume=_COUNTED_FROM,
    )

    @property
    def mixed(self) -> bool:
        """Whether batches have, at some time, demonstrated windows beside others."""
        return bool(self.share or self.share_end)

    @property
    def learned_from(self) -> bool:
        """Whether updates are on them, in part or wholly."""
        return self.mixed or self.pretrain > 0 or self.offline
