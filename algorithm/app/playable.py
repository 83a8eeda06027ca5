"""A run that is to be played, and which one a command line means."""

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
from algorithm.env.pool.repetition import other_limits, spec_as_json, specs_from_json
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
    """A run in a folder that is to be played; the extra ``sharing`` makes one of an export.

    run:    its files
    output: folder for what playing writes
    """

    run: RunDir
    output: RunDir

    kind: ClassVar[str] = "run"

    @property
    def source(self) -> str:
        """Name of its place, for errors."""
        return self.run.shown(self.run.path)

    @property
    def remedy(self) -> str:
        """Advice for an environment in which it cannot act."""
        return "use the environment that it was trained with"

    @property
    def spaces(self) -> Mapping[str, Any]:
        """Observations and actions of each behaviour's agents, as JSON; empty where none are noted."""
        spaces = read_json(self.run.manifest).get("spaces")
        return spaces if isinstance(spaces, dict) else {}

    @contextmanager
    def fitting(self, specs: Mapping[str, AgentSpec], *, warn: Callable[[str], None]) -> Iterator[None]:
        """Build agents for ``specs`` and load networks in the block.

        warn: told what else is different in the environment
        """
        for line in other_limits(specs, self.spaces):
            warn(line)
        yield

    def players(
        self,
        context: RunContext,
        specs: Mapping[str, AgentSpec],
        saved: Checkpoint,
        *,
        warn: Callable[[str], None],
    ) -> Mapping[str, Agent]:
        """Return agents with the networks of a checkpoint. Raises UsageError for an object that does not fit.

        warn: told what else is different in the environment
        """
        if context.given:
            self.agree(specs)
        with self.fitting(specs, warn=warn):
            return context.players(specs, self.run.path, saved)

    @contextmanager
    def context(
        self,
        loaded: LoadedConfig,
        device: str,
        given: EnvObject | None,
        lessons: Mapping[str, str] | None = None,
    ) -> Iterator[RunContext]:
        """Yield what makes environments and agents, which are closed behind the block; it prints warnings."""
        with ExitStack() as stack:
            faults = Faults(stack.enter_context(open_console(quiet=True)))
            yield RunContext(
                loaded=loaded, device=device, faults=faults, stack=stack, lessons=lessons, given=given
            )

    def agree(self, specs: Mapping[str, AgentSpec]) -> None:
        """Raise UsageError unless agents see and do in ``specs`` what they were trained with."""
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
        """Return whether a behaviour learned with masks of its actions."""
        return masked_in(saved, behaviour)

    def task(self, folder: EnvFolder | None) -> EnvFolder:
        """Return the folder whose modules may be imported: the task's, without one the run's."""
        return folder or EnvFolder(self.run.path, self.run.env)

    def configured(
        self, overrides: Overrides = (), flags: Mapping[str, object] | None = None
    ) -> LoadedConfig:
        """Return the configuration with changes. Raises ConfigError.

        Modules are looked for in the task's folder; of a task that is not here in the run's own, of an export
        in the current one.
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
        """Format the checkpoint for a person."""
        return self.run.shown(saved.path)

    def of_this_machine(self, wanted: str) -> RunDir:
        """Return the folder with all that a training writes. Raises UsageError without what is wanted."""
        return self.run


@contextmanager
def playable_run(options: TrainOptions, folder: EnvFolder) -> Iterator[PlayableRun]:
    """Yield what ``-n`` names, a run or an export, which is unpacked for the length of the block."""
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
    """Return the run in a folder. Raises UsageError if there is none."""
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


def noted_specs(spaces: object, manifest: Path) -> dict[str, AgentSpec]:
    """Return what a run has noted of its agents as `specs_from_json` does. Raises StorageError for damage."""
    try:
        return specs_from_json(spaces)
    except ValueError as error:
        raise StorageError("the run's spaces are damaged", where=manifest, why=str(error)) from error


def _same(present: Mapping[str, Any], noted: Mapping[str, Any]) -> bool:
    """Return whether spaces are those that a run has noted, perhaps with more."""
    return present.keys() == noted.keys() and all(
        spec.items() <= noted[name].items() for name, spec in present.items()
    )


def _text(specs: Mapping[str, AgentSpec]) -> str:
    return " · ".join(
        f"{spec}" if name == DEFAULT_BEHAVIOUR else f"{name}: {spec}" for name, spec in specs.items()
    )
