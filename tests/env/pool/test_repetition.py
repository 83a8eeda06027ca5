"""What was done in an episode, so that anybody can do it again."""

from __future__ import annotations

import json
from contextlib import closing

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from algorithm.core.seeding import episode_seeds
from algorithm.core.spec import DEFAULT_BEHAVIOUR
from algorithm.env.pool import repetition as history
from algorithm.env.pool.repetition import ActionHistory
from algorithm.env.registry import make_vec_env
from algorithm.env.request import EnvRequest
from tests.toys_vector import diary_seed

SEEDS = episode_seeds(5, "train")


@settings(max_examples=30)
@given(events=st.lists(st.one_of(st.just("act"), st.integers(0, 2)), max_size=40))
def test_a_history_is_a_list_for_each_environment(events):
    """Against plain lists; a block holds four steps, so that it is divided again and again.

    The rewards are such that their sum depends on the order in which they are added.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(history, "_BLOCK_STEPS", 4)
        found = ActionHistory(3, 1)
    rows: list[list[float]] = [[], [], []]
    totals, numbers, ended = [0.0] * 3, [0] * 3, {}
    for k, event in enumerate(events):
        if event == "act":
            ended = {}
            found.record(np.array([[k], [k + 0.25], [k + 0.5]], np.float32))
            reward = np.float32([0.1, 1e9 * (-1) ** k, 1.0 / (k + 1)])
            found.record_reward(reward)
            for copy, row in enumerate(rows):
                row.append(k + 0.25 * copy)
                totals[copy] += float(reward[copy])
        else:
            ended.setdefault(event, (numbers[event], rows[event]))
            found.end_episode(event, numbers[event])
            rows[event], totals[event], numbers[event] = [], 0.0, numbers[event] + 1
        for copy, row in enumerate(rows):
            assert found.actions(copy)[:, 0].tolist() == row
            assert (found.length(copy), found.total_reward(copy)) == (len(row), totals[copy])
            last = found.ended_episode(copy)
            assert (last and (last[0], last[1][:, 0].tolist())) == ended.get(copy)


def test_an_episode_that_ended_with_the_last_step_is_the_one_that_is_meant():
    """Environment 0 has episodes of 1, 6 and 5 steps; environment 1 of 4, 3 and 2."""
    with closing(
        make_vec_env(EnvRequest("GYM", "tests.toys_vector:Diary-v0", n=2, seed_of=diary_seed))
    ) as env:
        env.reset()
        done = []
        for t in range(9):
            done.append(np.float32([[-1 / 6, 1 / 6]] * 2) + np.float32(t / 1000))  # it hardly moves
            env.step({DEFAULT_BEHAVIOUR: done[t]})
            found = env.trace(0)
            episode, first = (0, 0) if t == 0 else (1, 1) if t < 7 else (2, 7)
            assert (found.env_index, found.episode, found.seed) == (0, episode, diary_seed(0, episode))
            assert found.next_seed == (diary_seed(0, episode + 1) if t in (0, 6) else None)
            assert np.array_equal(found.actions, [row[0] for row in done[first:]])
        env.reset([0])
        assert (env.trace(0).episode, len(env.trace(0).actions)) == (3, 0)
        assert env.trace(1).next_seed == diary_seed(1, 3), "nobody has asked for its reset"
        assert env.trace(2) is None and env.trace(-1) is None


def test_anybody_can_repeat_it_with_the_environments_own_actions():
    """Without anything of this project, and after the actions were written as JSON."""
    with closing(make_vec_env(EnvRequest("GYM", "Pendulum-v1", n=2, seed_of=SEEDS))) as env:
        env.reset()
        for t in range(20):
            action = np.full((2, 1), np.sin(t), np.float32)
            seen = env.step({DEFAULT_BEHAVIOUR: action})[DEFAULT_BEHAVIOUR].obs["obs"]
        found = env.trace(1)
    plain = gym.make("Pendulum-v1")
    plain.reset(seed=found.seed)
    for action in json.loads(json.dumps(found.env_actions)):
        obs, *_ = plain.step(np.array(action, np.float32))
    assert np.array_equal(obs, seen[1])


@pytest.mark.parametrize(("name", "args", "flat", "own"), [
    ("tests.toys:Nested-v0", {}, [0, 0, 1, 0.5, -1], [2, [2.0, -1.0]]),
    ("tests.toys:Grants-v0", {"masks": [None] * 4}, [0, 1, 0, 1, 0], {"jump": 0, "move": 1}),
])  # fmt: skip
def test_own_actions_are_plain_numbers_lists_and_dicts(name, args, flat, own):
    with closing(make_vec_env(EnvRequest("GYM", name, env_args=args, seed_of=SEEDS))) as env:
        env.reset()
        env.step({DEFAULT_BEHAVIOUR: np.array([flat], np.float32)})
        assert json.loads(json.dumps(env.trace(0).env_actions)) == [own]
