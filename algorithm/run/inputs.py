"""The inputs of a training, the set-up of its process, and the user's own code that it runs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from traceback import extract_tb

import torch

from algorithm.agents.registry import ALGORITHMS, family
from algorithm.config.by_spaces import CLASSES
from algorithm.config.errors import suggest
from algorithm.config.loader import LoadedConfig
from algorithm.config.schema import Config
from algorithm.core.errors import COMMON_BLOCK, ModelError, UsageError, UserError, described
from algorithm.core.plugins import EXTENSIONS, SAMPLERS, Plugin, find
from algorithm.env.env_id import extend_path, resolve_env_id, source_file, use_folder
from algorithm.env.kinds import ENVS
from algorithm.env.objects import EnvObject
from algorithm.env.parameters.config import last_lessons
from algorithm.env.registered import reward_threshold
from algorithm.env.wrappers import resolve_wrappers
from algorithm.nn.loader import import_networks
from algorithm.nn.models import defaults
from algorithm.nn.process import set_up_process
from algorithm.run.callbacks import Callback
from algorithm.run.signals import StoppedError, StopRequest
from algorithm.store.rundir import RunDir


@dataclass(frozen=True, kw_only=True)
class RunInputs:
    """Everything that decides a training, as values.

    run:         folder of the run
    device:      of the networks, by name
    arguments:   the command line, for the manifest
    flags:       dotted path → value of changes to a resumed run that are not overrides
    env_object:  environments that were passed as Python objects
    callbacks:   called after those of the configuration
    evaluations: number of evaluations of the whole run after which it ends; None for no limit
    init_from:   networks that a resumed run goes on with, in the form of ``base_config.init_from``
    task_nn:     a resumed run takes ``nn.py`` of its task, and not the copy in its folder
    greedy:      agents act without sampling
    render:      show the environment
    stop:        becomes true when the training is to end
    """

    loaded: LoadedConfig
    run: RunDir
    device: str
    arguments: Sequence[str] = ()
    flags: Mapping[str, object] = field(default_factory=dict)
    env_object: EnvObject | None = None
    callbacks: Sequence[Callback] = ()
    evaluations: int | None = None
    init_from: str | None = None
    task_nn: bool = False
    greedy: bool = False
    render: bool = False
    stop: StopRequest = field(default_factory=StopRequest)


def set_up(loaded: LoadedConfig) -> LoadedConfig:
    """Set the number of torch's threads; return the configuration with ``auto`` resolved.

    ``stop_at_return: auto`` becomes a number or null, and ``start_step`` 0 if no random actions come first.
    :func:`~.context.fitted` resolves the rest.
    """
    if loaded.config.base_config.stop_at_return == "auto":
        solved = _solved_at(loaded)
        loaded = loaded.resolved("base_config", lambda _: {"stop_at_return": solved})
    loaded = loaded.resolved(COMMON_BLOCK, _random_steps)
    set_up_process(loaded.config.run.threads)
    return loaded


def _random_steps(config: Config) -> dict[str, object]:
    """Return ``start_step`` 0 for a training without random actions at first, else nothing."""
    return {"start_step": 0} if config.demonstrations.without_random else {}


def _solved_at(loaded: LoadedConfig) -> float | None:
    """Return the environment's reward threshold; None without it or evaluations, or in early lessons."""
    config, folder = loaded.config, loaded.env_dir
    early = config.eval_config.lesson == "current" and last_lessons(config.parameters)
    if early or not config.base_config.kind.registered or not config.evaluates_on_the_way:
        return None
    wrappers = resolve_wrappers(config.wrappers_for("evaluate"), folder)
    return reward_threshold(resolve_env_id(config.base_config.env_name, folder), wrappers)


def env_file(loaded: LoadedConfig) -> Path | None:
    """Return the file of the task's own environment; None for one imported by its module or id."""
    if not loaded.config.base_config.kind.gymnasium:
        return None
    return source_file(resolve_env_id(loaded.config.base_config.env_name, loaded.env_dir))


def nn_file(config: Config, folder: Path) -> Path | None:
    """Return the file with the task's networks; None for ``nn: null`` or no default file.

    None, too, for an algorithm without networks, which would use nothing of the file.

    The file must be in ``folder``, of the task or the run, also after symbolic links are resolved, since it
    will be executed: else ModelError is raised. UsageError is raised for a name without a file.
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
    if file.exists():
        return file
    if name == "nn":
        return None
    files = [path.relative_to(folder).with_suffix("").as_posix() for path in folder.glob("*.py")]
    raise UsageError(
        f"there is no file of networks `{name}`",
        where=f"{COMMON_BLOCK}.nn",
        why=f"there is no {name}.py in {folder}",
        fix=suggest(name, files, "files"),
    )


def own_classes(config: Config, folder: Path) -> set[str]:
    """Return the names of the task's networks that are built differently from the defaults of these names.

    These are the ones that do not inherit the default's ``__init__``. Executes the file; raises as
    :func:`nn_file` and :func:`~algorithm.nn.loader.import_networks`.
    """
    file = nn_file(config, folder)
    if file:
        extend_path(folder)  # a task may import what lies beside it
    module = import_networks(file) if file else None
    classes = {name: getattr(module, name) for name in CLASSES.values() if hasattr(module, name)}
    return {name for name, made in classes.items() if made.__init__ is not getattr(defaults, name).__init__}


def use_modules(loaded: LoadedConfig) -> None:
    """Make modules importable that a configuration names: see :func:`~algorithm.env.env_id.use_folder`."""
    for config in (loaded.config, *loaded.behaviours.values()):
        entries = (*config.run.extensions, config.replay_config.sampler or {})
        use_folder(loaded.env_dir, config.algorithm, *(name for entry in entries for name in entry))


def plugins_of(loaded: LoadedConfig, names: Collection[str]) -> list[Plugin]:
    """Return the user's own parts that a run uses, each once. names: of its behaviours."""
    parts = [part for config in map(loaded.for_behaviour, names) for part in _parts_of(config)]
    return list(dict.fromkeys(part for part in parts if part is not None))


def _parts_of(config: Config) -> list[Plugin | None]:
    """Return a behaviour's environment, algorithm, extensions and sampler; None for built-in ones."""
    return [
        find(ENVS, config.base_config.env_type),
        find(ALGORITHMS, config.algorithm),
        *(find(EXTENSIONS, name) for entry in config.run.extensions for name in entry),
        *(find(SAMPLERS, name) for name in config.replay_config.sampler or {}),
    ]


def blame_user_code(loaded: LoadedConfig, kind: object, error: BaseException | None, trace: object) -> None:
    """Raise an error of the user's code as a UserError that names its file; takes ``__exit__``'s arguments.

    It is the user's if its traceback has a line of a part of his own, or of the task's networks.
    """
    if not isinstance(error, Exception | SystemExit) or isinstance(error, UserError | StoppedError):
        return
    for config in (loaded.config, *loaded.behaviours.values()):
        for plugin in _parts_of(config):
            if plugin and plugin.last_line(error):
                raise plugin.refused(error, "has raised an error") from error
        if not isinstance(error, MemoryError | torch.OutOfMemoryError):
            _blame_networks(config, error)


def _blame_networks(config: Config, error: Exception | SystemExit) -> None:
    """Raise an error whose traceback has a line of the task's networks as a ModelError with that line."""
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
