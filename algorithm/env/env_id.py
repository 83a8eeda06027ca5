"""Environments and wrappers by name: import of files and modules, registration, missing packages."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import re
import sys
import traceback
import zlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import TypeGuard, cast

import gymnasium as gym
from gymnasium.envs.registration import EnvCreator

from algorithm.core.errors import GYMNASIUM, EnvError, import_fix
from algorithm.core.extras import install_command
from algorithm.env.lanes.contract import TensorEnv
from algorithm.env.pool.process_exit import exits_as_errors
from algorithm.env.spaces import ONE_AGENT, several_agents


def resolve_env_id(name: str, folder: Path | None = None, *, key: str = "base_config.env_name") -> str:
    """Return the name in a form that is valid in every process: files become absolute.

    ``file.py:Id`` is searched in the task's ``folder``, then in the current one; ``module:Id`` is the file
    ``module.py`` of the folder if it exists. See :func:`use_folder` for what can be imported from then on.
    Raises EnvError, which names the configuration's ``key``, for a missing file.
    """
    use_folder(folder, name)
    source, colon, env = name.rpartition(":")
    if source.endswith(".py"):
        return f"{_file(source, folder, key)}:{env}"
    beside = folder / f"{source}.py" if folder is not None and colon and "." not in source else None
    return f"{beside.resolve()}:{env}" if beside is not None and beside.is_file() else name


def source_file(resolved: str) -> Path | None:
    """Return the file in what :func:`resolve_env_id` returned; None for modules and Gymnasium's own ids."""
    source = resolved.rpartition(":")[0]
    return Path(source) if source.endswith(".py") else None


def register_env(resolved: str) -> str:
    """Import the environment's module and return its id for ``gymnasium.make``.

    resolved: ``Id``, ``module:Id`` or ``/folder/file.py:Id``. Id may be a class; then the id under which it
    is registered is returned, which has its time limit. Raises whatever the import raises.
    """
    source, colon, name = resolved.rpartition(":")
    if not colon:
        return name
    module = import_source(source)
    attribute = getattr(module, name, None)
    if isinstance(attribute, type) and any(base.__module__ == "gym.core" for base in attribute.__mro__):
        why = f"{name} is an environment of gym, not of gymnasium"
        raise EnvError("the environment could not be made", where=resolved, why=why, fix=GYMNASIUM)
    if why := several_agents(attribute):
        raise EnvError("the environment has several agents", where=resolved, why=why, fix=ONE_AGENT)
    if isinstance(attribute, type) and issubclass(attribute, TensorEnv):
        raise EnvError(
            "the environment steps as tensors",
            where=resolved,
            why=f"{name} is a TensorEnv, and a Gymnasium environment is expected",
            fix="set base_config.env_type: TENSOR, for example by -o base_config.env_type=TENSOR",
        )
    return _id_of(module, attribute) if _is_env_class(attribute) else name


def import_source(source: str) -> ModuleType:
    """Return the module of that name or file, imported once a process. Raises whatever it raises."""
    with exits_as_errors():
        return _import_source(source)


def _import_source(source: str) -> ModuleType:
    """Import a module, or a file under a private name if an import would get another file."""
    if source.endswith(".py"):
        extend_path(Path(source).parent)  # for imports from its own folder
    name = _module_of(source)
    if name in sys.modules or not name.startswith(_PRIVATE):
        return importlib.import_module(name)
    spec = importlib.util.spec_from_file_location(name, source)
    assert spec is not None and spec.loader is not None, "the file ends in .py"
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickle need it
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def suggest_name(name: str, available: Sequence[str]) -> str:
    """Return a hint: the name closest to ``name``, and all available names."""
    close = difflib.get_close_matches(name, available, n=1)
    return (f"did you mean {close[0]}? " if close else "") + f"there: {', '.join(available) or 'none'}"


