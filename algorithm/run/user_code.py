"""Code of a user's own that a run executes: the file of its environment, its networks, plug-ins."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from traceback import extract_tb
from types import ModuleType

import torch

from algorithm.agents.registry import ALGORITHMS, family
from algorithm.config.by_spaces import CLASSES
from algorithm.config.loader import LoadedConfig
from algorithm.config.schema import Config
from algorithm.core.errors import COMMON_BLOCK, ModelError, UserError, described
from algorithm.core.plugins import EXTENSIONS, NETWORKS, SAMPLERS, Plugin, find, installed, unknown
from algorithm.env.env_id import extend_path, resolve_env_id, source_file, use_folder
from algorithm.env.kinds import ENVS
from algorithm.nn.loader import NnFile, import_networks
from algorithm.nn.models import defaults
from algorithm.run.signals import StoppedError


def env_file(loaded: LoadedConfig) -> Path | None:
    """Return the file of the task's own environment; None for one imported by its module or id."""
    if not loaded.config.base_config.kind.gymnasium:
        return None
    return source_file(resolve_env_id(loaded.config.base_config.env_name, loaded.env_dir))


def nn_file(config: Config, folder: Path) -> NnFile | None:
    """Return the file or plug-in with the task's networks; None for ``nn: null`` or no default file.

    None, too, for an algorithm without networks, which would use nothing of the file.

    A file of that name in ``folder``, of the task or the run, goes before a plug-in. It must be there also
    after symbolic links are resolved, since it will be executed: else ModelError is raised. UsageError is
    raised for a name of neither a file nor a plug-in, and for a plug-in that cannot be used.
    """
    if not family(config).networks:
        return None
    name = config.run.nn
    if name is None:
        return None
    file = folder / f"{name}.py"
    try:
        inside = file.resolve().is_relative_to(folder.resolve())
    except (OSError, ValueError, RuntimeError):  # a circle of links, a zero byte in the name
        inside = False
    if not inside:
        raise ModelError(
            "networks are taken only from the task's folder, or the run's own",
            where=f"{COMMON_BLOCK}.nn: {name!r}",
            why=f"that is a file outside of {folder}, and it would be executed",
            fix="put a file there and name it; it can import from installed packages",
        )
    return file if file.exists() else _nn_of_plugin(name, folder)


def own_classes(config: Config, folder: Path) -> set[str]:
    """Return the names of the task's networks that are built differently from the defaults of these names.

    These are the ones that do not inherit the default's ``__init__``. Executes the file; raises as
    :func:`nn_file` and :func:`~algorithm.nn.loader.import_networks`.
    """
    file = nn_file(config, folder)
    if isinstance(file, Path):
        extend_path(folder)  # a task may import what lies beside it
    module = import_networks(file) if file else None
    classes = {name: getattr(module, name) for name in CLASSES.values() if hasattr(module, name)}
    return {name for name, made in classes.items() if made.__init__ is not getattr(defaults, name).__init__}


def _nn_of_plugin(name: str, folder: Path) -> ModuleType | None:
    """Return the module of a plug-in with networks; None for a built-in name. Raises UsageError."""
    if name not in (*NETWORKS.built_in, *installed(NETWORKS)):
        files = [file.relative_to(folder).with_suffix("").as_posix() for file in sorted(folder.glob("*.py"))]
        raise unknown(
            NETWORKS,
            name,
            files=files,
            why=f"there is no {name}.py in {folder}, and no installed package has networks of that name",
        )
    plugin = find(NETWORKS, name)
    module = plugin.load() if plugin else None
    if plugin and not isinstance(module, ModuleType):
        fix = "its entry point must name a module, such as my_package.nn"
        raise plugin.error("is not a module", f"{plugin.value} is {module!r}", fix)
    return module


def use_modules(loaded: LoadedConfig) -> None:
    """Make modules importable that a configuration names: see :func:`~algorithm.env.env_id.use_folder`."""
    for config in (loaded.config, *loaded.behaviours.values()):
        entries = (*config.run.extensions, config.replay_config.sampler or {})
        use_folder(loaded.env_dir, config.algorithm, *(name for entry in entries for name in entry))


def plugins_of(loaded: LoadedConfig, names: Collection[str], folder: Path) -> list[Plugin]:
    """Return the plug-ins that a run uses, each once.

    names: of its behaviours; folder: with its file of networks
    """
    plugins: list[Plugin | None] = []
    for config in map(loaded.for_behaviour, names):
        plugins += _parts_of(config)
        if isinstance(nn_file(config, folder), ModuleType):
            plugins.append(find(NETWORKS, str(config.run.nn)))
    return list(dict.fromkeys(plugin for plugin in plugins if plugin is not None))


def _parts_of(config: Config) -> list[Plugin | None]:
    """Return a behaviour's plug-ins (environment, algorithm, extensions, sampler); None for built-in ones."""
    return [
        find(ENVS, config.base_config.env_type),
        find(ALGORITHMS, config.algorithm),
        *(find(EXTENSIONS, name) for entry in config.run.extensions for name in entry),
        *(find(SAMPLERS, name) for name in config.replay_config.sampler or {}),
    ]


def blame_user_code(loaded: LoadedConfig, kind: object, error: BaseException | None, trace: object) -> None:
    """Raise an error of the user's code as a UserError that names its file; takes ``__exit__``'s arguments.

    It is the user's if its traceback has a line of a plug-in, or of the task's networks.
    """
    if not isinstance(error, Exception | SystemExit) or isinstance(error, UserError | StoppedError):
        return
    for config in (loaded.config, *loaded.behaviours.values()):
        for plugin in _parts_of(config):
            if plugin and plugin.last_line(error):
                raise plugin.refused(error, "has raised an error") from error
        if isinstance(error, MemoryError | torch.OutOfMemoryError):
            continue
        lines = [f for f in extract_tb(error.__traceback__) if _is_nn_file(Path(f.filename), config)]
        if lines:
            raise ModelError(
                "the task's networks have raised an error",
                where=f"{lines[-1].filename}:{lines[-1].lineno}: {lines[-1].line}",
                why=described(error),
                fix="correct that line; --debug shows how it was reached",
            ) from error


def _is_nn_file(file: Path, config: Config) -> bool:
    """Return whether a file is the task's networks, or a run's copy of them; torch has an nn.py as well."""
    ours = config.run.nn is not None and file.as_posix().endswith(f"/{config.run.nn}.py")
    return ours and not file.is_relative_to(Path(torch.__file__).parent)
