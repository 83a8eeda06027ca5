"""Whatever runs the environments, what the replay gets is what N plain environments would have brought."""

from collections import Counter
from collections.abc import Callable
from contextlib import closing
from copy import deepcopy
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

from algorithm.core.seeding import episode_seeds
from algorithm.core.spec import DEFAULT_BEHAVIOUR
from algorithm.env.base import Fault, OnFault, VecEnv
from algorithm.env.lanes.gym_vector import GymVectorEnv
from algorithm.env.registry import make_vec_env
from algorithm.env.request import EnvRequest
from algorithm.run.experience.collector import LocalCollector
from tests.env.oracles import Witness, plain_transitions
from tests.lib.toys_vector import Diary, DiaryVector, diary_seed, lost

N = 4
SEEDS = episode_seeds(3, "train")
MODES = list(AutoresetMode)


def pooled(name: str, *, n: int = N, seed_of: Any = SEEDS, workers: int = 0, **args: Any) -> VecEnv:
    return make_vec_env(EnvRequest("GYM", name, env_args=args, n=n, seed_of=seed_of, workers=workers))


def failing(workers: int, on_fault: OnFault) -> VecEnv:
    return make_vec_env(
        EnvRequest(
            "GYM",
            "tests.lib.toys_vector:Diary-v0",
            env_args={"fails": "sometimes"},
            n=N,
            seed_of=diary_seed,
            workers=workers,
            restarts=99,
            on_fault=on_fault,
        )
    )


def vectored(make: Callable[[], VectorEnv], *, seed_of: Any = SEEDS) -> VecEnv:
    return GymVectorEnv(make, seed_of=seed_of, name="task")


def gathered(
    vector: type[SyncVectorEnv] | type[AsyncVectorEnv], mode: AutoresetMode, make: Callable[[int], gym.Env]
) -> VectorEnv:
    return vector([partial(make, i) for i in range(N)], copy=False, autoreset_mode=mode)


def diaries(arrangement: str) -> VecEnv:
    """``2 workers``, or a vector class and its autoreset mode."""
    if arrangement.endswith("workers"):
        name, workers = "tests.lib.toys_vector:Diary-v0", int(arrangement[0])
        return pooled(name, seed_of=diary_seed, workers=workers, reuse=True)
    kind, mode = arrangement.split()
    vectors = {"Sync": SyncVectorEnv, "Async": AsyncVectorEnv}
    make = (
        partial(gathered, vectors[kind], AutoresetMode(mode), Diary)
        if kind in vectors
        else partial(DiaryVector, N, mode=AutoresetMode(mode))
    )
    return vectored(make, seed_of=diary_seed)


def witness(env: VecEnv, steps: int, limit: int = -1) -> tuple[Witness, list[tuple[int, int]]]:
    """What ``steps`` steps of every environment bring; and (agent, length) of every episode reported."""
    found = Witness(env.specs[DEFAULT_BEHAVIOUR])
    rollout = LocalCollector(env, {DEFAULT_BEHAVIOUR: found}, {DEFAULT_BEHAVIOUR: found}, length_limit=limit)
    episodes = [(e.agent, e.length) for _ in range(steps) for e in rollout.step()]
    assert sorted(found.seen) == list(range(len(found.seen)))
    assert Counter(found.stored()) == Counter(t for seen in found.seen.values() for t in seen)
    return found, episodes