def _file(source: str, folder: Path | None, key: str) -> Path:
    """Return the absolute path of a source file. Raises EnvError if there is none."""
    tried = [place / source for place in (folder, Path.cwd()) if place is not None]
    tried = list(dict.fromkeys(path.resolve() for path in tried))
    file = next((path for path in tried if path.is_file()), None)
    if file is None:
        raise EnvError(
            f"there is no file {source}",
            where=key,
            why=f"not found: {', '.join(map(str, tried))}",
            fix="give its path from the task's folder or from the current one: file.py:Id",
        )
    return file


_PRIVATE = "env_file_"


def _module_of(source: str) -> str:
    """Return the name of a module or file: a private one where an import would get another file."""
    if not source.endswith(".py"):
        return source
    file, spec = Path(source), None
    with suppress(ImportError, ValueError):  # a dotted name, or a loaded module without a spec
        spec = importlib.util.find_spec(file.stem)
    if spec is not None and spec.origin and Path(spec.origin).resolve() == file:
        return file.stem
    return f"{_PRIVATE}{file.stem}_{zlib.crc32(source.encode())}"


def use_folder(folder: Path | None, *names: str) -> None:
    """Add the task's folder to the import path, here and in workers, behind all that is installed.

    If one of ``names`` has a module, the current folder is added as well. Otherwise a folder counts only
    with a task or networks in it: torch would import a ``z3.py`` that happens to lie in the current folder.
    """
    named = any(":" in name for name in names)
    if folder is not None and (named or any((folder / file).is_file() for file in ("config.yaml", "nn.py"))):
        extend_path(folder)
    if named:
        extend_path(Path.cwd())


def extend_path(folder: Path) -> None:
    """Append the folder to the import path, behind everything installed, also in child processes."""
    path = str(folder.resolve())
    if path not in sys.path:
        sys.path.append(path)


def _id_of(module: ModuleType, env_class: type[gym.Env]) -> str:
    """Return the id of the class; an unregistered class is registered under a private id."""
    entries = (env_class, f"{module.__name__}:{env_class.__name__}")
    known = [name for name, spec in gym.registry.items() if spec.entry_point in entries]
    if known:
        return known[-1]  # the newest version
    # A bare id may belong to another package.
    name = re.sub(r"\W", "_", module.__name__) + f"/{env_class.__name__}"
    gym.register(name, cast(EnvCreator, env_class))
    return name


def _is_env_class(value: object) -> TypeGuard[type[gym.Env]]:
    """Return whether a value is a class of environments, and not a wrapper."""
    return isinstance(value, type) and issubclass(value, gym.Env) and not issubclass(value, gym.Wrapper)


_EXTRAS = {
    "pettingzoo": "pettingzoo",
    "mpe2": "pettingzoo",
    "envpool": "envpool",
    "mujoco_playground": "playground",
    "brax": "brax",
    "ale_py": "atari",
    "opencv": "atari",
    "Box2D": "box2d",
    "popgym": "popgym",
    "minigrid": "minigrid",
    "gymnasium_robotics": "robotics",
    "gym_hil": "robots",
    "mujoco": "mujoco",
    "pybullet": "bullet",
    "dm_control": "dmc",
}
"""Package named in an import error -> the extra of pyproject.toml that contains it."""


def advice(error: BaseException, otherwise: str) -> str:
    """Return advice on a failed import: its wrong line, or a command to install; else ``otherwise``."""
    if isinstance(error, ImportError | gym.error.DependencyNotInstalled):
        for package, extra in _EXTRAS.items():
            if package in str(error):
                return install_command(extra)
    if isinstance(error, AssertionError) and _raised_in(error, "gymnasium_robotics"):
        return f"it may need an older MuJoCo than is installed, {install_command('robotics')}"
    return import_fix(error) or otherwise


def _raised_in(error: BaseException, package: str) -> bool:
    """Return whether an error passed through code of a package."""
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    return any(frame.f_globals.get("__name__", "").split(".")[0] == package for frame in frames)
