"""Runs that can be played, and the choice of one by a command line."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from algorithm.agents.base import Agent
from algorithm.app.cli.train import TrainOptions
from algorithm.app.console.output import open_console
from algorithm.config.errors import ConfigError
from algorithm.config.loader import LoadedConfig, load_config_file
from algorithm.config.locate import EnvFolder, find_env
from algorithm.config.resolve import Overrides
from algorithm.core.errors import StorageError, UsageError
from algorithm.core.extras import extra
from algorithm.core.program import flag_or_argument
from algorithm.core.reading import read_json
from algorithm.core.spec import DEFAULT_BEHAVIOUR, AgentSpec
from algorithm.env.objects import EnvObject
from algorithm.env.pool.repetition import spec_as_json, specs_from_json
from algorithm.run.context import RunContext
from algorithm.run.experience.faults import Faults
from algorithm.run.state import masked_in
from algorithm.store.checkpoints.checkpoint import Checkpoint
from algorithm.store.checkpoints.manager import find_checkpoint
from algorithm.store.names import Ckpt
from algorithm.store.rundir import RunDir

# Replace those of the training; the command line comes after them. max_step must be a number: a lesson may be
# measured by its share. Workers only train, and more of them than environments are refused.
LIMITS = (
    f"base_config.max_step={10**15}",
    "base_config.max_iter=-1",
    "base_config.n_envs=1",
    "base_config.workers=0",
)


@dataclass(frozen=True)
class PlayableRun:
    """A run in a folder that can be played; the extra ``sharing`` has a subclass for exports.

    run:    files of the run
    output: folder for videos and evaluations
    """

    run: RunDir
    output: RunDir

    kind: ClassVar[str] = "run"

    @property
    def source(self) -> str:
        """Path of the run or export, for errors."""
        return self.run.shown(self.run.path)

    @property
    def remedy(self) -> str:
        """Advice for an environment in which the run's agents cannot act."""
        return "use the environment that it was trained with"

    @property
    def spaces(self) -> Mapping[str, Any]:
        """Observations and actions of each behaviour, as JSON from the manifest; empty if it has none."""
        spaces = read_json(self.run.manifest).get("spaces")
        return spaces if isinstance(spaces, dict) else {}

    @contextmanager
    def fitting(self, specs: Mapping[str, AgentSpec]) -> Iterator[None]:
        """Wrap a block that builds agents for ``specs`` and loads networks; exports refuse other specs."""
        yield

    def players(
        self, context: RunContext, specs: Mapping[str, AgentSpec], saved: Checkpoint
    ) -> Mapping[str, Agent]:
        """Make agents with the networks of a checkpoint. Raises UsageError if an environment does not fit."""
        if context.env_object:
            self.agree(specs)
        with self.fitting(specs):
            return context.players(specs, self.run.path, saved)

    @contextmanager
    def context(
        self,
        loaded: LoadedConfig,
        device: str,
        env_object: EnvObject | None,
        lessons: Mapping[str, str] | None = None,
    ) -> Iterator[RunContext]:
        """Yield the context that makes environments and agents, and closes them; it prints only warnings."""
        with ExitStack() as stack:
            faults = Faults(stack.enter_context(open_console(quiet=True)))
            yield RunContext(
                loaded=loaded,
                device=device,
                faults=faults,
                stack=stack,
                lessons=lessons,
                env_object=env_object,
            )

    def agree(self, specs: Mapping[str, AgentSpec]) -> None:
        """Raise UsageError unless ``specs`` are the observations and actions of the training."""
        present = {name: spec_as_json(spec) for name, spec in specs.items()}
        if not self.spaces or _same(present, self.spaces):
            return
        raise UsageError(
            f"the environment has other observations or actions than the {self.kind} was trained with",
            where=self.source,
            why=f"there {_text(specs_from_json(self.spaces))}\nhere {_text(specs)}",
            fix=self.remedy,
        )

    def masked(self, saved: Checkpoint, behaviour: str) -> bool:
        """Return whether a behaviour was trained with action masks."""
        return masked_in(saved, behaviour)

    def task(self, folder: EnvFolder | None) -> EnvFolder:
        """Return the folder whose modules may be imported: the task's, or without one the run's."""
        return folder or EnvFolder(self.run.path, self.run.env)

    def configured(
        self, overrides: Overrides = (), flags: Mapping[str, object] | None = None
    ) -> LoadedConfig:
        """Return the configuration with changes. Raises ConfigError.

        Modules are searched in the task's folder; if that is missing in the run's, for an export in the
        current one.
        """
        folder = None
        with suppress(ConfigError):
            folder = find_env(self.run.env)
        return load_config_file(
            self.run.config, overrides, flags or {}, env=self.task(folder), require_runnable=True
        )

    def checkpoint(self, which: Ckpt | None, *, warn: Callable[[str], None]) -> Checkpoint:
        """Read a checkpoint, as `find_checkpoint`."""
        flag = flag_or_argument("--ckpt ", "checkpoint=")
        return find_checkpoint(self.run.checkpoints, which, warn=warn, flag=flag)

    def shown(self, saved: Checkpoint) -> str:
        """Return a line on a checkpoint, for the console."""
        return self.run.shown(saved.path)

    def trained_here(self, purpose: str) -> RunDir:
        """Return the folder of the training. Raises UsageError for an export, which cannot do ``purpose``."""
        return self.run


@contextmanager
def playable_run(options: TrainOptions, folder: EnvFolder) -> Iterator[PlayableRun]:
    """Yield the run or export that ``-n`` names; an export is unpacked for the length of the block."""
    if options.names_export:
        with extra("named_export")(options, folder) as played:
            yield played
    else:
        run = find_run(options, folder)
        yield PlayableRun(run, run)


def find_run(options: TrainOptions, folder: EnvFolder) -> RunDir:
    """Return the run of ``--name``, else the newest one. Raises StorageError if there is none."""
    if options.name is None:
        return RunDir.newest(folder.label, models=options.directory, argument=options.env)
    return RunDir.open(folder.label, options.name, models=options.directory, argument=options.env)


def run_in(folder: Path) -> PlayableRun:
    """Return the run in a folder. Raises UsageError if it has none."""
    path = folder.resolve()
    config = path / "config.yaml"
    if not config.is_file():
        raise UsageError(
            f"{folder} is not a run",
            where=path,
            why="it has no config.yaml",
            fix="pass the folder of a run, such as models/CartPole-v1/NAME",
        )
    label = config.read_text("utf-8").partition("\n")[0].removeprefix("# ").partition(":")[0]
    run = RunDir(label, path.name, path, label)
    return PlayableRun(run, run)


def recorded_specs(spaces: object, manifest: Path) -> dict[str, AgentSpec]:
    """Return the specs in a run's manifest, as `specs_from_json`. Raises StorageError for damage."""
    try:
        return specs_from_json(spaces)
    except ValueError as error:
        raise StorageError("the run's spaces are damaged", where=manifest, why=str(error)) from error


def _same(present: Mapping[str, Any], recorded: Mapping[str, Any]) -> bool:
    """Return whether spaces equal recorded ones; they may have more behaviours."""
    return present.keys() == recorded.keys() and all(
        spec.items() <= recorded[name].items() for name, spec in present.items()
    )


def _text(specs: Mapping[str, AgentSpec]) -> str:
    """Return observations and actions of each behaviour in words."""
    return " · ".join(
        f"{spec}" if name == DEFAULT_BEHAVIOUR else f"{name}: {spec}" for name, spec in specs.items()
    )
