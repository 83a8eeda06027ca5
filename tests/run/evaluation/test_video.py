"""Videos: what is in them, when they end, and that nothing else suffers where they fail."""

from pathlib import Path

import imageio_ffmpeg
import numpy as np
import pytest

from algorithm.core.errors import EnvError
from algorithm.core.spec import DEFAULT_BEHAVIOUR
from algorithm.run.evaluation.callbacks import NULL_CALLBACK
from algorithm.run.evaluation.evaluate import evaluate
from algorithm.run.evaluation.video import (
    Encoder,
    VideoRecorder,
    video_recorders,
)
from tests.lib.toys_agents import Attentive, Guests

ONE = {DEFAULT_BEHAVIOUR: Attentive()}
WIDTH = 40


def grey(level: int, shape: tuple[int, int] = (32, WIDTH)) -> np.ndarray:
    return np.full((*shape, 3), level, np.uint8)


class Painted(Guests):
    """The picture of each moment is a shade of its own: 20 · steps taken, over all episodes."""

    fps = 10.0
    taken = 0

    def step(self, actions):
        self.taken += 1
        return super().step(actions)

    def render(self):
        return grey(20 * self.taken)


class Noisy(Painted):
    """No picture is like another one: 60 of them are a third of a megabyte, however they are packed."""

    def render(self):
        return np.random.default_rng(self.taken).integers(0, 256, (64, 64, 3), np.uint8)


def pictures(path: Path) -> tuple[dict, list[np.ndarray]]:
    """Properties and pictures of a film."""
    frames = imageio_ffmpeg.read_frames(str(path))
    found = next(frames)
    width, height = found["source_size"]
    return found, [np.frombuffer(frame, np.uint8).reshape(height, width, 3) for frame in frames]


def played(env, callback, episodes: int = 1, **options):
    return evaluate(env, ONE, episodes, callback=callback, **options)


def filmed(path: Path, env, episodes: int = 1, **options) -> tuple[VideoRecorder, list[str]]:
    told: list[str] = []
    film = VideoRecorder(env, path, env.fps, warn=told.append)
    played(env, film, episodes, **options)
    return film, told


def test_a_film_is_the_first_episode_of_the_first_agent_from_its_first_picture_on(tmp_path):
    """Agent 1 ends before it, and further episodes follow."""
    path = tmp_path / "videos" / "a.mp4"
    film, told = filmed(path, Painted(["..", ".T", "..", "..", "TT", "TT", "TT"], {0, 1}), 6)
    found, shown = pictures(path)
    levels = [float(picture.mean()) for picture in shown]
    assert levels == pytest.approx([0, 20, 40, 60, 80], abs=3), "5 steps: the pictures that were acted on"
    assert (found["fps"], found["source_size"], found["codec"]) == (10.0, (WIDTH, 32), "h264")
    assert film.saved and not told and list(path.parent.iterdir()) == [path]


def test_colours_and_places_are_those_of_the_picture_and_odd_sides_are_padded(tmp_path):
    picture = np.zeros((33, 51, 3), np.uint8)
    picture[:16, :, 0] = picture[16:, 25:, 2] = 255  # red above, black and blue below
    encoder = Encoder(tmp_path / "a.mp4", (33, 51), 30.0)
    encoder.write(picture)
    encoder.close()
    found, (shown,) = pictures(tmp_path / "a.mp4")
    assert found["source_size"] == (52, 34)
    corners = shown[[8, 25, 25], [10, 10, 40]].astype(int).tolist()
    assert corners == [pytest.approx(colour, abs=12) for colour in ((255, 0, 0), (0, 0, 0), (0, 0, 255))]


class Quitting(Painted):
    """Gives no picture any more, or one of another size, from step 3 on."""

    late: np.ndarray | None = None

    def render(self):
        return super().render() if self.taken < 3 else self.late


@pytest.mark.parametrize("late", [None, grey(1, (16, 16))])
def test_pictures_that_fail_on_the_way_cost_the_film_and_nothing_else(tmp_path, late):
    env = Quitting(["."] * 5 + ["T"], {0})
    env.late = late
    path = tmp_path / "a.mp4"
    told: list[str] = []
    film = VideoRecorder(env, path, 30.0, warn=told.append)
    assert played(env, film) == played(Painted(["."] * 5 + ["T"], {0}), NULL_CALLBACK)
    (warning,) = told
    assert "the film cannot be written" in warning and str(path) in warning
    assert not film.saved and not list(tmp_path.iterdir())


def no_ffmpeg(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IMAGEIO_FFMPEG_EXE", str(folder.parent / "nowhere"))


def folder_is_a_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.write_text("")


def cut_off(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imageio_ffmpeg, "count_frames_and_secs", lambda path: (1, 0.1))


def complaining(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = folder.with_name("ffmpeg")
    script.write_text("#!/bin/sh\necho one >&2\necho No space left on device >&2\ncat > /dev/null\n")
    script.chmod(0o700)
    monkeypatch.setenv("IMAGEIO_FFMPEG_EXE", str(script))


@pytest.mark.fault("F08")
@pytest.mark.parametrize(
    ("breaks", "why"),
    [
        (no_ffmpeg, "No such file"),
        (folder_is_a_file, "File exists"),
        (cut_off, "of 2 pictures"),
        (complaining, "as on a full disk; ffmpeg: No space left on device"),
    ],
)
def test_a_film_that_cannot_be_written_costs_one_warning(tmp_path, monkeypatch, capfd, breaks, why):
    folder = tmp_path / "videos"
    breaks(folder, monkeypatch)
    film, told = filmed(folder / "a.mp4", Painted(["..", "T.", "T.", "T."], {0}), 3)
    (warning,) = told
    assert "a.mp4" in warning and why in warning and "\n" not in warning
    assert not film.saved and not list(folder.rglob("*")) and not capfd.readouterr().err


def test_an_environment_without_pictures_is_refused_before_anything_is_trained(tmp_path):
    class Unseen(Painted):
        def render(self):
            return None

    with pytest.raises(EnvError, match="no images"):
        video_recorders(Unseen(["T"], {0}), tmp_path, warn=print)
