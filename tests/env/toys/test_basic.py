"""The environments with a known optimum: it is reached, and not without looking."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations, product
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from algorithm.env.toys.basic import Toy

NAMES = ("ToyContinuous", "ToyDiscrete", "ToyBranches", "ToyHybrid", "ToyMasked", "ToyTwoCameras")

Act = Callable[[Any, np.ndarray | None], Any]
"""Observation and mask -> action."""


def make(name: str, **kwargs: Any) -> Toy:
    env = gym.make(f"algorithm.env.toys:{name}-v0", disable_env_checker=True, **kwargs).unwrapped
    assert isinstance(env, Toy)
    return env


def play(env: Toy, act: Act, episodes: int, seed: int = 0) -> np.ndarray:
    """Returns of so many episodes."""
    returns = np.zeros(episodes)
    for i in range(episodes):
        obs, info = env.reset(seed=seed if i == 0 else None)
        ended = False
        while not ended:
            obs, reward, ended, truncated, info = env.step(act(obs, info.get("action_mask")))
            assert not truncated
            returns[i] += reward
    return returns


def branches_of(bits: np.ndarray) -> np.ndarray:
    return np.array([np.argmax(bits[:3]), np.argmax(bits[3:7]), np.argmax(bits[7:])])


def best_allowed(shown: int, mask: np.ndarray | None) -> int:
    assert mask is not None
    return next((shown + k) % 6 for k in range(6) if mask[(shown + k) % 6])


def place_of(columns: np.ndarray, size: int) -> float:
    """Position of the lit columns [width], from −0.9 at the left edge to 0.9 at the right one."""
    lit = np.flatnonzero(columns)
    assert len(lit) == size
    return 0.9 * (2 * lit[0] / (len(columns) - size) - 1)


def read_cameras(obs: dict[str, np.ndarray]) -> np.ndarray:
    """The answers; the middle for what cannot be seen."""
    left = place_of(obs["left"].any((0, 2)), 6) if obs["left"].any() else 0.0
    right = place_of(obs["right"].any((0, 1)), 4) if obs["right"].any() else 0.0
    return np.array([left, right * np.sign(obs["speed"][0])], np.float32)


BEST: dict[str, Act] = {
    "ToyContinuous": lambda obs, mask: obs,
    "ToyDiscrete": lambda obs, mask: obs,
    "ToyBranches": lambda obs, mask: branches_of(obs),
    "ToyHybrid": lambda obs, mask: {"choice": obs["best"], "value": obs["targets"][[obs["best"]]]},
    "ToyMasked": best_allowed,
    "ToyTwoCameras": lambda obs, mask: read_cameras(obs),
}


@pytest.mark.parametrize("name", NAMES)
def test_the_best_policy_gets_the_optimum(name: str) -> None:
    env = make(name)
    returns = play(env, BEST[name], 1000)
    if name == "ToyMasked":  # what can be had depends on the masks
        assert returns.mean() == pytest.approx(env.optimum, abs=0.03)
    else:
        np.testing.assert_allclose(returns, env.optimum, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "act", "expected", "error"),
    [
        ("ToyContinuous", lambda obs, mask: np.zeros(2, np.float32), 0.0, 0.06),
        # 1 − E(a − t)² / 0.27 = −0.1² / 0.27 where it is 0 for the middle
        ("ToyContinuous", lambda obs, mask: np.full(2, 0.1, np.float32), -0.01 / 0.27, 0.06),
        ("ToyDiscrete", lambda obs, mask: np.int64(3), 1 / 5, 0.03),
        ("ToyBranches", lambda obs, mask: np.array([2, 0, 1]), 13 / 36, 0.02),
        ("ToyHybrid", lambda obs, mask: {"choice": 1, "value": np.zeros(1, np.float32)}, 1 / 3, 0.03),
    ],
)
def test_actions_without_looking(name: str, act: Act, expected: float, error: float) -> None:
    assert play(make(name), act, 2000).mean() == pytest.approx(expected, abs=error)


@pytest.mark.parametrize("name", NAMES)
def test_what_it_shows_is_in_its_space(name: str) -> None:
    env = make(name)
    env.action_space.seed(1)
    for seed in range(30):
        obs, info = env.reset(seed=seed)
        assert env.observation_space.contains(obs)
        for played in range(1, env.rounds + 1):
            action = env.action_space.sample(info["action_mask"] if info else None)
            obs, reward, terminated, truncated, info = env.step(action)
            assert env.observation_space.contains(obs)
            assert type(reward) in (float, np.float64)
            assert reward <= 1.0
            assert (terminated, truncated) == (played == env.rounds, False)


@pytest.mark.parametrize("name", NAMES)
def test_a_seed_is_an_episode(name: str) -> None:
    first, second = (make(name).reset(seed=7) for _ in range(2))
    np.testing.assert_equal(first, second)
    with pytest.raises(AssertionError):
        np.testing.assert_equal(first, make(name).reset(seed=8))


@pytest.mark.parametrize(
    ("name", "action"),
    [
        ("ToyContinuous", np.array([0.0, 1.01], np.float32)),
        ("ToyDiscrete", np.int64(5)),
        ("ToyBranches", np.array([0, 0, 2])),
        ("ToyHybrid", {"choice": 3, "value": np.zeros(1, np.float32)}),
        ("ToyMasked", np.int64(-1)),
        ("ToyTwoCameras", np.zeros(3, np.float32)),
    ],
)
def test_an_action_outside_its_space_is_refused(name: str, action: object) -> None:
    env = make(name)
    env.reset(seed=0)
    with pytest.raises(ValueError, match="is not in"):
        env.step(action)


def test_hybrid_needs_both_of_its_observations() -> None:
    """All 18 rounds: 0.6 + 0.4/3 without the targets, 0.6/3 + 0.4 without the best choice."""
    env, rounds = make("ToyHybrid"), {}
    for seed in range(200):
        obs, _ = env.reset(seed=seed)
        rounds[int(obs["best"]), tuple(obs["targets"])] = seed
    orders = permutations(np.array([-0.6, 0.0, 0.6], np.float32))
    assert set(rounds) == set(product(range(3), orders))

    def mean(act: Act) -> float:
        return float(np.mean([play(env, act, 1, seed) for seed in rounds.values()]))

    blind_to_targets = mean(lambda obs, mask: {"choice": obs["best"], "value": np.zeros(1, np.float32)})
    assert blind_to_targets == pytest.approx(11 / 15) == env.chance
    assert mean(lambda obs, mask: {"choice": 2, "value": obs["targets"][2:]}) == pytest.approx(3 / 5)


def test_hybrid_has_no_trap() -> None:
    """At the best value for random choices, the best choice is better than the others in every round."""
    for best, targets in product(range(3), permutations((-0.6, 0.0, 0.6))):
        worth = [0.6 * (c == best) + 0.4 * (1 - (0.0 - targets[c]) ** 2 / 0.36) for c in range(3)]
        assert int(np.argmax(worth)) == best


def test_masked_is_what_its_numbers_are_worked_out_from() -> None:
    """The 60 rounds there are: what is shown, whether it is masked, and which other action is."""
    worth = 1.0 - (np.arange(6)[:, None] - np.arange(6)) % 6 / 5  # [action, shown]
    rounds = []
    for shown, masked, other in product(range(6), (False, True), range(1, 6)):
        mask = np.ones(6, np.bool_)
        mask[[shown, (shown + other) % 6]] = not masked, False
        rounds.append((shown, mask))
    assert np.mean([worth[mask, shown].max() for shown, mask in rounds]) * 4 == pytest.approx(3.52)
    assert np.mean([worth[mask, shown].mean() for shown, mask in rounds]) == pytest.approx(0.46)
    alike = [np.mean([worth[:, s] for s, m in rounds if (m == mask).all()], 0) for _, mask in rounds]
    blind = np.mean([mean[mask].max() for mean, (_, mask) in zip(alike, rounds, strict=True)])
    assert blind * 4 == pytest.approx(make("ToyMasked").chance)

    env, seen = make("ToyMasked"), set()
    for seed in range(1000):
        shown, info = env.reset(seed=seed)
        seen.add((int(shown), tuple(info["action_mask"].tolist())))
    assert seen == {(shown, tuple(mask.tolist())) for shown, mask in rounds}
    for action in np.flatnonzero(info["action_mask"]):
        env.reset(seed=seed)
        assert env.step(action)[1] == pytest.approx(worth[action, shown])


def test_a_masked_action_is_refused() -> None:
    env = make("ToyMasked")
    _, info = env.reset(seed=0)
    with pytest.raises(ValueError, match="is masked"):
        env.step(np.flatnonzero(info["action_mask"] == 0)[0])


@pytest.mark.parametrize("blind", ["left", "right", "speed"])
def test_two_cameras_are_not_enough_without_any_of_the_three(blind: str) -> None:
    """The best that is left is to guess the middle, which loses one of the two answers."""
    env = make("ToyTwoCameras", blind=blind)
    obs, _ = env.reset(seed=0)
    assert [name for name, value in obs.items() if not value.any()] == [blind]
    assert play(env, BEST["ToyTwoCameras"], 1000).mean() == pytest.approx(env.chance, abs=0.04)


def test_two_cameras_show_their_layouts() -> None:
    obs, _ = make("ToyTwoCameras").reset(seed=3)
    assert {name: (value.dtype.name, value.shape) for name, value in obs.items()} == {
        "left": ("uint8", (24, 32, 3)),
        "right": ("uint8", (1, 40, 40)),
        "speed": ("float32", (3,)),
    }
    assert (obs["left"].any(2).sum(), obs["right"].any(0).sum()) == (6 * 6, 40 * 4)


def test_an_unknown_eye_is_refused() -> None:
    with pytest.raises(ValueError, match="it can be left, right, speed or None"):
        make("ToyTwoCameras", blind="middle")
