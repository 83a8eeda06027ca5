"""The keys of ``demonstrations``. Imports no torch."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import Field, Strict

from algorithm.core.fields import AnyConfig, Block, Finite, Limit, option

ENDINGS = (".npz", ".demo")
"""Of the files that recordings are read from and written to."""

MINARI = "minari:"
"""What the name of a data set of Minari begins with, where files may be named, too."""

MINARI_ID = re.compile(r"([-\w][-\w/]*[-\w]/)?[-\w]+-v\d+")
"""The ids that Minari takes."""

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
