"""The environments that need memory: who remembers gets all of it, who does not gets what chance gives."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import product
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from algorithm.core.spec import DEFAULT_BEHAVIOUR
from algorithm.env.registry import make_vec_env
from algorithm.env.toys.memory import MemoryToy

Look = tuple[float, ...]
Policy = Callable[[list[Look]], int]
"""What was seen in the episode so far, the newest last -> action."""

SMALL: dict[str, dict[str, int]] = {
    "ToyRecall": {"cues": 3, "delay": 1},
    "ToyQueue": {"symbols": 2, "lag": 2, "length": 5},
    "ToyHallway": {"length": 2},
}
"""Few enough observations to go through all policies without memory."""


def make(name: str, **kwargs: Any) -> gym.Env:
    return gym.make(f"algorithm.env.toys:{name}-v0", disable_env_checker=True, **kwargs)


def toy(name: str, **kwargs: Any) -> MemoryToy:
    env = make(name, **kwargs).unwrapped
    assert isinstance(env, MemoryToy)
    return env


def play(env: gym.Env, policy: Policy, seed: int) -> tuple[float, list[Look]]:
    """The return of an episode and what was seen in it."""
    obs, _ = env.reset(seed=seed)
    seen, total, ended = [tuple(obs.tolist())], 0.0, False
    while not ended:
        obs, reward, terminated, truncated, _ = env.step(np.int64(policy(seen)))
        seen.append(tuple(obs.tolist()))
        total, ended = total + reward, terminated or truncated
    return total, seen


def recall(seen: list[Look]) -> int:
    return int(np.argmax(seen[0][:-1]))


def queue(lag: int) -> Policy:
    return lambda seen: int(np.argmax(seen[-1 - lag])) if len(seen) > lag else 0


def hallway(seen: list[Look]) -> int:
    return 1 + int(np.argmax(seen[0])) if seen[-1][2] else 0


BEST: list[tuple[str, dict[str, int], Policy]] = [
    ("ToyRecall", {}, recall),
    ("ToyRecall", {"cues": 7, "delay": 0}, recall),
    ("ToyRecall", {"cues": 2, "delay": 30, "noise": 3}, recall),
    ("ToyQueue", {}, queue(3)),
    ("ToyQueue", {"symbols": 5, "lag": 1, "length": 2}, queue(1)),
    ("ToyHallway", {}, hallway),
    ("ToyHallway", {"length": 1}, hallway),
]


@pytest.mark.parametrize(("name", "kwargs", "policy"), BEST)
def test_who_remembers_gets_the_optimum(name: str, kwargs: dict[str, int], policy: Policy) -> None:
    env = toy(name, **kwargs)
    returns = [play(env, policy, seed)[0] for seed in range(30)]
    np.testing.assert_allclose(returns, env.optimum)


def episodes(env: gym.Env, policy: Policy) -> Iterable[int]:
    """A seed for each kind of episode there is, as ``policy`` comes to see them."""
    return {tuple(play(env, policy, seed)[1]): seed for seed in range(500)}.values()


@pytest.mark.parametrize(
    ("name", "policy", "kinds", "looks"),
    [("ToyRecall", recall, 3, 5), ("ToyQueue", queue(2), 2**5, 2), ("ToyHallway", hallway, 2, 4)],
)
def test_no_policy_without_memory_gets_more_than_chance(
    name: str, policy: Policy, kinds: int, looks: int
) -> None:
    """All of them, as a table from what is seen to what is done, over every episode there is.

    A random policy is a mixture of these, so it gets no more than the best of them either.
    """
    env = make(name, **SMALL[name])
    seeds = list(episodes(env, policy))
    assert len(seeds) == kinds
    # The last observation is that of a terminal state, where nobody acts.
    tables = sorted({look for seed in seeds for look in play(env, policy, seed)[1][:-1]})
    assert len(tables) == looks
    means = []
    for actions in product(range(int(env.action_space.n)), repeat=looks):
        table = dict(zip(tables, actions, strict=True))
        means.append(np.mean([play(env, lambda seen, t=table: t[seen[-1]], seed)[0] for seed in seeds]))
    assert max(means) == pytest.approx(env.unwrapped.chance)


@pytest.mark.parametrize(
    ("name", "kwargs", "chance"),
    [
        ("ToyRecall", {"cues": 8}, 1 / 8),
        ("ToyQueue", {"symbols": 5}, 1 / 5),
        ("ToyHallway", {"length": 9}, 0.5),
    ],
)
def test_chance_follows_the_arguments(name: str, kwargs: dict[str, int], chance: float) -> None:
    assert toy(name, **kwargs).chance == chance < toy(name).optimum


def test_recall_shows_cue_delay_question_and_nothing_else() -> None:
    _, seen = play(toy("ToyRecall"), lambda seen: 0, 3)
    assert sum(seen[0][:4]) == 1 and seen[0][4] == 0
    assert seen[1:9] == [(0.0,) * 5] * 8
    assert seen[9:] == [(0.0, 0.0, 0.0, 0.0, 1.0), (0.0,) * 5]


def test_distractors_fill_the_delay_alone_and_know_nothing_of_the_cue() -> None:
    env = toy("ToyRecall", cues=2, delay=4, noise=3)
    counts = np.zeros((2, 3))
    for seed in range(300):
        seen = np.array(play(env, lambda seen: 0, seed)[1])
        assert (seen[[0, 5, 6], 3:] == 0).all()
        assert (seen[1:5, :3] == 0).all() and (seen[1:5, 3:].sum(1) == 1).all()
        counts[int(seen[0, 1])] += seen[1:5, 3:].sum(0)
    shares = counts / counts.sum(1, keepdims=True)
    np.testing.assert_allclose(shares, 1 / 3, atol=0.06)


def test_an_answer_before_the_question_is_worth_nothing() -> None:
    env = toy("ToyRecall", cues=2, delay=2)
    total, _ = play(env, lambda seen: recall(seen) if len(seen) < 4 else 1 - recall(seen), 0)
    assert total == 0.0


def test_queue_counts_from_the_lag_on_and_a_right_answer_is_its_share() -> None:
    env = toy("ToyQueue", symbols=2, lag=2, length=6)
    right, rewards = queue(2), []
    obs, _ = env.reset(seed=1)
    seen, ended = [tuple(obs.tolist())], False
    while not ended:
        answer = right(seen) if len(seen) != 4 else 1 - right(seen)
        obs, reward, ended, _, _ = env.step(np.int64(answer))
        rewards.append(reward)
        seen.append(tuple(obs.tolist()))
    assert rewards == [0.0, 0.0, 0.25, 0.0, 0.25, 0.25]


def test_hallway_walls_hold_and_the_sign_is_seen_at_the_start_only() -> None:
    env = toy("ToyHallway", length=3)
    start, _ = env.reset(seed=0)
    for action, expected in [
        (1, start),
        (2, start),
        (0, np.zeros(3)),
        (1, np.zeros(3)),
        (0, np.zeros(3)),
        (0, np.array([0, 0, 1])),
        (0, np.array([0, 0, 1])),
    ]:
        obs, reward, terminated, _, _ = env.step(np.int64(action))
        np.testing.assert_array_equal(obs, expected)
        assert (reward, terminated) == (0.0, False)
    wrong = 2 - int(np.argmax(start))
    assert env.step(np.int64(wrong))[1:3] == (0.0, True)


@pytest.mark.parametrize(("kwargs", "steps"), [({}, 50), ({"max_episode_steps": 9}, 9)])
def test_who_stays_in_the_hallway_is_cut_off(kwargs: dict[str, int], steps: int) -> None:
    env = make("ToyHallway", **kwargs)
    env.reset(seed=0)
    ends = [env.step(np.int64(1))[2:4] for _ in range(steps)]
    assert ends == [(False, False)] * (steps - 1) + [(False, True)]


@pytest.mark.parametrize("name", SMALL)
def test_a_seed_is_an_episode_and_the_next_one_differs(name: str) -> None:
    env = make(name)
    first = play(env, lambda seen: 0, 7)[1]
    assert play(env, lambda seen: 0, 7)[1] == first
    assert len({tuple(play(env, lambda seen: 0, seed)[1]) for seed in range(20)}) > 1


@pytest.mark.parametrize("name", SMALL)
def test_what_it_shows_is_in_its_space(name: str) -> None:
    env = make(name)
    env.action_space.seed(0)
    for seed in range(10):
        _, seen = play(env, lambda seen: int(env.action_space.sample()), seed)
        assert all(env.observation_space.contains(np.array(look, np.float32)) for look in seen)
    with pytest.raises(ValueError, match="is not in Discrete"):
        env.step(np.int64(env.action_space.n))


@pytest.mark.parametrize(
    ("name", "kwargs", "message"),
    [
        ("ToyRecall", {"cues": 1}, "cues is 1; it must be at least 2"),
        ("ToyRecall", {"delay": -1}, "delay is -1"),
        ("ToyRecall", {"noise": -1}, "noise is -1"),
        ("ToyQueue", {"symbols": 1}, "symbols is 1"),
        ("ToyQueue", {"lag": 0}, "lag is 0"),
        ("ToyQueue", {"lag": 4, "length": 4}, "length is 4; it must be at least 5"),
        ("ToyHallway", {"length": 0}, "length is 0"),
    ],
)
def test_a_task_that_makes_no_sense_is_refused(name: str, kwargs: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(name, **kwargs)


def test_arguments_come_from_the_configuration() -> None:
    env = make_vec_env(
        "GYM",
        "algorithm.env.toys:ToyRecall-v0",
        env_args={"cues": 3, "noise": 2},
        n=2,
        seed_of=lambda index, episode: index,
    )
    spec = env.specs[DEFAULT_BEHAVIOUR]
    env.close()
    assert (spec.obs.shapes, spec.action.branches) == (((6,),), (3,))
