"""The environments with a known optimum: it is reached, a seed is an episode, and nonsense is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from tests.demos.maze import velocity

Seen = list[Any]
"""The observations of an episode so far, the newest last."""

Act = Callable[[Seen, Any], Any]
"""Observations and mask -> action."""


def make(name: str, **kwargs: Any) -> Any:
    return gym.make(f"algorithm.env.toys:{name}-v0", disable_env_checker=True, **kwargs)


def play(env: Any, act: Act, seed: int) -> tuple[float, Seen]:
    """The return of an episode, and what was seen in it."""
    obs, info = env.reset(seed=seed)
    seen, total, over = [obs], 0.0, False
    while not over:
        obs, reward, terminated, truncated, info = env.step(act(seen, info.get("action_mask")))
        seen.append(obs)
        total, over = total + reward, terminated or truncated
    return total, seen


def branches_of(bits: np.ndarray) -> np.ndarray:
    return np.array([np.argmax(bits[:3]), np.argmax(bits[3:7]), np.argmax(bits[7:])])


def place_of(columns: np.ndarray, size: int) -> float:
    """Position of the lit columns [width], from −0.9 at the left edge to 0.9 at the right one; 0 for none."""
    lit = np.flatnonzero(columns)
    return 0.9 * (2 * lit[0] / (len(columns) - size) - 1) if len(lit) else 0.0


def read_cameras(obs: dict[str, np.ndarray]) -> np.ndarray:
    """The answers; the middle for what cannot be seen."""
    left, right = place_of(obs["left"].any((0, 2)), 6), place_of(obs["right"].any((0, 1)), 4)
    return np.array([left, right * np.sign(obs["speed"][0])], np.float32)


def hybrid(choice: int, value: float) -> dict[str, Any]:
    return {"choice": choice, "value": np.array([value], np.float32)}


RNG = np.random.default_rng(0)


def towards(picture: np.ndarray) -> np.int64:
    """Move the paddle, in row 28, below the ball; both are the only lit columns."""
    ball, paddle = np.flatnonzero(picture[:28].any(0))[0], np.flatnonzero(picture[28])[0]
    return np.int64(0 if paddle > ball else 2 if paddle < ball - 4 else 1)


def braking(obs: np.ndarray) -> np.ndarray:
    """Take the speed from which half of the brakes still stop: v² = 2 · 0.025 · offset, along each axis."""
    offset, velocity = 10 * obs[:2], obs[2:]
    wanted = np.sign(offset) * np.sqrt(0.05 * np.abs(offset))
    return np.clip((wanted - velocity) / 0.05, -1, 1).astype(np.float32)


BEST: dict[str, Act] = {
    "ToyContinuous": lambda seen, mask: seen[-1],
    "ToyDiscrete": lambda seen, mask: seen[-1],
    "ToyBranches": lambda seen, mask: branches_of(seen[-1]),
    "ToyHybrid": lambda seen, mask: hybrid(seen[-1]["best"], seen[-1]["targets"][seen[-1]["best"]]),
    "ToyMasked": lambda seen, mask: next((seen[-1] + k) % 6 for k in range(6) if mask[(seen[-1] + k) % 6]),
    "ToyTwoCameras": lambda seen, mask: read_cameras(seen[-1]),
    "ToyCatch": lambda seen, mask: towards(seen[-1]),
    "ToyHiddenCatch": lambda seen, mask: towards(
        np.vstack([seen[0]["picture"][:28], seen[-1]["picture"][28:]])
    ),
    "ToyCorridor": lambda seen, mask: np.int64(1),
    "ToyMaze": lambda seen, mask: velocity(seen[-1]["position"]),
    "ToyParking": lambda seen, mask: braking(seen[-1]),
    "ToyRecall": lambda seen, mask: np.argmax(seen[0][:-1]),
    "ToyQueue": lambda seen, mask: np.argmax(seen[-4]) if len(seen) > 3 else np.int64(0),
    "ToyBits": lambda seen, mask: np.argmax(seen[-1]["achieved_goal"] != seen[-1]["desired_goal"]),
    "ToyHallway": lambda seen, mask: 1 + np.argmax(seen[0]) if seen[-1][2] else np.int64(0),
}  # fmt: skip


@pytest.mark.parametrize("name", BEST)
def test_the_best_policy_gets_the_optimum_and_a_seed_is_an_episode(name: str) -> None:
    env, act = make(name), BEST[name]
    returns = [play(env, act, seed)[0] for seed in range(400 if name == "ToyMasked" else 40)]
    # What can be had depends on the masks.
    assert np.mean(returns) == pytest.approx(env.unwrapped.optimum, abs=0.05 if name == "ToyMasked" else 1e-6)
    first = play(env, act, 7)[1]
    np.testing.assert_equal(first, play(make(name), act, 7)[1])
    assert all(env.observation_space.contains(obs) for obs in first)
    if name != "ToyCorridor":  # it always begins alike
        assert len({repr(play(env, act, seed)[1]) for seed in range(9)}) > 1


@pytest.mark.parametrize(("name", "kwargs", "act", "expected"), [
    ("ToyContinuous", {}, lambda seen, mask: np.full(2, 0.1, np.float32), -0.01 / 0.27),
    ("ToyDiscrete", {}, lambda seen, mask: np.int64(3), 1 / 5),
    ("ToyBranches", {}, lambda seen, mask: np.array([2, 0, 1]), 13 / 36),
    ("ToyHybrid", {}, lambda seen, mask: hybrid(1, 0.0), 1 / 3),
    ("ToyHybrid", {}, lambda seen, mask: hybrid(seen[-1]["best"], 0.0), 11 / 15),
    ("ToyTwoCameras", {"blind": "left"}, BEST["ToyTwoCameras"], 1 / 2),
    ("ToyTwoCameras", {"blind": "right"}, BEST["ToyTwoCameras"], 1 / 2),
    ("ToyTwoCameras", {"blind": "speed"}, BEST["ToyTwoCameras"], 1 / 2),
    ("ToyMasked", {}, lambda seen, mask: RNG.choice(np.flatnonzero(mask)), 4 * 0.46),
    ("ToyCatch", {}, lambda seen, mask: np.int64(1), -8 / 13),
    ("ToyRecall", {}, lambda seen, mask: np.int64(2), 1 / 4),
    ("ToyQueue", {}, lambda seen, mask: np.int64(1), 1 / 3),
    ("ToyHallway", {}, lambda seen, mask: np.int64(1 if seen[-1][2] else 0), 1 / 2),
])  # fmt: skip
def test_who_does_not_look_gets_what_chance_gives(name: str, kwargs: Any, act: Act, expected: float) -> None:
    env = make(name, **kwargs)
    assert np.mean([play(env, act, seed)[0] for seed in range(800)]) == pytest.approx(expected, abs=0.07)


def test_goals_of_bits_are_judged_one_by_one_or_many_at_once() -> None:
    env = make("ToyBits", bits=2).unwrapped
    achieved, desired = np.int8([[0, 1], [1, 1]]), np.int8([[0, 1], [0, 1]])
    assert env.compute_reward(achieved, desired, {}).tolist() == [0, -1]
    assert env.compute_terminated(achieved, desired, {}).tolist() == [True, False]
    assert [env.compute_reward(a, d, {}) for a, d in zip(achieved, desired, strict=True)] == [0, -1]


def test_recall_shows_cue_distractors_and_question_and_counts_the_last_answer_only() -> None:
    def act(seen: Seen, mask: Any) -> np.int64:  # right but for the last answer
        cue = np.argmax(seen[0][:2])
        return cue if len(seen) < 6 else 1 - cue

    total, seen = play(make("ToyRecall", cues=2, delay=4, noise=3), act, 3)
    rows = np.array(seen)
    assert total == 0.0 and rows.sum(1).tolist() == [1, 1, 1, 1, 1, 1, 0]
    assert rows[0, :2].sum() == rows[5, 2] == 1 and (rows[1:5, 3:].sum(1) == 1).all()


def test_hallway_walls_hold_and_who_stays_is_cut_off() -> None:
    env = make("ToyHallway", length=2)
    start, _ = env.reset(seed=0)
    for action, expected in [(1, start), (2, start), (0, np.zeros(3)), (1, np.zeros(3)), (0, [0, 0, 1])]:
        obs, reward, terminated, _, _ = env.step(np.int64(action))
        np.testing.assert_array_equal(obs, expected)
        assert (reward, terminated) == (0.0, False)
    assert [env.step(np.int64(0))[2:4] for _ in range(45)] == [(False, False)] * 44 + [(False, True)]


def begin(env: Any, column: int, paddle: int) -> Any:
    """The first observation of an episode of Catch whose ball and paddle begin there."""

    class Draws:
        places = [column, paddle]  # noqa: RUF012

        def integers(self, *limits: int, **kwargs: Any) -> Any:
            return np.zeros(kwargs["size"], np.uint8) if kwargs else self.places.pop(0)

    env.reset(seed=0)
    env._np_random = Draws()
    return env.reset()[0]


def block(picture: np.ndarray) -> list[int]:
    """First and last row, first and last column of the only lit rectangle."""
    rows, columns = np.flatnonzero(picture.any(1)), np.flatnonzero(picture.any(0))
    return [rows[0], rows[-1], columns[0], columns[-1]]


def test_an_episode_of_catch_by_hand() -> None:
    env = make("ToyHiddenCatch").unwrapped
    seen = [begin(env, column=10, paddle=20)]
    steps = [env.step(np.int64(action)) for action in [0, 0, 0, 1, 2, 0, 0, 0, 1, 1, 1]]
    seen += [obs for obs, *_ in steps]
    assert [block(obs["picture"][:28]) for obs in seen[:4]] == [
        [3 + 2 * at, 5 + 2 * at, 10, 12] for at in range(4)
    ]
    assert not any(obs["picture"][:28].any() for obs in seen[4:]), "from row 10 on it is hidden"
    paddles = [block(obs["picture"][28:]) for obs in seen]
    assert paddles == [[0, 1, at, at + 6] for at in (20, 18, 16, 14, 14, 16, 14, 12, 10, 10, 10, 10)]
    assert [step[1:4] for step in steps] == [(0.0, False, False)] * 10 + [(1.0, True, False)]
    np.testing.assert_allclose(seen[0]["truth"], [-9 / 25, -1, 2 * 18 / 21 - 1], rtol=1e-6)
    np.testing.assert_allclose(seen[-1]["truth"], [-9 / 25, 1, 2 * 8 / 21 - 1], rtol=1e-6)


@pytest.mark.parametrize(("paddle", "reward"), [(5, -1.0), (6, 1.0), (10, 1.0), (11, -1.0)])
def test_a_ball_is_caught_if_all_of_it_is_above_the_paddle(paddle: int, reward: float) -> None:
    """Columns 10 to 12, and a paddle 7 wide."""
    env = make("ToyCatch").unwrapped
    begin(env, column=10, paddle=paddle)
    assert [env.step(np.int64(1)) for _ in range(11)][-1][1:3] == (reward, True)


def test_noise_is_drawn_anew_below_its_brightness() -> None:
    env = make("ToyCatch", noise=100)
    first, second = env.reset(seed=0)[0][12:28], env.step(np.int64(1))[0][12:28]
    assert sorted({*first.ravel().tolist()})[-1] == 100 and np.mean(first == second) < 0.05


def test_the_corridor_pays_at_its_end_and_counts_visits() -> None:
    env = make("ToyCorridor", length=4)
    env.reset(seed=0)
    for action, cell in [(0, 0), (1, 1), (0, 0), (1, 1), (1, 2)]:
        obs, *rest, _ = env.step(np.int64(action))
        assert (obs.argmax(), obs.sum(), rest) == (cell, 1, [0.0, False, False])
    assert env.step(np.int64(1))[1:3] == (1.0, True)
    assert env.unwrapped.visited.tolist() == [3, 2, 1, 1] and env.unwrapped.coverage == 4
    long = make("ToyCorridor")
    long.reset(seed=0)
    assert [long.step(np.int64(0))[3] for _ in range(120)] == [False] * 119 + [True]


def test_a_point_in_the_maze_slides_along_walls() -> None:
    """From the middle of the first cell, whose right neighbour is free; above both is a wall."""
    env = make("ToyMaze")
    env.reset(seed=0)
    env.unwrapped._at = np.array([0.5, 0.5])
    for action, cell, (x, y) in [
        ((0.5, 0.5), 0, (0.8, 0.8)),
        ((0.5, 1.0), 5, (1.1, 1.0)),  # up to the wall
        ((0.0, 1.0), 5, (1.1, 1.0)),
        ((-1.0, -1.0), 0, (0.5, 0.4)),
        ((-1.0, -1.0), 0, (0.0, 0.0)),  # there is nothing but walls outside
    ]:
        obs, *rest, _ = env.step(np.array(action, np.float32))
        np.testing.assert_allclose((obs["position"] + 1) * 2.5, (x, y), atol=1e-5)
        assert (obs["cell"], rest) == (cell, [0.0, False, False])


def test_a_point_is_parked_where_it_is_slow_and_the_distance_is_that_of_the_episode() -> None:
    """From rest at a distance of 1."""
    env = make("ToyParking")
    far = np.linalg.norm(env.reset(seed=1)[0][:2])
    obs, _ = env.reset(seed=1, options={"distance": 1})
    np.testing.assert_allclose([far, np.linalg.norm(obs[:2])], [0.8, 0.1], rtol=1e-6)
    way = obs[:2] / 0.1  # of length 1
    ends = []
    for push in (1, 1, 1, 1, -0.9, -0.9, -0.9):  # speeds 0.05 0.1 0.15 0.2 0.155 0.11 0.065
        obs, *end, _ = env.step((push * way).astype(np.float32))
        ends.append(end[:2])
    assert ends == [[0.0, False]] * 6 + [[1.0, True]], "0.345 and 0.235 away it is too fast"
    np.testing.assert_allclose(obs, [*(0.017 * way), *(0.065 * way)], atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(env.reset()[0][:2]), 0.8, rtol=1e-6)
    with pytest.raises(ValueError, match=r"distance is 0.5"):
        env.reset(options={"distance": 0.5})


OUTSIDE = {
    "ToyContinuous": np.array([0.0, 1.01], np.float32),
    "ToyHybrid": {"choice": 3, "value": np.zeros(1, np.float32)},
    "ToyCatch": np.int64(3),
    "ToyCorridor": np.int64(2),
    "ToyMaze": np.array([0.0, 1.01], np.float32),
    "ToyRecall": np.int64(4),
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_an_action_outside_its_space_is_refused(name: str) -> None:
    env = make(name)
    env.reset(seed=0)
    with pytest.raises(ValueError, match="is not in"):
        env.step(OUTSIDE[name])


def test_a_masked_action_is_refused() -> None:
    env = make("ToyMasked")
    _, info = env.reset(seed=0)
    with pytest.raises(ValueError, match="is masked"):
        env.step(np.flatnonzero(info["action_mask"] == 0)[0])
