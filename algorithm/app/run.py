"""A training on the disk, as Python code uses it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Literal

from typing_extensions import override

from algorithm.agents.base import Agent
from algorithm.app.cli.flag_types import is_export, is_graph
from algorithm.app.console.output import open_console
from algorithm.app.given import EnvLike, as_object, given_flags, played_in, with_keys
from algorithm.app.parameters import played_lessons
from algorithm.app.play import LIMITS
from algorithm.app.playable import PlayableRun, run_in
from algorithm.app.policy import TrainedPolicy, interface, interfaces, make_gym_env, one_of
from algorithm.app.resume import go_on
from algorithm.app.training import Screen
from algorithm.config.errors import ConfigError
from algorithm.config.loader import LoadedConfig, load_config_file
from algorithm.config.locate import EnvFolder, find_env
from algorithm.config.resolve import Overrides
from algorithm.config.schema import Config
from algorithm.core.errors import visible
from algorithm.core.extras import extra
from algorithm.core.spec import DEFAULT_BEHAVIOUR, AgentSpec
from algorithm.env.objects import EnvObject
from algorithm.env.pool.repetition import other_limits
from algorithm.evaluation.evaluate import Performance, cut_off_line, episode_limit, eval_policies
from algorithm.evaluation.evaluate import evaluate as play_episodes
from algorithm.experience.faults import Faults
from algorithm.nn.process import own_modes
from algorithm.runs.checkpoints.checkpoint import Checkpoint
from algorithm.runs.copies import copy_run
from algorithm.runs.logs.metrics import read_metrics
from algorithm.train.assembly import Assembly
from algorithm.train.callbacks import CallbackLike, Training, all_callbacks
from algorithm.train.run import RunInputs
from algorithm.train.signals import OnSignal, StopRequest

Which = Literal["best", "latest"] | int
"""Checkpoint: ``best`` by evaluation, ``latest``, or the one of a step."""


def _warn(text: str) -> None:
    print(f"warning: {visible(text)}", file=sys.stderr)


class Run:
    """A training on disk: settings, results and checkpoints.

    folder: folder of the run; or an export, ``FILE.zip`` or ``hf://OWNER/NAME``, to load and evaluate
    env:    environment to use instead of the run's own; needed if the run was trained on an object
    trust:  run the code that comes with an export

    Raises UsageError if there is no run or its code is not trusted, StorageError if an export is damaged.
    """

    def __init__(self, folder: str | Path, *, env: EnvLike | None = None, trust: bool = False) -> None:
        source = str(folder)
        if is_export(source):
            self._playable: PlayableRun = extra("playable_export")(source, trust=trust)
        else:
            self._playable = run_in(Path(folder))
        self._dir = self._playable.run
        self.folder = self._dir.path
        self._source = source if is_export(source) else str(self.folder)
        self._env = env

    @override
    def __repr__(self) -> str:
        return f"Run({self._source!r})"

    @property
    def config(self) -> Config:
        """The full configuration."""
        return self.configured().config

    @property
    def result(self) -> Mapping[str, Any]:
        """``result.json``: steps, updates, evaluations. Raises StorageError before the training has ended."""
        return self._dir.read_result()

    @property
    def metrics(self) -> dict[str, list[float]]:
        """All logged metrics: name → values, including ``step``. Missing values are nan."""
        return read_metrics(self._playable.of_this_machine("metrics").metrics_jsonl)

    @property
    def report(self) -> Path:
        """Path of the run's report page."""
        return self._playable.of_this_machine("report").report

    @own_modes()
    def policy(
        self,
        checkpoint: Which = "best",
        *,
        env: EnvLike | None = None,
        device: str = "cpu",
        behavior: str | None = None,
    ) -> TrainedPolicy:
        """Return the policy of a checkpoint; see :func:`load`."""
        loaded, saved = self.configured(LIMITS), self._playable.checkpoint(checkpoint, warn=_warn)
        given = self._played(env)
        adapters = interfaces(loaded, self._playable, given)
        name = one_of(adapters, behavior, self.folder)
        with self._assembly(loaded, device, given) as assembly:
            agents = self._players(assembly, {one: adapter.spec for one, adapter in adapters.items()}, saved)
        masked = self._playable.masked(saved, name)
        return TrainedPolicy(agents[name], adapters[name], saved.step, masked=masked)

    def make_env(self, *, lesson: str | None = None) -> Any:  # noqa: ANN401 - gymnasium leaves an environment's types open
        """Return the wrapped environment that evaluations step. lesson: as ``--lesson``."""
        loaded = self.configured(LIMITS)
        lessons, _ = played_lessons(loaded.config, lesson.split(",") if lesson else [])
        return make_gym_env(loaded, "evaluate", lessons, self._played())

    @own_modes()
    def export(self, file: str | Path, checkpoint: Which = "best", *, replace: bool = False) -> Path:
        """Export the run or its policy, like ``--export``; return the path.

        file: ``FILE.zip``, or ``FILE.onnx``, which is a folder if there are several behaviors

        Raises UsageError if the file exists, unless ``replace``; StorageError; ExportError if the graph does
        not match the policy.
        """
        if is_graph(str(file)):
            write = extra("write_policy")
            write(self._playable, self.configured(LIMITS), Path(file), checkpoint, replace=replace)
            return Path(file)
        run = self._playable.of_this_machine("export")
        extra("write_export")(run, checkpoint, Path(file), replace=replace, warn=_warn)
        return Path(file)

    def push(self, repository: str, checkpoint: Which = "best", *, private: bool = False) -> str:
        """Upload an export to the Hugging Face hub, like ``--push``; return its address.

        repository: ``OWNER/NAME``
        """
        run = self._playable.of_this_machine("push")
        address: str = extra("push_run")(run, checkpoint, repository, private=private, warn=_warn)
        return address

    def copy(self, folder: Path, *, replace: bool = False) -> None:
        """Copy the run to a folder, where its training can be resumed.

        Raises UsageError if the folder exists, unless ``replace`` and it holds a run, or if one of them is
        being trained; StorageError if copying fails.
        """
        copy_run(self._playable.of_this_machine("copy"), folder, replace=replace, notice=_warn)

    @own_modes()
    def evaluate(
        self,
        episodes: int = 10,
        checkpoint: Which = "best",
        *,
        env: EnvLike | None = None,
        device: str = "cpu",
        lesson: str | None = None,
        behavior: str | None = None,
    ) -> Performance:
        """Play episodes with the deterministic policy, like ``--eval``; return their returns and lengths.

        env:      any other environment with the same spaces
        lesson:   as ``--lesson``
        behavior: as in :func:`load`
        """
        loaded, saved = self.configured(LIMITS), self._playable.checkpoint(checkpoint, warn=_warn)
        lessons, _ = played_lessons(loaded.config, lesson.split(",") if lesson else [], saved)
        given = self._played(env)
        with self._assembly(loaded, device, given, lessons) as assembly:
            played = assembly.env("evaluate")
            name = one_of(played.specs, behavior, self.folder)
            agents = self._players(assembly, played.specs, saved)
            limit = episode_limit(loaded.config, played.time_limit)
            found = play_episodes(played, eval_policies(agents, "playing"), episodes, length_limit=limit)
            assert found is not None, "nothing stops it"
            if line := cut_off_line(found.values(), loaded.config, played.time_limit):
                assembly.faults.console.warn(line)
            if self._playable.masked(saved, name) and not played.masked:
                _warn("the environment gave no action_mask, unlike the trained one: all choices were allowed")
        return found[name]

    def resume(
        self,
        env: EnvLike | None = None,
        *,
        eval_env: EnvLike | None = None,
        max_step: int | None = None,
        overrides: Overrides | None = None,
        callbacks: CallbackLike = (),
        on_step: Callable[[Training], object] | None = None,
        on_signal: OnSignal = "raise",
        device: str = "auto",
        quiet: bool = False,
        **keys: object,
    ) -> Run:
        """Resume the training from its newest checkpoint, like ``--resume``; return the run.

        env, eval_env: as in :func:`train`; default: those of this object, else the run's own
        overrides, keys, on_signal: as in :func:`train`

        Raises UsageError if the environment has other observations or actions.
        """
        run = self._playable.of_this_machine("resume")
        given = as_object(self._env if env is None else env, eval_env)
        self.check_spaces(given, warn=lambda _: None)  # the training will say it
        lanes = given.train.lanes if given else 0
        flags = given_flags({"base_config.max_step": max_step, "base_config.n_envs": lanes or None})
        own, loaded = self.configured(), self.configured(with_keys(overrides, keys), flags)
        stop = StopRequest()
        inputs = RunInputs(
            loaded=loaded,
            run=run,
            device=device,
            arguments=("python", run.env),
            given=given,
            flags=flags,
            callbacks=all_callbacks(callbacks, on_step),
            stop=stop,
        )
        with stop.passed_on(on_signal):
            go_on(inputs, own, screen=Screen(quiet=quiet, result=not quiet))
        self._env = given
        return self

    def check_spaces(self, given: EnvObject | None, *, warn: Callable[[str], None] = _warn) -> None:
        """Raise UsageError if environments have other observations or actions than the trained one.

        warn: told of other bounds and starts
        """
        if given is not None:
            specs = {DEFAULT_BEHAVIOUR: interface(self.configured(LIMITS), given).spec}
            self._playable.agree(specs)
            for line in other_limits(specs, self._playable.spaces):
                warn(line)

    def configured(
        self, overrides: Overrides = (), flags: Mapping[str, object] | None = None
    ) -> LoadedConfig:
        """Return the configuration with changes. Raises ConfigError."""
        return load_config_file(
            self._dir.config, overrides, flags or {}, env=self._task_folder(), require_runnable=True
        )

    def _task_folder(self) -> EnvFolder:
        """Return the task's folder; of a task that is not here the run's own, of an export the current one.

        What is imported later is looked for there, too, and the folder of an export does not stay.
        """
        try:
            return self._playable.task(find_env(self._dir.env))
        except ConfigError:
            return self._playable.task(None)

    @contextmanager
    def _assembly(
        self,
        loaded: LoadedConfig,
        device: str,
        given: EnvObject | None,
        lessons: Mapping[str, str] | None = None,
    ) -> Iterator[Assembly]:
        with ExitStack() as stack:
            console = stack.enter_context(open_console(quiet=True))
            yield Assembly(
                loaded=loaded,
                device=device,
                faults=Faults(console),
                stack=stack,
                lessons=lessons,
                given=given,
            )

    def _played(self, env: EnvLike | None = None) -> EnvObject | None:
        """Return the environment to play in; None for the run's own by its name."""
        env = self._env if env is None else env
        return None if env is None else played_in(env)

    def _players(
        self, assembly: Assembly, specs: Mapping[str, AgentSpec], saved: Checkpoint
    ) -> Mapping[str, Agent]:
        if assembly.given:
            self._playable.agree(specs)
        with self._playable.fitting(specs, warn=_warn):
            return assembly.players(specs, self.folder, saved)
