"""The runs of ``import asac``: a training on disk as an object."""

from __future__ import annotations

import sys
from base64 import b64encode
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

from typing_extensions import override

from algorithm.app.cli.flag_types import is_export, is_graph
from algorithm.app.env_arguments import Device, EnvLike, env_for_run, env_to_play, set_flags, with_keys
from algorithm.app.parameters import played_lessons
from algorithm.app.playable import LIMITS, PlayableRun, run_in
from algorithm.app.policy import TrainedPolicy, choose_behaviour, eval_adapters, make_gym_env
from algorithm.app.report.facts import Facts
from algorithm.app.train import continue_run
from algorithm.app.training import Screen
from algorithm.config.loader import LoadedConfig
from algorithm.config.resolve import Overrides
from algorithm.config.schema import Config
from algorithm.core.errors import visible
from algorithm.core.extras import extra
from algorithm.env.objects import EnvObject
from algorithm.nn.process import own_modes
from algorithm.run.callbacks import CallbackLike, all_callbacks
from algorithm.run.evaluation.evaluate import Performance, cut_off_line, episode_limit, eval_policies
from algorithm.run.evaluation.evaluate import evaluate as play_episodes
from algorithm.run.inputs import RunInputs
from algorithm.run.signals import StopRequest
from algorithm.store.copies import copy_run
from algorithm.store.logs.metrics import read_metrics
from algorithm.store.names import Ckpt


def _warn(text: str) -> None:
    print(f"warning: {visible(text)}", file=sys.stderr)


