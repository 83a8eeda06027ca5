"""The task that was meant by a name that no task has."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import SequenceMatcher

_NEAR = 0.7
_WORD = 4  # letters of a name that may stand for a longer one it is part of


def nearest_task(env: str, known: Iterable[str]) -> str | None:
    """The known task whose name is near to that of ``env``, or None.

    In the folder that ``env`` names, or one nearly of its name; elsewhere only a task of the very same name.
    """
    folder, name = _parts(env)
    scored = [(_score(folder, name, *_parts(task)), task) for task in known]
    best, task = max(scored, key=lambda pair: pair[0], default=(0.0, ""))
    return task if best > 0 else None


def folder_of(env: str, known: Iterable[str]) -> str:
    """The folder of tasks that ``env`` names or lies in; empty if there is none of that name."""
    folders = {task.rpartition("/")[0] for task in known}
    return next((name for name in (env.strip("/"), env.strip("/").rpartition("/")[0]) if name in folders), "")


def _parts(env: str) -> tuple[str, str]:
    """The folder's last name and the task's own, both plain."""
    folder, _, name = env.strip("/").rpartition("/")
    return plain_name(folder.rpartition("/")[2]), plain_name(name)


def plain_name(name: str) -> str:
    """The name in small letters without versions and marks: LunarLander-v3 and lunar_lander are one name."""
    return re.sub(r"[^a-z0-9]", "", re.sub(r"-v\d+$", "", name.lower()))


def _score(folder: str, name: str, its_folder: str, its_name: str) -> float:
    """Above 0 where the task is near; 1 more for its folder."""
    alike = SequenceMatcher(None, name, its_name).ratio()
    if len(name) >= _WORD and name in its_name:
        alike = max(alike, _NEAR)
    if alike < _NEAR:
        return 0.0
    if not folder:
        return alike
    beside = SequenceMatcher(None, folder, its_folder).ratio()
    if beside >= _NEAR:
        return alike + beside
    return alike if name == its_name else 0.0
