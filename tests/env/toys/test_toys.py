"""The environments with a known optimum: it is reached, a seed is an episode, and nonsense is refused."""

from collections.abc import Callable
from itertools import product
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


def test_a_masked_action_is_refused() -> None:
    env = make("ToyMasked")
    _, info = env.reset(seed=0)
    with pytest.raises(ValueError, match="is masked"):
        env.step(np.flatnonzero(info["action_mask"] == 0)[0])


# ---- memory: no policy without one gets more than ``chance``

SMALL = {
    "ToyRecall": ({"cues": 3, "delay": 1}, 3, 5),
    "ToyQueue": ({"symbols": 2, "lag": 2, "length": 5}, 2**5, 2),
    "ToyHallway": ({"length": 2}, 2, 4),
}
"""Arguments, kinds of episodes and kinds of observations: few enough to go through all policies."""


@pytest.mark.parametrize("name", SMALL)
def test_no_policy_without_memory_gets_more_than_chance(name):
    """All of them, as a table from what is seen to what is done, over every episode there is.

    A random policy is a mixture of these, so it gets no more than the best of them either.
    """
    kwargs, kinds, looks = SMALL[name]
    env = make(name, **kwargs)

    def forward(seen, mask):  # through the hallway, or anything
        return np.int64(1 if name == "ToyHallway" and seen[-1][2] else 0)

    played = {seed: [tuple(obs) for obs in play(env, forward, seed)[1]] for seed in range(300)}
    seeds = {tuple(seen): seed for seed, seen in played.items()}.values()
    assert len(seeds) == kinds
    # The last observation is that of a terminal state, where nobody acts.
    known = sorted({obs for seed in seeds for obs in played[seed][:-1]})
    assert len(known) == looks
    means = []
    for actions in product(range(int(env.action_space.n)), repeat=looks):
        table = dict(zip(known, map(np.int64, actions), strict=True))
        policy = lambda seen, mask, table=table: table[tuple(seen[-1])]  # noqa: E731
        means.append(np.mean([play(env, policy, seed)[0] for seed in seeds]))
    assert max(means) == pytest.approx(env.unwrapped.chance)
