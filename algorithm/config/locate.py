"""Search for the environment that the command line's ENV names: a task's folder, or a name without one."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from algorithm.config.errors import ConfigError, Problem
from algorithm.config.yaml_io import shown
from algorithm.env.kinds import (
    BRAX,
    DM_CONTROL,
    ENVPOOL,
    GYM,
    OBJECT,
    OBJECT_RUNS,
    PETTINGZOO,
    PLAYGROUND,
    dm_task,
)

CONFIG_FILE = "config.yaml"
_INSTALLED = Path(__file__).resolve().parents[1] / "shipped_envs"
_PROJECT_ENVS = _INSTALLED if _INSTALLED.is_dir() else _INSTALLED.parents[1] / "envs"
"""Tasks that come with the framework, of an installed package or of the checkout."""

_PACKAGES = {
    r"(ALE/.+|.+NoFrameskip-v\d)": r"ale_py:\1",
    r"((MiniGrid|BabyAI)-.+)": r"minigrid:\1",
    r"(popgym-.+)": r"popgym:\1",
    r"((Fetch|PointMaze|AntMaze|Hand|Adroit)\w*-v\d)": r"gymnasium_robotics:\1",
    r"(.+BulletEnv-v\d)": r"pybullet_envs_gymnasium:\1",
}
"""Form of an id that only a package registers -> the name with its package."""

_FORMS = {
    PETTINGZOO: r"(pettingzoo|mpe2)\.[\w.]+",
    DM_CONTROL: r"dm\.\w+\.\w+",
    ENVPOOL: r"envpool\.[\w./-]+",
    PLAYGROUND: r"playground\.\w+",
    BRAX: r"brax\.\w+",
    OBJECT: rf"{OBJECT_RUNS}[\w.-]+",
}
"""Kind → form of its names, which are recognised without an import."""

_OTHERS = "for an environment of another package write module:Id, for your own file.py:Id"


@dataclass(frozen=True)
class EnvFolder:
    """A task's folder, and the label that names the folder of its runs, such as ``gym/pendulum``.

    env_name: the environment, for a task without a folder; ``path`` is the current folder then
    """

    path: Path
    label: str
    env_name: str | None = None

    @property
    def keys_of_name(self) -> dict[str, object]:
        """Dotted path → value of the keys that the name of a task without a folder sets."""
        if self.env_name is None:
            return {}
        kind = next((kind for kind, form in _FORMS.items() if re.fullmatch(form, self.env_name)), GYM)
        return {"base_config.env_type": kind.name, "base_config.env_name": self.env_name}

    @property
    def defaults(self) -> dict[str, object]:
        """Dotted path → default for a task without a folder, which sets no length of training."""
        return {} if self.env_name is None else {"base_config.stop_at_return": "auto"}


def find_env(env: str) -> EnvFolder:
    """Find the folder that ENV names: below ``envs/`` here, below the project's ``envs/``, or any path.

    If no such folder has a config.yaml, ENV may be the name of an environment: an id of Gymnasium,
    ``module:Id``, ``file.py:Id``, ``pettingzoo.family.game``, ``envpool.Id``, ``playground.Task`` or
    ``brax.task``, or a task of the DeepMind Control suite in any of its forms, whose label is
    ``dm.domain.task``. ``object/Name`` labels runs
    of environments that were passed as objects. Raises ConfigError, with similar names, otherwise.
    """
    roots = _roots()
    for folder in (*(root / env for root in roots), Path(env)):
        try:
            folder = folder.resolve()
            if (folder / CONFIG_FILE).is_file():
                return EnvFolder(folder, _label(folder, roots))
        except (OSError, ValueError) as error:  # no system has such a path: too long, or with a NUL
            raise _unknown(
                f"{env:.80}", str(error)[:80], "name a task, a folder or an environment"
            ) from error
    if task := dm_task(env):
        env = f"dm.{'.'.join(task)}"
    label = _label_of_name(env)
    if label is None:
        raise _no_env(env, roots)
    return EnvFolder(Path.cwd(), label, env)


def known_tasks() -> dict[str, Path]:
    """Return task → its config.yaml, for all tasks below ``envs/`` here and in the framework."""
    tasks: dict[str, Path] = {}
    for root in _roots():
        for file in sorted(root.rglob(CONFIG_FILE)):
            tasks.setdefault(file.parent.relative_to(root).as_posix(), file)
    return tasks


def nearest(env: str, known: Iterable[str], count: int = 1) -> list[str]:
    """Return known names similar to ``env``, nearest first, regardless of case and version.

    Whole paths are compared first, then their last parts. Of several versions the last one counts.
    """
    known = list(known)
    whole = {_spelled(name): name for name in known}
    last = {_spelled(name.rpartition("/")[2]): name for name in known}
    asked = _spelled(env.strip("/"))
    close = get_close_matches(asked, whole, count, cutoff=0.85)
    if close:
        return [whole[name] for name in close]
    return [last[name] for name in get_close_matches(asked.rpartition("/")[2], last, count, cutoff=0.72)]


def _spelled(name: str) -> str:
    """Return a name in small letters and without a version, for comparisons."""
    return re.sub(r"-v\d+$", "", name).lower()


def _roots() -> tuple[Path, ...]:
    """Return the folders that are searched for tasks."""
    here = (Path.cwd() / "envs").resolve()
    return (here,) if here == _PROJECT_ENVS else (here, _PROJECT_ENVS)


def _label(folder: Path, roots: tuple[Path, ...]) -> str:
    """Return the path of a task's folder below a root, or its name if it lies below none."""
    for root in roots:
        if folder != root and folder.is_relative_to(root):
            return folder.relative_to(root).as_posix()
    return folder.name


