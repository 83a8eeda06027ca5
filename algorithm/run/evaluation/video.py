"""Videos of episodes: an environment's pictures, streamed to ffmpeg."""

from __future__ import annotations

import contextlib
import importlib
import re
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import override

from algorithm.core.data import Episode
from algorithm.core.errors import EnvError
from algorithm.core.extras import needs
from algorithm.core.system.files import replace
from algorithm.core.system.processes import NEW_GROUP
from algorithm.env.base import Picture, VecEnv
from algorithm.nn.process import others_modes
from algorithm.run.evaluation.callbacks import EvalCallback

DEFAULT_FPS = 30.0
"""Frames per second of environments that state none."""

_ASKED = "--video or eval_config.video"
_CLOSING_S = 60.0
_PICTURES = ("-v", "error", "-y", "-nostdin", "-f", "rawvideo", "-pix_fmt", "rgb24")
# Players expect 4:2:0 chroma subsampling, which needs even sides.
_MP4 = ("-an", "-pix_fmt", "yuv420p", "-vf", "pad=ceil(iw/2)*2:ceil(ih/2)*2", "-f", "mp4")


class VideoError(Exception):
    """The reason why a video cannot be written."""


class Encoder:
    """An ``.mp4`` of pictures added one by one; memory does not grow with their number.

    The file appears when it is closed, complete. Every method but ``discard`` may raise VideoError; the
    encoder must then be discarded.

    ``imageio_ffmpeg.write_frames`` is not used: its ``close`` ignores ffmpeg's exit code, so a video that a
    full disk has cut off looks complete, and the reason is lost. Counting the frames afterwards would detect
    it, for 0.3 s per 200 pictures. It also runs Python code between fork and exec, which is unsafe beside
    threads and takes 20 to 30 ms instead of 1.

    shape: (height, width) of every picture in pixels
    fps:   pictures per second
    """

    def __init__(self, path: Path, shape: tuple[int, int], fps: float) -> None:
        self._path, self._shape = path, shape
        self._draft = path.with_name(f".{path.name}.part")
        command = [
            *(_ffmpeg(), *_PICTURES, "-s", f"{shape[1]}x{shape[0]}", "-r", f"{fps:g}", "-i", "-"),
            *(*_MP4, str(self._draft)),
        ]
        try:
            path.parent.mkdir(exist_ok=True)
            self._messages = tempfile.TemporaryFile()  # noqa: SIM115 - it lasts as long as ffmpeg
            self._ffmpeg = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=self._messages,
                start_new_session=True,  # Ctrl-C is handled here; ffmpeg ends when its input does
                creationflags=NEW_GROUP,
            )
        except OSError as error:
            raise VideoError(str(error)) from error

    def write(self, picture: Picture) -> None:
        """Add a picture."""
        if picture.shape != (*self._shape, 3) or picture.dtype != np.uint8:
            raise VideoError(f"a picture is {picture.dtype} {picture.shape}, not uint8 {(*self._shape, 3)}")
        assert self._ffmpeg.stdin is not None
        try:
            self._ffmpeg.stdin.write(np.ascontiguousarray(picture).data)
        except OSError as error:
            raise VideoError(self._reason(str(error))) from error

    def close(self) -> None:
        """Complete the video and give the file its name."""
        try:
            self._ffmpeg.communicate(timeout=_CLOSING_S)  # closes its input
            if self._ffmpeg.returncode:
                raise VideoError(self._reason(f"ffmpeg ended with code {self._ffmpeg.returncode}"))
            replace(self._draft, self._path)
        except subprocess.TimeoutExpired as error:
            raise VideoError(f"ffmpeg did not end within {_CLOSING_S:g} s") from error
        except OSError as error:
            raise VideoError(self._reason(str(error))) from error
        self._messages.close()

    def discard(self) -> None:
        """End ffmpeg and remove the incomplete file."""
        self._ffmpeg.kill()
        with contextlib.suppress(OSError):  # of input that was not read
            self._ffmpeg.communicate()
        self._messages.close()
        with contextlib.suppress(OSError):
            self._draft.unlink()

    def _reason(self, otherwise: str) -> str:
        """Return ffmpeg's first message without the address in front of it, or ``otherwise``."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._ffmpeg.wait(1.0)  # it has closed its input and is about to write the message
        self._messages.seek(0)
        lines = self._messages.read().decode(errors="replace").splitlines()
        return re.sub(r"^\[[^]]*\] ", "", lines[0]) if lines else otherwise


class VideoRecorder(EvalCallback):
    """Callback that films the first episode of an agent of environment 0.

    An environment that resets itself does so within the step that ends the episode, so the picture after the
    last action is not included. A video that fails causes one warning and nothing else; ``path`` exists,
    complete, if it is ``saved``.

    agent: id of an agent in environment 0
    """

    def __init__(
        self, env: VecEnv, path: Path, fps: float, *, warn: Callable[[str], None], agent: int = 0
    ) -> None:
        self.path, self.saved = path, False
        self._env, self._fps, self._warn, self._agent = env, fps, warn, agent
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
        if any(episode.agent == self._agent for episode in ended):
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


def video_path(folder: Path, step: int, episode: int = 1) -> Path:
    """Return the path of the video of an episode, counted from 1, with the networks of ``step``."""
    return folder / f"step_{step:09d}_episode_{episode}.mp4"


def _library() -> Any:  # noqa: ANN401 - a module that need not be installed
    """Return the package that has ffmpeg. Raises UsageError without the extra ``video``."""
    with needs("video", "a film", where=_ASKED):
        return importlib.import_module("imageio_ffmpeg")


def _ffmpeg() -> str:
    """Return the path of imageio's ffmpeg, or of the system's. Raises VideoError."""
    try:
        path: str = _library().get_ffmpeg_exe()
    except RuntimeError as error:
        raise VideoError("there is no ffmpeg: install imageio-ffmpeg, or ffmpeg itself") from error
    return path
