"""An environment named on the command line, without a folder: ``CartPole-v1``, ``module:Id``, ``file.py:Id``.

Imports Gymnasium: to be imported only where no folder has the name.
"""

from __future__ import annotations

import importlib.util
from difflib import get_close_matches
from pathlib import Path

import gymnasium as gym

from algorithm.config.errors import ConfigError, Problem
from algorithm.config.nearest import plain_name
from algorithm.config.yaml_io import shown


def label_of(env: str) -> str | None:
    """The label that runs of the environment ``env`` are filed under; None if it is no name of one.

    ``CartPole-v1`` is its own label; that of ``module:Id`` is ``module/Id``, and that of a file below the
    current folder its path without the ending. Raises ConfigError for a file or module that is not there.
    """
    source, colon, name = env.rpartition(":")
    if not colon:
        if env.endswith(".py") and Path(env).is_file():
            raise ConfigError([_no_id(env)])
        return env if env in gym.registry else None
    if not (source and name):
        return None
    if not source.endswith(".py"):
        if not _can_be_imported(source):
            raise ConfigError([_no_module(env, source)])
        return f"{source}/{name}"
    if not Path(source).is_file():
        raise ConfigError([_no_file(env, source)])
    file = Path(source).resolve().with_suffix("")
    here = Path.cwd().resolve()
    return f"{file.relative_to(here).as_posix() if file.is_relative_to(here) else file.name}/{name}"


def near_ids(env: str) -> list[str]:
    """Ids of Gymnasium like ``env``, whatever its case, version and underscores; the nearest first."""
    newest: dict[str, str] = {}
    for name in gym.registry:
        if "/" not in name:  # those need packages of their own
            newest[plain_name(name)] = name  # versions are registered in their order
    close = get_close_matches(plain_name(env.rpartition("/")[2]), newest, n=2, cutoff=0.75)
    return [newest[key] for key in close]


def _can_be_imported(module: str) -> bool:
    try:
        return importlib.util.find_spec(module.partition(".")[0]) is not None
    except ValueError:  # it runs already
        return True


def _no_id(env: str) -> Problem:
    return Problem(
        f"`{env}` names a file, and no environment in it",
        "command line",
        "a file may have several",
        f"name one: {env}:Id, an id that the file registers or a class that it defines",
    )


def _no_module(env: str, module: str) -> Problem:
    fix = "install its package, or start where the module lies"
    if (Path.cwd() / f"{module}.py").is_file():
        fix = f"name the file: {module}.py:{env.rpartition(':')[2]}"
    return Problem(f"unknown environment `{env}`", "command line", f"there is no module {module}", fix)


def _no_file(env: str, file: str) -> Problem:
    return Problem(
        f"unknown environment `{env}`",
        "command line",
        f"there is no file {shown(Path(file))}",
        "give the path of the file as seen from here: folder/file.py:Id",
    )