def _label_of_name(env: str) -> str | None:
    """Return the label for runs of an environment without a folder; None if ``env`` is no environment.

    ``CartPole-v1`` is its own label; that of ``module:Id`` is ``module/Id``, and that of a file below the
    current folder its path without the ending. Raises ConfigError for a missing file or module.
    """
    if any(re.fullmatch(form, env) for form in _FORMS.values()):
        return env
    import gymnasium as gym  # not needed by a task's folder, and slow to load

    from algorithm.env.env_id import use_folder

    use_folder(None, env)
    source, colon, name = env.rpartition(":")
    if env.endswith(".py") and Path(env).is_file():
        fix = f"name one: {env}:Id, an id that the file registers or a class that it defines"
        raise _unknown(env, "it is a file, which may have several environments", fix)
    if not colon:
        return env if env in gym.registry else None
    if not (source and name):
        return None
    if not source.endswith(".py"):
        _check_module(env, source)
        return f"{source}/{name}"
    if not Path(source).is_file():
        fix = "give the file's path from the current folder: folder/file.py:Id"
        raise _unknown(env, f"there is no file {shown(Path(source))}", fix)
    file, here = Path(source).resolve().with_suffix(""), Path.cwd().resolve()
    return f"{file.relative_to(here).as_posix() if file.is_relative_to(here) else file.name}/{name}"


def _check_module(env: str, module: str) -> None:
    """Raise ConfigError if the module cannot be imported."""
    try:
        if importlib.util.find_spec(module.partition(".")[0]) is not None:
            return
    except ValueError:  # it runs already
        return
    from algorithm.env.env_id import advice

    missing = ModuleNotFoundError(f"No module named {module!r}", name=module)
    fix = advice(missing, "install its package, or run from the folder of the module")
    if (Path.cwd() / f"{module}.py").is_file():
        fix = f"name the file: {module}.py:{env.rpartition(':')[2]}"
    raise _unknown(env, f"there is no module {module}", fix)


def _no_env(env: str, roots: tuple[Path, ...]) -> ConfigError:
    """Return the error for an unknown environment, with similar names of packages, tasks and Gymnasium."""
    import gymnasium as gym

    known = list(known_tasks())
    ids = [name for name in gym.registry if "/" not in name]  # the others need packages of their own
    forms = [match.expand(name) for form, name in _PACKAGES.items() if (match := re.fullmatch(form, env))]
    near = [*forms, *nearest(env, known), *nearest(env.rpartition("/")[2], ids, 2)]
    if near:
        fix = f"did you mean {' or '.join(f'`{name}`' for name in near)}? {_OTHERS}"
    else:
        fix = f"tasks: {', '.join(known) or 'none'}; {_OTHERS}"
    where = "looked in " + ", ".join([*map(shown, roots), "as a path, and among Gymnasium's ids"])
    return _unknown(env, f"no folder of that name has a {CONFIG_FILE}", fix, where)


def _unknown(env: str, why: str, fix: str, where: str = "the name of the task") -> ConfigError:
    """Return the error for an unknown environment."""
    return ConfigError([Problem(f"unknown environment `{env}`", where, why, fix)])