class Run:
    """A training on disk: settings, results and checkpoints.

    folder: folder of the run; or an export, FILE.zip, to load and evaluate
    env:    environment to use instead of the run's own; needed if the run was trained on an object
    trust:  run the code that comes with an export; default: refuse it

    >>> import asac
    >>> run = asac.Run(asac.train("CartPole-v1", max_step=10_000, quiet=True).folder)
    >>> run.metrics["rollout/return_mean"]

    Raises UsageError if there is no run or its code is not trusted, StorageError if an export is damaged.
    """

    def __init__(self, folder: str | Path, *, env: EnvLike | None = None, trust: bool = False) -> None:
        source = str(folder)
        self._playable: PlayableRun = (
            extra("playable_export")(source, trust=trust) if is_export(source) else run_in(Path(folder))
        )
        self._dir, self._env = self._playable.run, env
        self.folder = self._dir.path

    @override
    def __repr__(self) -> str:
        known = "".join(f", {name}={text}" for name, text in Facts.gather(self._dir).rows)
        return f"Run({self._playable.source!r}{known})"

    def _repr_html_(self) -> str:
        """Return the run as HTML for a notebook: a table above the picture of the returns, if any."""
        rows = [*Facts.gather(self._dir).rows, ("folder", self._playable.source)]
        table = "".join(f"<tr><th>{name}</th><td>{escape(text)}</td></tr>" for name, text in rows)
        images = "".join(
            f'<img width="480" src="data:image/png;base64,{b64encode(picture.read_bytes()).decode()}">'
            for picture in self._dir.plots.glob("return.png")
        )
        return f"<table>{table}</table>{images}"

    @property
    def config(self) -> Config:
        """The full configuration."""
        return self.configured().config

    @property
    def result(self) -> Mapping[str, Any]:
        """Steps, updates and evaluations: result.json. Raises StorageError before the training has ended."""
        return self._dir.read_result()

    @property
    def metrics(self) -> dict[str, list[float]]:
        """All logged metrics: name → values, including "step". Missing values are nan."""
        return read_metrics(self._playable.trained_here("metrics").metrics_jsonl)

    @property
    def report(self) -> Path:
        """Path of the run's report page."""
        return self._playable.trained_here("report").report

    @own_modes()
    def policy(
        self,
        checkpoint: Ckpt = "best",
        *,
        env: EnvLike | None = None,
        device: Device | str = "cpu",
        behavior: str | None = None,
    ) -> TrainedPolicy:
        """Return the policy of a checkpoint, which acts on observations.

        checkpoint: "best" by evaluation, "latest", or the step of one
        env:        environment with other bounds or masks; default: the run's own
        device:     "cpu", "cuda", "cuda:1" or "auto"
        behavior:   needed if the run has several

        Raises UsageError and StorageError as asac.load.
        """
        loaded, saved = self.configured(LIMITS), self._playable.checkpoint(checkpoint, warn=_warn)
        env_object = self._played(env)
        adapters = eval_adapters(loaded, self._playable, env_object)
        name = choose_behaviour(adapters, behavior, self.folder)
        with self._playable.context(loaded, device, env_object) as context:
            agents = self._playable.players(
                context, {k: adapter.spec for k, adapter in adapters.items()}, saved
            )
        return TrainedPolicy(
            agents[name], adapters[name], saved.step, masked=self._playable.masked(saved, name)
        )

    def make_env(self, *, lesson: str | None = None) -> Any:  # noqa: ANN401 - gymnasium leaves an environment's types open
        """Return the wrapped environment that evaluations step.

        lesson: NAME, or PARAMETER=NAME, with commas between several; default: the last ones
        """
        loaded = self.configured(LIMITS)
        lessons = played_lessons(loaded.config, lesson.split(",") if lesson else [])
        return make_gym_env(loaded, "evaluate", lessons, self._played())

    @own_modes()
    def export(self, file: str | Path, checkpoint: Ckpt = "best", *, replace: bool = False) -> Path:
        """Export the run or its policy; return the path.

        file:       FILE.zip, or FILE.onnx, which is a folder if there are several behaviors
        checkpoint: "best" by evaluation, "latest", or the step of one
        replace:    overwrite the file; default: refuse to

        Raises UsageError if the file exists, StorageError, ExportError if the graph does not match.
        """
        if is_graph(str(file)):
            loaded = self.configured(LIMITS)
            extra("write_policy")(self._playable, loaded, Path(file), checkpoint, replace=replace)
        else:
            run = self._playable.trained_here("export")
            extra("write_export")(run, checkpoint, Path(file), replace=replace, warn=_warn)
        return Path(file)

    def copy(self, folder: Path, *, replace: bool = False) -> None:
        """Copy the run to a folder, where its training can be resumed.

        folder:  of the copy
        replace: overwrite an existing run; default: refuse to

        Raises UsageError if the folder exists and is not replaced, or if one of them is being trained;
        StorageError if copying fails.
        """
        copy_run(self._playable.trained_here("copy"), folder, replace=replace, notice=_warn)

    @own_modes()
    def evaluate(
        self,
        episodes: int = 10,
        checkpoint: Ckpt = "best",
        *,
        env: EnvLike | None = None,
        device: Device | str = "cpu",
        lesson: str | None = None,
        behavior: str | None = None,
    ) -> Performance:
        """Play episodes with the deterministic policy; return their returns and lengths.

        episodes:   number of episodes
        checkpoint: "best" by evaluation, "latest", or the step of one
        env:        any other environment with the same spaces; default: the run's own
        device:     "cpu", "cuda", "cuda:1" or "auto"
        lesson:     NAME, or PARAMETER=NAME, with commas between several; default: the last ones
        behavior:   needed if the run has several

        >>> import asac
        >>> run = asac.train("CartPole-v1", max_step=10_000, quiet=True)
        >>> run.evaluate(10, "latest").mean
        """
        loaded, saved = self.configured(LIMITS), self._playable.checkpoint(checkpoint, warn=_warn)
        lessons = played_lessons(loaded.config, lesson.split(",") if lesson else [], saved)
        env_object = self._played(env)
        with self._playable.context(loaded, device, env_object, lessons) as context:
            played = context.env("evaluate")
            name = choose_behaviour(played.specs, behavior, self.folder)
            agents = self._playable.players(context, played.specs, saved)
            limit = episode_limit(loaded.config, played.time_limit)
            scores = play_episodes(played, eval_policies(agents, "playing"), episodes, length_limit=limit)
            assert scores is not None, "nothing stops it"
            if line := cut_off_line(scores.values(), loaded.config, played.time_limit):
                context.faults.console.warn(line)
            if self._playable.masked(saved, name) and not played.masked:
                _warn("the environment gave no action_mask, unlike the trained one: all choices were allowed")
        return scores[name]

    def resume(
        self,
        env: EnvLike | None = None,
        *,
        eval_env: EnvLike | None = None,
        max_step: int | None = None,
        overrides: Overrides | None = None,
        callbacks: CallbackLike = (),
        device: Device | str = "auto",
        quiet: bool = False,
        **keys: object,
    ) -> Run:
        """Resume the training from its newest checkpoint; return the run.

        env:       environment to train in; default: that of this object, else the run's own
        eval_env:  environment of evaluations, beside an object; default: another one like env
        max_step:  environment steps in all, with those so far; default: as before
        overrides: key → value, such as {"base_config.n_envs": 4}, or ["base_config.n_envs=4"]
        callbacks: one or several, called after those of the configuration
        device:    "auto", "cpu", "cuda" or "cuda:1"; default: as before
        quiet:     print only warnings
        keys:      configuration keys without their block, such as learning_rate=1e-4

        >>> import asac
        >>> run = asac.train("CartPole-v1", max_step=10_000, quiet=True)
        >>> run.resume(max_step=2 * run.result["steps"], quiet=True)

        Raises UsageError if the environment has other observations or actions.
        """
        run = self._playable.trained_here("resume")
        env_object = env_for_run(self._env if env is None else env, eval_env)
        self.check_spaces(env_object)
        flags = set_flags(
            {
                "base_config.max_step": max_step,
                "base_config.n_envs": (env_object.train.lanes if env_object else 0) or None,
            }
        )
        former, loaded = self.configured(), self.configured(with_keys(overrides, keys), flags)
        stop = StopRequest()
        inputs = RunInputs(
            loaded=loaded,
            run=run,
            device=device,
            arguments=("python", run.env),
            env_object=env_object,
            flags=flags,
            callbacks=all_callbacks(callbacks),
            stop=stop,
        )
        with stop.passed_on():
            continue_run(inputs, former, screen=Screen.in_python(inputs.callbacks, quiet=quiet))
        self._env = env_object
        return self

    def check_spaces(self, env_object: EnvObject | None) -> None:
        """Raise UsageError if environments have other observations or actions than the trained one."""
        if env_object is not None:
            adapters = eval_adapters(self.configured(LIMITS), self._playable, env_object)
            self._playable.agree({name: adapter.spec for name, adapter in adapters.items()})

    def configured(
        self, overrides: Overrides = (), flags: Mapping[str, object] | None = None
    ) -> LoadedConfig:
        """Return the configuration with changes. Raises ConfigError."""
        return self._playable.configured(overrides, flags)

    def _played(self, env: EnvLike | None = None) -> EnvObject | None:
        """Return the environment to play in; None stands for the run's own, by its name."""
        env = self._env if env is None else env
        return None if env is None else env_to_play(env)
