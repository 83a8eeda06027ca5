"""Film and recording of the episodes that a trained agent plays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from algorithm.app.cli.train import TrainOptions
from algorithm.app.policy import make_gym_env
from algorithm.config.loader import LoadedConfig
from algorithm.core.program import VERSION
from algorithm.core.wording import Rows
from algorithm.demos.config import MINARI
from algorithm.env.base import VecEnv
from algorithm.evaluation.callbacks import CallbackList, EvalCallback
from algorithm.evaluation.recording import Recording, open_target
from algorithm.evaluation.video import VideoRecorder, video_recorders
from algorithm.runs.rundir import RunDir


@dataclass(frozen=True)
class Outputs:
    """Film and recording that the command line asks for.

    run: whose folder has the films
    """

    run: RunDir
    video: VideoRecorder | None
    recording: Recording | None

    @classmethod
    def of(
        cls,
        options: TrainOptions,
        run: RunDir,
        *,
        loaded: LoadedConfig,
        env: VecEnv,
        step: int,
        acting: str,
        warn: Callable[[str], None],
    ) -> Outputs:
        """Return them, for the networks of ``step``. acting: how its actions are chosen, for a person.

        Raises EnvError for an environment without pictures, UsageError for what a target cannot hold.
        """
        video = video_recorders(env, run.videos, warn=warn)(step) if options.video else None
        if options.record is None:
            return cls(run, video, None)
        writer = open_target(
            options.record,
            env.specs,
            partial(make_gym_env, loaded, "evaluate"),
            algorithm=loaded.config.algorithm,
            description=f"{loaded.config.base_config.env_name}, run {run.name}, step {step}, "
            f"{acting} actions, version {VERSION}",
        )
        return cls(run, video, Recording(writer))

    @property
    def callback(self) -> EvalCallback:
        """Callback of the episodes."""
        return CallbackList(*(one for one in (self.video, self.recording) if one is not None))

    @property
    def rows(self) -> Rows:
        """Files that were written."""
        rows = []
        if self.video is not None and self.video.saved:
            rows.append(("film", self.run.shown(self.video.path)))
        if self.recording is not None and self.recording.episodes:
            target = self.recording.target
            shown = target if target.startswith(MINARI) else self.run.shown(Path(target))
            rows.append(("recording", f"{shown}, {self.recording.episodes} episodes"))
        return rows
