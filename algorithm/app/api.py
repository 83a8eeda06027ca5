"""Training and acting from Python: what ``import asac`` offers."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Literal

from typing_extensions import override

from algorithm.agents.networks import pick_device
from algorithm.app.cli.flag_types import GRAPH, HUB, is_export
from algorithm.app.console.output import open_console
from algorithm.app.parameters import played_lessons
from algorithm.app.play import LIMITS
from algorithm.app.policy import TrainedPolicy, make_gym_env
from algorithm.app.resume import go_on
from algorithm.app.sharing.export import build, write
from algorithm.app.sharing.onnx import run_graph
from algorithm.app.sharing.opening import PlayableRun, open_export, run_in
from algorithm.app.training import Screen, new_run, run_training
from algorithm.config.errors import ConfigError
from algorithm.config.loader import LoadedConfig, load_config, load_config_file
from algorithm.config.locate import EnvFolder, find_env
from algorithm.core.errors import UsageError, visible
from algorithm.core.spec import DEFAULT_BEHAVIOUR
from algorithm.env.adapter import Adapter
from algorithm.env.observations import frame_stack
from algorithm.evaluation.evaluate import Performance, cut_off_line, episode_limit, eval_policies
from algorithm.evaluation.evaluate import evaluate as play_episodes
from algorithm.experience.faults import Faults
from algorithm.runs.logs.metrics import read_metrics
from algorithm.runs.names import MODELS
from algorithm.runs.rundir import RunDir
from algorithm.train.assembly import Assembly
from algorithm.train.callbacks import Callback, OnStep, Training
from algorithm.train.run import RunInputs

Which = Literal["best", "latest"] | int
"""Checkpoint: ``best`` by evaluation, ``latest``, or the one of a step."""


def train(  # noqa: PLR0913 - flags of the command, by keyword
    task: str,
    *,
    config: str | None = None,
    overrides: Mapping[str, object] | None = None,
    preset: str | None = None,
    name: str | None = None,
    max_step: int | None = None,
    seed: int | None = None,
    device: str = "auto",
    directory: str | Path = MODELS,
    callbacks: Sequence[Callback] = (),
    on_step: Callable[[Training], object] | None = None,
    quiet: bool = False,
) -> Run:
    """Train as ``asac TASK`` does, and return the run.

    task:      as on the command line: a folder, an id of Gymnasium, ``module:Id`` or ``file.py:Id``
    config:    section or file; the section ``default`` without it
    overrides: key → value, such as ``{"base_config.n_envs": 4}``
    directory: folder of all runs
    callbacks: called behind those of the configuration; on_step: a function instead of a whole class
    quiet:     print warnings and the result alone

    Raises ConfigError with every fault of the configuration, UsageError, EnvError, StorageError and
    NumericalError as the command does, CallbackError for whatever a callback raises.
    """
    flags = _given({"base_config.preset": preset, "base_config.name": name, "base_config.max_step": max_step})
    loaded = load_config(task, config, overrides or {}, flags, seed, require_runnable=True)
    with new_run(loaded, models=Path(directory), argument=task) as run:
        inputs = RunInputs(
            loaded=loaded,
            run=run,
            device=pick_device(device),
            arguments=("python", task),
            callbacks=_all(callbacks, on_step),
        )
        run_training(inputs, screen=Screen(quiet=quiet))
    return Run(run.path)


class Run:
    """A training on the disk: its settings, results and checkpoints.

    folder: of the run; or an export of one, ``FILE.zip`` or ``hf://OWNER/NAME``, whose policy can be loaded
            and evaluated. Every byte of it is verified.
    trust:  run the code that an export brings or names
    Raises UsageError for a folder without a run and for code that is not trusted, StorageError for an export
    that is not what was written.
    """

    def __init__(self, folder: str | Path, *, trust: bool = False) -> None:
        self._export = open_export(str(folder), trust=trust) if is_export(str(folder)) else None
        self._dir = self._export.run if self._export else run_in(Path(folder))
        self._found = PlayableRun(self._dir, self._dir, self._export)
        self.folder = self._dir.path

    @override
    def __repr__(self) -> str:
        return f"Run({str(self._export.source if self._export else self.folder)!r})"

    @property
    def result(self) -> Mapping[str, Any]:
        """Content of ``result.json``: steps, updates, evaluations. StorageError if it has not ended."""
        return self._dir.read_result()

    @property
    def metrics(self) -> dict[str, list[float]]:
        """Table of all logged metrics: name → values, ``step`` among them; nan where a row has none."""
        return read_metrics(self._of_this_machine("metrics").metrics_jsonl)

    @property
    def report(self) -> Path:
        """The page on this run."""
        return self._of_this_machine("report").report

    def policy(self, checkpoint: Which = "best", *, device: str = "cpu") -> TrainedPolicy:
        """Return the policy of a checkpoint; see :func:`load`."""
        loaded, saved = self._loaded(), self._found.checkpoint(checkpoint, warn=_warn)
        env = make_gym_env(loaded, "evaluate")
        try:
            adapter = Adapter(env.observation_space, env.action_space, str(env), stack=frame_stack(env))
            with self._assembly(loaded, device) as assembly:
                specs = {DEFAULT_BEHAVIOUR: adapter.spec}
                with self._found.fitting(specs):
                    agents = assembly.players(specs, self.folder, saved)
            return TrainedPolicy(env, agents[DEFAULT_BEHAVIOUR], adapter, saved.step)
        finally:
            env.close()

    def make_env(self, *, lesson: str | None = None) -> Any:  # noqa: ANN401 - gymnasium leaves an environment's types open
        """Return the run's environment in its wrappers, as evaluations step it, in a ``--lesson``."""
        loaded = self._loaded()
        return make_gym_env(loaded, "evaluate", played_lessons(loaded.config, _words(lesson))[0])

    def export(self, file: str | Path, checkpoint: Which = "best", *, replace: bool = False) -> Path:
        """Write the run as one file to share, or its policy, as ``--export`` does; return its path.

        file: ``FILE.zip``, or ``FILE.onnx``, which with several behaviours is a folder
        Raises UsageError if there is a file of that name, unless ``replace``; StorageError; ExportError for a
        graph that is not what it should be.
        """
        if str(file).endswith(GRAPH):
            run_graph(self._found, self._loaded(), Path(file), checkpoint, replace=replace)
            return Path(file)
        write(self._of_this_machine("export"), checkpoint, Path(file), replace=replace, warn=_warn)
        return Path(file)

    def push(self, repository: str, checkpoint: Which = "best", *, private: bool = False) -> str:
        """Put an export on the Hugging Face hub, as ``--push`` does; return its address.

        repository: ``OWNER/NAME``
        """
        run = self._of_this_machine("push")
        built = build(run, checkpoint, source=f"{HUB}{repository}", warn=_warn)
        return built.upload(repository, private=private)

    def evaluate(
        self,
        episodes: int = 10,
        checkpoint: Which = "best",
        *,
        device: str = "cpu",
        lesson: str | None = None,
    ) -> Performance:
        """Play episodes with the deterministic policy, as ``--eval`` does; return returns and lengths.

        lesson: as of ``--lesson``
        """
        loaded, saved = self._loaded(), self._found.checkpoint(checkpoint, warn=_warn)
        lessons, _ = played_lessons(loaded.config, _words(lesson), saved)
        with self._assembly(loaded, device, lessons) as assembly:
            env = assembly.env("evaluate")
            with self._found.fitting(env.specs):
                agents = assembly.players(env.specs, self.folder, saved)
            limit = episode_limit(loaded.config, env.time_limit)
            found = play_episodes(env, eval_policies(agents, "playing"), episodes, length_limit=limit)
            assert found is not None, "nothing stops it"
            if line := cut_off_line(found.values(), loaded.config, env.time_limit):
                assembly.faults.console.warn(line)
        return next(iter(found.values()))

    def resume(
        self,
        *,
        max_step: int | None = None,
        overrides: Mapping[str, object] | None = None,
        callbacks: Sequence[Callback] = (),
        on_step: Callable[[Training], object] | None = None,
        device: str = "auto",
        quiet: bool = False,
    ) -> Run:
        """Go on with the training from its newest checkpoint, as ``--resume`` does; return the run."""
        run, folder = self._of_this_machine("resume"), self._task_folder()
        flags = _given({"base_config.max_step": max_step})
        own = load_config_file(run.config, env=folder, require_runnable=True)
        loaded = load_config_file(run.config, overrides or {}, flags, env=folder, require_runnable=True)
        inputs = RunInputs(
            loaded=loaded,
            run=run,
            device=pick_device(device),
            arguments=("python", run.env),
            flags=flags,
            callbacks=_all(callbacks, on_step),
        )
        go_on(inputs, own, screen=Screen(quiet=quiet))
        return self

    def _loaded(self) -> LoadedConfig:
        return load_config_file(self._dir.config, LIMITS, env=self._task_folder(), require_runnable=True)

    def _task_folder(self) -> EnvFolder:
        """Return the task's folder; of a task that is not here the run's own, of an export the current one.

        What is imported later is looked for there, too, and the folder of an export does not stay.
        """
        try:
            folder = find_env(self._dir.env)
        except ConfigError:
            folder = EnvFolder(Path.cwd() if self._export else self._dir.path, self._dir.env)
        return self._found.task(folder)

    @contextmanager
    def _assembly(
        self, loaded: LoadedConfig, device: str, lessons: Mapping[str, str] | None = None
    ) -> Iterator[Assembly]:
        with ExitStack() as stack:
            console = stack.enter_context(open_console(quiet=True))
            yield Assembly(
                loaded=loaded,
                device=pick_device(device),
                faults=Faults(console),
                stack=stack,
                lessons=lessons,
            )

    def _of_this_machine(self, wanted: str) -> RunDir:
        """Return the folder, with all that a training writes. Raises UsageError for an export."""
        if self._export is None:
            return self._dir
        raise UsageError(
            f"an export has no {wanted}",
            where=self._export.source,
            why="it holds networks and configuration, and neither optimiser, replay nor metrics",
            fix=f"use the run's own folder, where it was trained: it is called {self._export.manifest.name}",
        )


