"""Results of playing a trained agent: videos, recordings, and the returns of its episodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from algorithm.app.cli.train import TrainOptions
from algorithm.core.data import Episode
from algorithm.core.spec import DEFAULT_BEHAVIOUR
from algorithm.core.wording import Rows, info_rows, short
from algorithm.demos.npz import NpzWriter
from algorithm.env.base import VecEnv
from algorithm.run.context import RunContext
from algorithm.run.evaluation.callbacks import CallbackList, EvalCallback, Recording
from algorithm.run.evaluation.evaluate import Performance, performance_of
from algorithm.run.evaluation.video import VideoRecorder, video_recorders
from algorithm.store.files import finite_or_null
from algorithm.store.rundir import RunDir


@dataclass(frozen=True)
class Outputs:
    """The video and the recording of a command line.

    run: run whose folder gets videos
    """

    run: RunDir
    video: VideoRecorder | None
    recording: Recording | None

    @classmethod
    def of(cls, options: TrainOptions, run: RunDir, context: RunContext, env: VecEnv, step: int) -> Outputs:
        """Return the outputs that the options choose, for the networks of ``step``.

        Raises EnvError for an environment without images, UsageError without the libraries of a target.
        """
        video = None
        if options.video:
            video = video_recorders(env, run.videos, warn=context.console.warn)(step)
        recording = None if options.record is None else Recording(NpzWriter(Path(options.record)))
        return cls(run, video, recording)

    @property
    def callback(self) -> EvalCallback:
        """Callback that films and records the episodes."""
        return CallbackList(*(callback for callback in (self.video, self.recording) if callback is not None))

    @property
    def rows(self) -> Rows:
        """Rows with the files that were written."""
        rows = []
        if self.video is not None and self.video.saved:
            rows.append(("film", self.run.shown(self.video.path)))
        if self.recording is not None and self.recording.episodes:
            shown = self.run.shown(Path(self.recording.target))
            rows.append(("recording", f"{shown}, {self.recording.episodes} episodes"))
        return rows


Scores = dict[str, Performance]
"""Performances by behaviour, in the order in which they first finished an episode."""


def scores_of(episodes: Sequence[Episode]) -> Scores:
    """Group episodes by behaviour; a behaviour without any is left out."""
    return {
        behaviour: performance_of([episode for episode in episodes if episode.behaviour == behaviour])
        for behaviour in dict.fromkeys(episode.behaviour for episode in episodes)
    }


def scores_json(scores: Scores) -> object:
    """Return scores as the content of ``evaluation.json``."""
    return finite_or_null(
        {
            behaviour: {
                "mean": performance.interval.mean,
                "ci95": performance.interval.half_width,
                "returns": performance.returns,
                "lengths": performance.lengths,
                "infos": performance.infos,
            }
            for behaviour, performance in scores.items()
        }
    )


def table(scores: Scores) -> Rows:
    """Format scores as rows for the console."""
    rows = []
    for behaviour, performance in scores.items():
        behaviour_rows = [
            ("episodes", f"{len(performance.returns)}"),
            ("mean return", performance.interval.text),
            ("min and max", f"{short(min(performance.returns))} and {short(max(performance.returns))}"),
            ("length", f"{float(np.mean(performance.lengths)):.1f} steps"),
            *info_rows(performance.infos),
        ]
        who = "" if behaviour == DEFAULT_BEHAVIOUR else f"{behaviour}: "
        rows += [(f"{who}{name}", value) for name, value in behaviour_rows]
    return rows