@pytest.mark.parametrize(
    "arrangement",
    ["0 workers", "3 workers", "Async SameStep", *(f"{k} {m.value}" for k in ("Sync", "Own") for m in MODES)],
)
def test_nothing_is_lost_doubled_or_mixed(arrangement):
    """Episodes of 1 to 6 steps end by themselves, by their own limit, or by ours, with partial resets.

    The second rollout begins while episodes of the first one are open and some resets are pending.
    """
    with closing(diaries(arrangement)) as env:
        for limit in (-1, 3):
            found, episodes = witness(env, 61, limit)
            for copy, seen in found.seen.items():
                assert seen == plain_transitions(Diary(), partial(diary_seed, copy), len(seen), limit=limit)
                assert len(seen) >= 30
            everything = [(copy, t) for copy, seen in found.seen.items() for t in seen]
            assert {(t.terminated, t.truncated) for _, t in everything} >= {(False, True), (True, False)}
            ended = [(copy, t.step + 1) for copy, t in everything if t.terminated or t.truncated]
            assert sorted(episodes) == sorted(ended)
            assert len({length for _, length in ended}) >= 3
            assert found.closed == []
        check_that_results_stay(env)


def check_that_results_stay(env: VecEnv) -> None:
    """What was handed out is the caller's: no later step writes into it."""
    action = np.zeros((N, env.specs[DEFAULT_BEHAVIOUR].action.size), np.float32)
    handed, then = [], []
    for _ in range(8):
        result = env.step({DEFAULT_BEHAVIOUR: action})[DEFAULT_BEHAVIOUR]
        final = result.final or result
        handed.append(
            (result.obs["obs"], final.obs["obs"], result.reward, result.terminated, result.truncated)
        )
        then.append(deepcopy(handed[-1]))
    for now, before in zip(handed, then, strict=True):
        assert all(map(np.array_equal, now, before))


@pytest.mark.fault("F12")
@pytest.mark.parametrize("workers", [0, 2])
def test_a_failing_copy_loses_the_rest_of_its_episode_and_nothing_else(workers):
    """Environment 0 fails in some episodes, after one step or two; it goes on with the next one.

    Our limit of three steps, which one of these would have reached, has nothing to do with it.
    """
    faults: list[Fault] = []
    with closing(failing(workers, faults.append)) as env:
        found, _ = witness(env, 60, limit=3)
    for copy, seen in found.seen.items():
        expected = []
        for t in plain_transitions(Diary(), partial(diary_seed, copy), 120, limit=3):
            cut = lost(copy, t.obs[1], t.step + 1) and not t.terminated
            if not lost(copy, t.obs[1], t.step):
                expected.append(t._replace(truncated=t.truncated or cut))
        assert seen == expected[: len(seen)]
    assert [len(found.seen[copy]) for copy in range(1, N)] == [60] * (N - 1)
    assert len(found.seen[0]) == 60 - len(faults)
    assert len(faults) >= 4
    assert found.closed == [0] * len(faults)


def test_the_replay_rebuilds_a_stack_of_frames_as_the_wrapper_made_it():
    """``witness`` compares what was handed out with what the replay holds, which is one frame a row."""
    wrapper = {"FrameStackObservation": {"stack_size": 4}}
    env = make_vec_env(EnvRequest("GYM", "tests.lib.toys:Film-v0", n=2, seed_of=SEEDS, wrappers=[wrapper]))
    assert env.specs[DEFAULT_BEHAVIOUR].obs.stacks == (4,)
    with closing(env):
        found, _ = witness(env, 20)
    plain = gym.wrappers.FrameStackObservation(gym.make("tests.lib.toys:Film-v0"), 4)
    for copy, seen in found.seen.items():
        assert seen == plain_transitions(plain, partial(SEEDS, copy), 20)


NESTED = "tests.lib.toys:Nested-v0"


@pytest.mark.parametrize("workers", [0, 2])
def test_nested_spaces_bring_what_plain_environments_would(workers):
    """Episodes of 2 to 6 steps end by themselves, or by our limit of 4, which resets single environments."""
    with closing(pooled(NESTED, workers=workers)) as env:
        for limit in (-1, 4):
            found, _ = witness(env, 40, limit)
            for copy, seen in found.seen.items():
                plain = gym.make(NESTED, disable_env_checker=True)
                assert seen == plain_transitions(plain, partial(SEEDS, copy), len(seen), limit=limit)
