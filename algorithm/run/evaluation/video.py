"""Videos of episodes: an environment's pictures, streamed to ffmpeg."""

from __future__ import annotations

import contextlib
import importlib
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
from typing_extensions import override

from algorithm.core.data import Episode
from algorithm.core.errors import EnvError
from algorithm.core.extras import needs
from algorithm.core.system.files import replace
from algorithm.core.system.output import redirected
from algorithm.env.base import Picture, VecEnv
from algorithm.nn.process import others_modes
from algorithm.run.evaluation.callbacks import EvalCallback

DEFAULT_FPS = 30.0
"""Frames per second of environments that state none."""

_ASKED = "--video or eval_config.video"
_CLOSING_S = 60.0
_STDERR = 2
# Players expect 4:2:0 chroma subsampling, which needs even sides.
_MP4 = ("-vf", "pad=ceil(iw/2)*2:ceil(ih/2)*2", "-f", "mp4")


class VideoError(Exception):
    """The reason why a video cannot be written."""


class Encoder:
    """An ``.mp4`` of pictures added one by one; memory does not grow with their number.

    The file appears when it is closed, complete. Every method but ``discard`` may raise VideoError; the
    encoder must then be discarded.

    shape: (height, width) of every picture in pixels
    fps:   pictures per second
    """

    def __init__(self, path: Path, shape: tuple[int, int], fps: float) -> None:
        self._path, self._shape, self._pictures = path, shape, 0
        self._draft = path.with_name(f".{path.name}.part")
        try:
            self._output: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as ffmpeg runs
        except OSError:
            self._output = Path(os.devnull).open("w+b")  # noqa: SIM115
        with self._errors():
            path.parent.mkdir(exist_ok=True)
            self._writer = _library().write_frames(
                self._draft,
                shape[::-1],
                fps=fps,
                codec="libx264",
                macro_block_size=1,
                ffmpeg_log_level="error",
                ffmpeg_timeout=_CLOSING_S,
                output_params=[*_MP4],
            )
            with redirected(self._output, [_STDERR]):
                self._writer.send(None)  # starts ffmpeg

    def write(self, picture: Picture) -> None:
        """Add a picture."""
        if picture.shape != (*self._shape, 3) or picture.dtype != np.uint8:
            raise VideoError(f"a picture is {picture.dtype} {picture.shape}, not uint8 {(*self._shape, 3)}")
        with self._errors():
            self._writer.send(np.ascontiguousarray(picture))
        self._pictures += 1

    def close(self) -> None:
        """Complete the video and give the file its name."""
        with self._errors():
            self._writer.close()
            written = 0
            with contextlib.suppress(RuntimeError):  # of a damaged file; ffmpeg's exit code is not known
                written, _ = _library().count_frames_and_secs(self._draft)
            if written != self._pictures:
                raise RuntimeError(f"{written} of {self._pictures} pictures were written, as on a full disk")
            replace(self._draft, self._path)
        self._output.close()

    def discard(self) -> None:
        """End ffmpeg and remove the incomplete file."""
        with contextlib.suppress(OSError):
            self._writer.close()
        with contextlib.suppress(OSError):
            self._draft.unlink()
        self._output.close()

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """Convert errors of ffmpeg and of files to a VideoError, with the last line of ffmpeg's output."""
        try:
            yield
        except (OSError, RuntimeError) as error:
            self._output.seek(0)
            lines = self._output.read().decode(errors="replace").splitlines()
            parts = [str(error).partition("\n")[0], *(f"ffmpeg: {line}" for line in lines[-1:])]
            raise VideoError("; ".join(parts)) from error


class VideoRecorder(EvalCallback):
    """Callback that films the first episode of agent 0, which is in environment 0.

    An environment that resets itself does so within the step that ends the episode, so the picture after the
    last action is not included. A video that fails causes one warning and nothing else; ``path`` exists,
    complete, if it is ``saved``.
    """

    def __init__(self, env: VecEnv, path: Path, fps: float, *, warn: Callable[[str], None]) -> None:
        self.path, self.saved = path, False
        self._env, self._fps, self._warn = env, fps, warn
        self._encoder: Encoder | None = None

    @override
    def begin(self) -> None:
        """Add the first picture."""
        try:
            picture = self._picture()
            self._encoder = Encoder(self.path, picture.shape[:2], self._fps)
            self._encoder.write(picture)
        except VideoError as error:
            self._give_up(error)

    @override
    def step(self, ended: Sequence[Episode]) -> None:
        """Add a picture, or complete the video if the episode has ended."""
        if self._encoder is None:
            return
        if any(episode.agent == 0 for episode in ended):
            self.end()
            return
        try:
            self._encoder.write(self._picture())
        except VideoError as error:
            self._give_up(error)

    @override
    def end(self) -> None:
        """Complete the video, also of an unfinished episode."""
        if self._encoder is None:
            return
        try:
            self._encoder.close()
        except VideoError as error:
            self._give_up(error)
        else:
            self._encoder, self.saved = None, True

    @others_modes()
    def _picture(self) -> Picture:
        """Return the present image of environment 0. Raises VideoError."""
        try:
            picture = self._env.render()
        except EnvError as error:
            raise VideoError(error.line) from error
        if picture is None:
            raise VideoError("the environment returns no more images")
        return picture

    def _give_up(self, error: VideoError) -> None:
        """Discard the video and warn."""
        encoder, self._encoder = self._encoder, None
        if encoder is not None:
            encoder.discard()
        self._warn(
            f"the film cannot be written · {self.path} · {error} · everything else continues without it"
        )


@others_modes()
def video_recorders(
    env: VecEnv, folder: Path, *, warn: Callable[[str], None]
) -> Callable[[int], VideoRecorder]:
    """Return a function from a step to the recorder of its evaluation's first episode.

    env:    environment, which is reset to check that it renders images
    folder: of the videos, ``step_000004000_episode_1.mp4`` and so on
    warn:   called for every video that fails

    Raises EnvError if the environment has no pictures, before anything is played, and UsageError without
    the extra ``video``.
    """
    _library()
    env.reset(episode=0)
    if env.render() is None:
        raise EnvError(
            "the environment has no images to film",
            where=_ASKED,
            why="its render mode rgb_array returns none",
            fix="leave the film out, or add that render mode to the environment",
        )
    fps = env.fps or DEFAULT_FPS
    return lambda step: VideoRecorder(env, video_path(folder, step), fps, warn=warn)


def video_path(folder: Path, step: int) -> Path:
    """Return the path of the video of an evaluation's first episode, with the networks of ``step``."""
    return folder / f"step_{step:09d}_episode_1.mp4"


def _library() -> Any:  # noqa: ANN401 - a module that need not be installed
    """Return the package that has ffmpeg. Raises UsageError without the extra ``video``."""
    with needs("video", "a film", where=_ASKED):
        return importlib.import_module("imageio_ffmpeg")
