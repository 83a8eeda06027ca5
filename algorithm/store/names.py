"""Names of runs, environments and behaviours as names of folders, and the folder of all runs."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import socket
import unicodedata
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from algorithm.core.errors import UsageError

MODELS = Path("models")
"""Folder of all runs, below the current directory, unless ``--directory`` names another."""

Ckpt = int | Literal["latest", "best"]
"""Choice of a checkpoint: that of a step, the last one, or the one with the best evaluation."""

_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_FORBIDDEN = frozenset('/\\{}<>:"|?*')
_RESERVED = re.compile(r"(con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³])( *\..*)?", re.IGNORECASE)
"""Names of devices on Windows, whatever their ending; runs are copied from one system to the other."""

_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})
"""Unicode categories of control, format, surrogate and private-use characters, and of separators of lines."""

POPULATION = "population.yaml"
"""File in the folder of a population, by which it is recognised."""

LINEAGE = "lineage.jsonl"
"""File of a population that has finished a generation."""

STUDY = "study.json"
"""File in the folder of a study, by which it is recognised. Runs of its trials are named ``STUDY/TRIAL``."""


def behaviour_level(behaviour: str) -> str:
    """Return the folder level of a behaviour under checkpoints and log; empty for the default behaviour.

    Other names are percent-encoded, since an environment may choose any characters. So is the first letter of
    a name that Windows reserves, and a space or dot at the end, which it drops.
    """
    from algorithm.core.spec import DEFAULT_BEHAVIOUR  # it loads numpy, which no command line needs

    if behaviour == DEFAULT_BEHAVIOUR:
        return ""
    level = quote(behaviour, safe=" =+,@")
    if level[-1:] in (" ", "."):
        level = f"{level[:-1]}%{ord(level[-1]):02X}"
    if _RESERVED.fullmatch(level):
        level = f"%{ord(level[0]):02X}{level[1:]}"
    check_name(level)
    return level


def behaviour_file(behaviour: str, file: str) -> str:
    """Return the name of a behaviour's file or store in a checkpoint: below the behaviour's level."""
    return "/".join(part for part in (behaviour_level(behaviour), file) if part)


def expand_name(template: str, parent: Path) -> str:
    """Replace ``{time}`` and ``{hostname}`` in the name of a run; ``{time}`` gives a name free in ``parent``.

    {time} is YYYYmmddHHMMSS, local time, with -2, -3, … behind it when that second is taken.
    Raises UsageError for another placeholder, or when the result is no folder name.
    """
    first = next(candidates(template))
    check_name(first)
    return next((name for name in candidates(template) if not is_taken(parent / name)), first)


def is_taken(path: Path) -> bool:
    """Return whether a path is taken: by anything but a folder with players' logs of a failed start."""
    if not path.is_dir():
        return path.exists()
    with contextlib.suppress(FileNotFoundError):  # another start has just removed it
        return {entry.name for entry in path.iterdir()} != {"players"}
    return False


def is_name(name: str) -> bool:
    """Return whether ``name`` is a folder name of any system, stays below its parent, and can be shown."""
    hidden = any(unicodedata.category(character) in _HIDDEN for character in name)
    wrong = bool(not name or name[0] in ".-" or name[-1] in ". " or hidden or _FORBIDDEN & set(name))
    wrong = wrong or _RESERVED.fullmatch(name) is not None
    return not wrong and len(os.fsencode(name)) <= 200


def check_name(name: str) -> None:
    """Raise UsageError unless :func:`is_name`."""
    if not is_name(name):
        raise UsageError(
            f"{name!r} cannot be the name of a folder",
            where="the name of a run or environment",
            why="it must be one folder name of at most 200 bytes, not start with . or -, not end with . or a "
            "space, not be a device of Windows such as con or nul, "
            'and have none of / \\ { } < > : " | ? * and no invisible characters',
            fix='choose another name, such as -n "test_{time}"',
        )


def is_run_name(name: str) -> bool:
    """Return whether ``name`` is a folder name, or ``STUDY/TRIAL`` of two folder names."""
    return all(map(is_name, name.split("/", 1)))


def env_folder(env: str, models: Path) -> Path:
    """Return the folder of the runs of ``env``. Raises UsageError for a label that cannot be a folder."""
    for part in env.split("/"):
        check_name(part)
    return models.absolute() / env


def run_names(env: str, *, models: Path = MODELS) -> list[str]:
    """Return the names of the runs of ``env``, newest first. A run is a folder with a ``config.yaml``.

    A folder whose name no run can have is left out: its name might contain codes that steer a terminal.
    """
    return _names_with("config.yaml", env, models)


def names_beside(env: str, name: str, *, models: Path = MODELS) -> list[str]:
    """Return the names of the runs beside ``name``: those of ``env``, or of the study that it belongs to."""
    study, slash, _ = name.rpartition("/")
    return [f"{study}{slash}{run_name}" for run_name in run_names(f"{env}{slash}{study}", models=models)]


def study_names(env: str, *, models: Path = MODELS) -> list[str]:
    """Return the names of the studies of ``env``, the last one changed first."""
    return _names_with(STUDY, env, models)


def _names_with(file: str, env: str, models: Path) -> list[str]:
    """Return the folders of ``env`` that hold a file of this name, the newest file first."""
    started: dict[str, int] = {}
    for marker in env_folder(env, models).glob(f"*/{file}"):
        if not is_name(marker.parent.name):
            continue
        with contextlib.suppress(OSError):  # removed since the listing
            started[marker.parent.name] = marker.stat().st_mtime_ns
    return sorted(started, key=lambda name: (started[name], name), reverse=True)


def directory_flags(models: Path) -> list[str]:
    """Return the flags that name the folder of all runs on a command line; none for the default one."""
    return [] if models.absolute() == MODELS.absolute() else ["--directory", shown(models.absolute())]


def shown(path: Path) -> str:
    """Format ``path`` for reading and pasting: relative to the current directory if below it."""
    here = Path.cwd()
    text = str(path.relative_to(here) if path.is_relative_to(here) else path)
    return f"./{text}" if text.startswith("-") else text  # or it would be read as a flag


def candidates(template: str) -> Iterator[str]:
    """Yield expansions of ``template`` in the order to try them: one, or endlessly many with ``{time}``."""
    stamp = datetime.now().strftime("%Y%m%d%H%M%S")
    yield _fill(template, stamp)
    if "{time}" in template:
        yield from (_fill(template, f"{stamp}-{count}") for count in itertools.count(2))


def _fill(template: str, stamp: str) -> str:
    """Replace the placeholders of a name. Raises UsageError for an unknown one, or an invalid name."""
    known = {"time": stamp, "hostname": socket.gethostname()}
    unknown = [name for name in _PLACEHOLDER.findall(template) if name not in known]
    if unknown:
        raise UsageError(
            f"the name of the run has an unknown placeholder {{{unknown[0]}}}",
            where=f"name: {template!r}",
            why="only {time} and {hostname} are replaced",
            fix='for example: -n "test_{time}"',
        )
    name = _PLACEHOLDER.sub(lambda match: known[match[1]], template)
    if not is_run_name(name):
        check_name(name)
    return name
