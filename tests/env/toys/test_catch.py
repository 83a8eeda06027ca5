"""Catch: a hand-played episode, its pixels, what can be caught, and what is hidden."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from algorithm.env.toys.catch import Catch, ToyCatch

MODULE = "algorithm.env.toys"


def make(name: str = "ToyCatch", **kwargs: Any) -> Catch:
    env = gym.make(f"{MODULE}:{name}-v0", disable_env_checker=True, **kwargs).unwrapped
    assert isinstance(env, Catch)
    return env


def begin(env: Catch, column: int, paddle: int) -> Any:
    """The first picture of an episode whose ball and paddle begin there."""

    class Draws:
        def __init__(self, rng: np.random.Generator) -> None:
            self.rng, self.places = rng, [column, paddle]

        def integers(self, *limits: int, **kwargs: Any) -> Any:
            return self.rng.integers(*limits, **kwargs) if kwargs else self.places.pop(0)

    env.reset(seed=0)
    env._np_random = Draws(env.np_random)
    return env.reset()[0]


def play(env: Catch, actions: list[int]) -> list[tuple[Any, float, bool]]:
    """(observation, reward, terminated) of each step; none is truncated."""
    steps = [env.step(np.int64(action)) for action in actions]
    assert not any(truncated for _, _, _, truncated, _ in steps)
    return [(obs, reward, terminated) for obs, reward, terminated, _, _ in steps]


def block(picture: np.ndarray) -> tuple[slice, slice]:
    """Rows and columns of the only lit rectangle."""
    rows, columns = np.flatnonzero(picture.any(1)), np.flatnonzero(picture.any(0))
    place = (slice(rows[0], rows[-1] + 1), slice(columns[0], columns[-1] + 1))
    assert (picture[place] == 255).all()
    return place


# ---- the game


def test_an_episode_by_hand():
    """The ball begins in rows 3 to 5 and columns 10 to 12; the paddle in columns 20 to 26 of 28 and 29."""
    env = make()
    picture = begin(env, column=10, paddle=20)
    assert (picture.dtype, picture.shape) == (np.uint8, (32, 32))
    assert block(picture[:28]) == (slice(3, 6), slice(10, 13))
    assert block(picture[28:]) == (slice(0, 2), slice(20, 27))
    steps = play(env, [0, 0, 0, 1, 2, 0, 0, 0, 1, 1, 1])
    places = [18, 16, 14, 14, 16, 14, 12, 10, 10, 10, 10]
    for at, ((picture, reward, terminated), place) in enumerate(zip(steps, places, strict=True), 1):
        assert block(picture[:28]) == (slice(3 + 2 * at, 6 + 2 * at), slice(10, 13))
        assert block(picture[28:]) == (slice(0, 2), slice(place, place + 7))
        assert (reward, terminated) == ((1.0, True) if at == 11 else (0.0, False))
    assert block(picture[:28])[0].stop == 28  # the ball lies on the paddle


@pytest.mark.parametrize(
    ("paddle", "reward"), [(5, -1.0), (6, 1.0), (8, 1.0), (10, 1.0), (11, -1.0), (20, -1.0)]
)
def test_a_ball_is_caught_if_all_of_it_is_above_the_paddle(paddle: int, reward: float):
    """Columns 10 to 12, and a paddle 7 wide."""
    env = make()
    begin(env, column=10, paddle=paddle)
    assert play(env, [1] * 11)[-1][1:] == (reward, True)


@pytest.mark.parametrize(("action", "start", "wall"), [(0, 5, 2), (2, 20, 23)])
def test_the_paddle_stays_in_the_picture(action: int, start: int, wall: int):
    env = make()
    begin(env, column=2, paddle=start)
    for picture, _, _ in play(env, [action] * 10)[3:]:
        assert block(picture[28:])[1].start == wall


def towards(column: int, paddle: int) -> int:
    """Left, stay or right."""
    return 0 if paddle > column else 2 if paddle < column - 4 else 1


def test_every_ball_can_be_caught_and_every_place_catches_as_many():
    """The two constants of the class: every beginning is played, and every place that a paddle may end at."""
    env = make()
    for column in range(2, 28):
        for paddle in (2, 3, 22, 23):
            begin(env, column, paddle)
            total = 0.0
            for _ in range(11):
                total += env.step(np.int64(towards(column, env._paddle)))[1]
            assert total == ToyCatch.optimum
    for place in range(2, 24):
        returns = []
        for column in range(2, 28):
            begin(env, column, place)
            returns.append(play(env, [1] * 11)[-1][1])
        assert np.mean(returns) == pytest.approx(ToyCatch.chance)


def test_beginnings_are_uniform():
    env = make()
    env.reset(seed=0)
    drawn = np.array([(env.reset(), env._column, env._paddle)[1:] for _ in range(3000)])
    assert [set(places) for places in drawn.T.tolist()] == [set(range(2, 28)), set(range(2, 24))]
    assert drawn.mean(0) == pytest.approx([14.5, 12.5], abs=0.7)


def test_noise_is_drawn_anew_and_leaves_ball_and_paddle_alone():
    env = make(noise=100)
    first = begin(env, column=3, paddle=3)
    second = play(env, [1])[0][0]
    assert first[:28].max() == 255 and np.sort(first[6:28], None)[[0, -1]].tolist() == [0, 100]
    assert (first[3:6, 3:6] == 255).all() and (second[28:30, 3:10] == 255).all()
    assert np.mean(first[8:28] == second[8:28]) < 0.05


@pytest.mark.parametrize("name", ["ToyCatch", "ToyHiddenCatch"])
def test_the_seed_decides_everything(name: str):
    def run() -> list[np.ndarray]:
        env, pictures = make(name, noise=50), []
        for seed in (3, None):
            obs, _ = env.reset(seed=seed)
            pictures += [obs, *(seen for seen, _, _ in play(env, [0, 1, 2] * 3 + [0, 0]))]
        assert all(env.observation_space.contains(obs) for obs in pictures)
        return [
            obs if isinstance(obs, np.ndarray) else np.append(obs["picture"], obs["truth"])
            for obs in pictures
        ]

    assert np.array_equal(run(), run())


# ---- hidden


def test_the_ball_disappears_and_the_truth_does_not():
    """Above row 10 it is seen in rows 3, 5, 7 and 9: four pictures, the first one included."""
    env = make("ToyHiddenCatch")
    seen = [begin(env, column=27, paddle=23)]
    seen += [obs for obs, _, _ in play(env, [0] * 11)]
    assert [bool(obs["picture"][:28].any()) for obs in seen] == [True] * 4 + [False] * 8
    assert block(seen[3]["picture"][:28]) == (slice(9, 12), slice(27, 30))
    assert all(block(obs["picture"][28:])[0] == slice(0, 2) for obs in seen)
    truth = np.array([obs["truth"] for obs in seen])
    assert (truth.dtype, truth.shape) == (np.float32, (12, 3))
    np.testing.assert_allclose(truth[0], [1, -1, 1])
    np.testing.assert_allclose(truth[-1], [1, 1, -1])
    np.testing.assert_allclose(truth[1], [1, -1 + 2 / 11, 2 * 19 / 21 - 1], rtol=1e-6)


def test_hidden_or_not_it_is_the_same_game():
    seen, hidden = make(), make("ToyHiddenCatch", seen=32)
    for env in (seen, hidden):
        begin(env, column=7, paddle=12)
    for (picture, *told), (obs, *same) in zip(
        play(seen, [0, 2] * 5 + [1]), play(hidden, [0, 2] * 5 + [1]), strict=True
    ):
        assert (picture == obs["picture"]).all() and told == same


# ---- errors


@pytest.mark.parametrize(
    ("name", "kwargs", "message"),
    [
        ("ToyCatch", {"noise": 255}, "noise is 255; it must be from 0 to 254"),
        ("ToyCatch", {"noise": -1}, "noise is -1"),
        ("ToyHiddenCatch", {"seen": 3}, "seen is 3; it must be at least 4"),
    ],
)
def test_nonsense_is_refused(name: str, kwargs: dict[str, int], message: str):
    with pytest.raises(ValueError, match=message):
        make(name, **kwargs)


def test_actions_outside_the_space_are_refused():
    env = make()
    env.reset(seed=0)
    with pytest.raises(ValueError, match="is not in Discrete"):
        env.step(np.int64(3))