def load(
    run: Run | str | Path, checkpoint: Which = "best", *, device: str = "cpu", trust: bool = False
) -> TrainedPolicy:
    """Load the policy of a run: ``load("models/CartPole-v1/NAME").act(obs)``.

    run: or its folder, or an export of it; trust: see :class:`Run`
    Every byte of the checkpoint is verified. The environment is built once, for its spaces. Raises UsageError
    for a folder that is no run and for a Unity player, StorageError if there is no such checkpoint.
    """
    run = run if isinstance(run, Run) else Run(run, trust=trust)
    return run.policy(checkpoint, device=device)


def make_env(task: str, *, config: str | None = None, overrides: Mapping[str, object] | None = None) -> Any:  # noqa: ANN401 - gymnasium leaves an environment's types open
    """Return the environment of a task in its wrappers, as a training would step it."""
    return make_gym_env(load_config(task, config, overrides or {}, seed=0, require_runnable=True), "train")


def check(task: str, *, config: str | None = None, quiet: bool = False) -> bool:
    """Look for what would keep an environment from being learned, as ``--check`` does.

    It runs in a process of its own, and prints what it finds. Returns whether nothing of that is an error.
    """
    words = [sys.executable, "-m", "asac", task, "--check"]
    words += [] if config is None else ["-c", config]
    words += ["--quiet"] * quiet
    paths = [str(Path(__file__).resolve().parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
    return subprocess.run(words, env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)}).returncode == 0


def _words(lesson: str | None) -> list[str]:
    return [] if lesson is None else lesson.split(",")


def _given(flags: Mapping[str, object]) -> dict[str, object]:
    return {key: value for key, value in flags.items() if value is not None}


def _all(callbacks: Sequence[Callback], on_step: Callable[[Training], object] | None) -> list[Callback]:
    return [*callbacks, *([OnStep(on_step)] if on_step is not None else [])]


def _warn(text: str) -> None:
    print(f"warning: {visible(text)}", file=sys.stderr)
