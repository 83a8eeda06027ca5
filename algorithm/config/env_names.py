"""Names of environments: those without a folder (``CartPole-v1``, ``module:Id``), and near ones of tasks."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterable
from difflib import SequenceMatcher, get_close_matches
from pathlib import Path

from algorithm.config.errors import ConfigError, Problem
from algorithm.config.yaml_io import shown

_NEAR = 0.7
_WORD = 4  # letters of a name that may stand for a longer one it is part of


_PACKAGES = {
    r"(ALE/.+|.+NoFrameskip-v\d)": r"ale_py:\1",
    r"((MiniGrid|BabyAI)-.+)": r"minigrid:\1",
    r"(popgym-.+)": r"popgym:\1",
    r"(.+BulletEnv-v\d)": r"pybullet_envs_gymnasium:\1",
    r"dm_control/(\w+)-(\w+)-v\d": r"dm.\1.\2",
}
"""Form of an id that only a package registers -> the name with its package."""


def label_of(env: str) -> str | None:
    """Return the label that runs of ``env`` are filed under; None if it names no environment.

    ``CartPole-v1`` is its own label; that of ``module:Id`` is ``module/Id``, and that of a file below the
    current folder its path without the ending. Raises ConfigError for a file or module that is not there.
    """
    if is_dm_control(env):
        return env
    import gymnasium as gym  # not needed by a task's folder, and slow to load

    from algorithm.env.env_id import use_folder

    use_folder(None, env)
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


def is_dm_control(env: str) -> bool:
    """Return whether ``env`` has the form ``dm.domain.task``; the suite itself is not loaded for that."""
    return re.fullmatch(r"dm\.\w+\.\w+", env) is not None


def near_ids(env: str) -> list[str]:
    """Return ids of Gymnasium like ``env``, whatever its case, version and underscores; nearest first."""
    import gymnasium as gym

    newest: dict[str, str] = {}
    for name in gym.registry:
        if "/" not in name:  # those need packages of their own
            newest[plain_name(name)] = name  # versions are registered in their order
    close = get_close_matches(plain_name(env.rpartition("/")[2]), newest, n=2, cutoff=0.75)
    return [newest[key] for key in close]


def with_package(env: str) -> list[str]:
    """Return the name that leads to the package of a well-known id; nothing for any other."""
    return [found.expand(name) for form, name in _PACKAGES.items() if (found := re.fullmatch(form, env))]


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
    from algorithm.env.install_hints import advice

    missing = ModuleNotFoundError(f"No module named {module!r}", name=module)
    fix = advice(missing, "install its package, or start where the module lies")
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


def nearest_task(env: str, known: Iterable[str]) -> str | None:
    """Return the known task whose name is near to that of ``env``, or None.

    In the folder that ``env`` names, or one nearly of its name; elsewhere only a task of the very same name.
    Among equally near ones a task that is spelled as ``env`` goes first.
    """
    folder, name = _parts(env)
    spelled = env.rpartition("/")[2]
    scored = [
        ((_score(folder, name, *_parts(task)), task.rpartition("/")[2] == spelled), task) for task in known
    ]
    best, task = max(scored, key=lambda pair: pair[0], default=((0.0, False), ""))
    return task if best[0] > 0 else None


def folder_of(env: str, known: Iterable[str]) -> str:
    """Return the folder of tasks that ``env`` names or lies in; empty if there is none."""
    folders = {task.rpartition("/")[0] for task in known}
    return next((name for name in (env.strip("/"), env.strip("/").rpartition("/")[0]) if name in folders), "")


def _parts(env: str) -> tuple[str, str]:
    """Return the folder's last name and the task's own, both plain."""
    folder, _, name = env.strip("/").rpartition("/")
    return plain_name(folder.rpartition("/")[2]), plain_name(name)


def plain_name(name: str) -> str:
    """Return the name in small letters without version and marks: LunarLander-v3 is lunar_lander."""
    return re.sub(r"[^a-z0-9]", "", re.sub(r"-v\d+$", "", name.lower()))


def _score(folder: str, name: str, its_folder: str, its_name: str) -> float:
    """Return a number above 0 where the task is near; 1 more for its folder."""
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
