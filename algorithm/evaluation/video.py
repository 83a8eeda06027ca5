"""Films of episodes: pictures of an environment, streamed to ffmpeg while they are made."""

from __future__ import annotations

import contextlib
import re
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import imageio_ffmpeg  # type: ignore[import-untyped]
import numpy as np

from algorithm.env.base import Picture, VecEnv
from algorithm.errors import EnvError
from algorithm.evaluation.callbacks import NOBODY, Nobody, Watcher
from algorithm.run.rollout import Episode

DEFAULT_FPS = 30.0
"""Frames per second where an environment does not say its own."""

_CLOSING_S = 60.0
_PICTURES = ("-v", "error", "-y", "-nostdin", "-f", "rawvideo", "-pix_fmt", "rgb24")
# H.264 as players know it holds a colour for four pixels, so both sides are made even.
_MP4 = ("-an", "-pix_fmt", "yuv420p", "-vf", "pad=ceil(iw/2)*2:ceil(ih/2)*2", "-f", "mp4")


class FilmError(Exception):
    """A film cannot be written; the message says why."""


class Encoder:
    """An ``.mp4`` from pictures, one after the other; memory does not grow with their number.

    The file appears when it is closed, whole. Every method but ``discard`` may raise FilmError; the encoder
    is then to be discarded.

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
            self._said = tempfile.TemporaryFile()  # noqa: SIM115 - it lasts as long as ffmpeg
            self._ffmpeg = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=self._said,
                start_new_session=True,  # Ctrl-C is for us; ffmpeg ends when its input does
            )
        except OSError as error:
            raise FilmError(str(error)) from error

    def write(self, picture: Picture) -> None:
        """Add a picture."""
        if picture.shape != (*self._shape, 3) or picture.dtype != np.uint8:
            raise FilmError(f"a picture is {picture.dtype} {picture.shape}, not uint8 {(*self._shape, 3)}")
        assert self._ffmpeg.stdin is not None
        try:
            self._ffmpeg.stdin.write(np.ascontiguousarray(picture).data)
        except OSError as error:
            raise FilmError(self._reason(str(error))) from error

    def close(self) -> None:
        """Finish the film and give it its name."""
        try:
            self._ffmpeg.communicate(timeout=_CLOSING_S)  # closes its input
            if self._ffmpeg.returncode:
                raise FilmError(self._reason(f"ffmpeg ended with code {self._ffmpeg.returncode}"))
            self._draft.replace(self._path)
        except subprocess.TimeoutExpired as error:
            raise FilmError(f"ffmpeg did not end within {_CLOSING_S:g} s") from error
        except OSError as error:
            raise FilmError(self._reason(str(error))) from error
        self._said.close()

    def discard(self) -> None:
        """Leave no half film."""
        self._ffmpeg.kill()
        with contextlib.suppress(OSError):  # what it has not taken of its input
            self._ffmpeg.communicate()
        self._said.close()
        with contextlib.suppress(OSError):
            self._draft.unlink()

    def _reason(self, otherwise: str) -> str:
        """The first thing that ffmpeg complained of, without the address of who complained."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._ffmpeg.wait(1.0)  # it has closed its input and is about to say why
        self._said.seek(0)
        lines = self._said.read().decode(errors="replace").splitlines()
        return re.sub(r"^\[[^]]*\] ", "", lines[0]) if lines else otherwise


class Film(Nobody):
    """Films the first episode of an agent of environment 0, from its first picture on.

    An environment that resets itself does so within the step that ends the episode, so what the last action
    led to is not in the film. A film that cannot be written costs one warning and the film; ``path`` is
    there, whole, if it is ``saved``.

    agent: id of an agent that lives in environment 0
    """

    def __init__(
        self, env: VecEnv, path: Path, fps: float, *, warn: Callable[[str], None], agent: int = 0
    ) -> None:
        self.path, self.saved = path, False
        self._env, self._fps, self._warn, self._agent = env, fps, warn, agent
        self._encoder: Encoder | None = None

    def begin(self) -> None:
        """Film the first picture."""
        try:
            picture = self._picture()
            self._encoder = Encoder(self.path, picture.shape[:2], self._fps)
            self._encoder.write(picture)
        except FilmError as error:
            self._give_up(error)

    def step(self, ended: Sequence[Episode]) -> None:
        """Film a picture, or end the film with the episode."""
        if self._encoder is None:
            return
        if any(episode.agent == self._agent for episode in ended):
            self.end()
            return
        try:
            self._encoder.write(self._picture())
        except FilmError as error:
            self._give_up(error)

    def end(self) -> None:
        """Finish the film, be the episode finished or not."""
        if self._encoder is None:
            return
        try:
            self._encoder.close()
        except FilmError as error:
            self._give_up(error)
        else:
            self._encoder, self.saved = None, True

    def _picture(self) -> Picture:
        try:
            picture = self._env.render()
        except EnvError as error:
            raise FilmError(error.line) from error
        if picture is None:
            raise FilmError("the environment gives no picture any more")
        return picture

    def _give_up(self, error: FilmError) -> None:
        encoder, self._encoder = self._encoder, None
        if encoder is not None:
            encoder.discard()
        self._warn(f"the film cannot be written · {self.path} · {error} · all else goes on without it")


class Films:
    """A film of the first episode of each evaluation on an environment, made of nothing but its step.

    env:    with pictures; it is reset, to see whether they are there
    folder: the films are ``step_000004000_episode_1.mp4`` and so on in it
    warn:   told of every film that cannot be written

    Raises EnvError if the environment has no pictures, so that this is known before anything is played.
    """

    def __init__(self, env: VecEnv, folder: Path, *, warn: Callable[[str], None]) -> None:
        self._env, self._folder, self._warn = env, folder, warn
        env.reset(episode=0)
        if env.render() is None:
            raise EnvError(
                "the environment has no pictures to make a film of",
                where="--video or eval_config.video",
                why="its render mode rgb_array gives none",
                fix="leave the film out, or teach the environment that render mode",
            )

    def __call__(self, step: int) -> Film:
        """Who films the evaluation at ``step``."""
        path = film_path(self._folder, step)
        return Film(self._env, path, self._env.fps or DEFAULT_FPS, warn=self._warn)


def no_films(step: int) -> Watcher:
    """Who films where no films are wanted."""
    return NOBODY


def film_path(folder: Path, step: int, episode: int = 1) -> Path:
    """Where the film of an episode, counted from 1, with the networks of ``step`` is or would be."""
    return folder / f"step_{step:09d}_episode_{episode}.mp4"


def _ffmpeg() -> str:
    """The program that comes with imageio, or the system's. Raises FilmError."""
    try:
        path: str = imageio_ffmpeg.get_ffmpeg_exe()
    except RuntimeError as error:
        raise FilmError("there is no ffmpeg: install imageio-ffmpeg, or ffmpeg itself") from error
    return path
