"""The keys of ``demonstrations``. Imports no torch."""

from __future__ import annotations

from typing import Annotated

from pydantic import Strict

from algorithm.core.fields import AnyConfig, Block, Finite, Limit, option

_OTHER_EPISODES = "fixed: the episodes would be others than those that were learned from"

_FileNames = Annotated[tuple[str, ...], Strict(False)]


def _other_files(old: AnyConfig, new: AnyConfig) -> str:
    """Return the effect of another path: a name may change, episodes may not."""
    if old.demonstrations.path is None or new.demonstrations.path is None:
        return _OTHER_EPISODES
    return "free: it must hold the same episodes"


class DemoConfig(Block):
    """Episodes that reward signals and behavioural cloning learn from."""

    path: str | _FileNames | None = option(
        None,
        "Recordings of --record: a file, a folder, a pattern such as 'demos/*.npz', or a list of these, "
        "relative to the task's folder.",
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
