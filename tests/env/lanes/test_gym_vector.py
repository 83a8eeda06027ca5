"""An environment's own vector class: seeds, options, what is refused; its steps: ``test_transitions``."""

from contextlib import ExitStack
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

from algorithm.core.errors import EnvError
from algorithm.core.spec import DEFAULT_BEHAVIOUR
from algorithm.env.base import Fault
from algorithm.env.lanes.gym_vector import GymVectorEnv
from tests.lib.toys_vector import Diary, DiaryVector, diary_seed

NEXT, SAME, OFF = AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED


def adapt(make: Any, options: dict[str, Any] | None = None) -> GymVectorEnv:
    return GymVectorEnv(make, seed_of=diary_seed, options=options, name="Diary-v0")


def begin(env: GymVectorEnv, *args: Any, **kwargs: Any):
    return env.reset(*args, **kwargs)[DEFAULT_BEHAVIOUR]


def step(env: GymVectorEnv, n: int = 3):
    """Actions that leave episodes to their length."""
    return env.step({DEFAULT_BEHAVIOUR: np.zeros((n, 2), np.float32)})[DEFAULT_BEHAVIOUR]


def rows(seen) -> list[list[float]]:
    return seen.obs["obs"].astype(int).tolist()


def test_a_reset_from_outside_takes_the_place_of_the_pending_one():
    env = adapt(lambda: DiaryVector(3, mode=NEXT))
    begin(env)
    assert step(env).truncated.tolist() == [True, False, True]
    assert rows(begin(env, [0])) == [[0, 1, 0, 0]]
    result = step(env)
    assert result.skipped.tolist() == [False, False, True]
    assert rows(result)[0] == [0, 1, 1, 1]


@pytest.mark.parametrize("mode", [NEXT, SAME, OFF])
def test_gymnasiums_own_classes_take_seed_and_options_of_each_reset(mode):
    options = {"mass": 2.0}
    made = SyncVectorEnv([partial(Diary, i) for i in range(4)], copy=False, autoreset_mode=mode)
    env = adapt(lambda: made, options)
    assert [row[:2] for row in rows(begin(env, episode=5))] == [[i, 5] for i in range(4)]
    assert rows(begin(env, [3, 1], episode=8)) == [[3, 8, 0, 0], [1, 8, 0, 0]]
    assert rows(begin(env, [1])) == [[1, 9, 0, 0]]
    assert [diary.options for diary in made.envs] == [options] * 4 == [{"mass": 2.0}] * 4


def test_another_class_takes_one_seed_for_all():
    made = DiaryVector(3, mode=OFF)
    env = adapt(lambda: made)
    begin(env, episode=4)
    begin(env, [2, 0])
    assert [seed for seed, _ in made.calls] == [diary_seed(0, 4), diary_seed(2, 5)]


@pytest.mark.parametrize(("mode", "fix"), [(SAME, "max_step_each_iter to -1"), (OFF, "workers to 1")])
def test_a_class_that_resets_too_much_is_refused(mode, fix):
    env = adapt(lambda: DiaryVector(3, mode=mode, masks=False))
    begin(env)
    with pytest.raises(EnvError, match="not asked to reset") as caught:
        step(env)
        env.reset([0])
    assert fix in caught.value.fix


@pytest.mark.parametrize(("args", "limit"), [({}, 50), ({"max_episode_steps": 7}, 7)])
def test_the_time_limit_is_that_of_the_registry_or_of_env_args(args, limit):
    make = partial(gym.make_vec, "DiaryVector-v0", 2, vectorization_mode="vector_entry_point", **args)
    assert adapt(make).time_limit == limit


class Atlas(VectorEnv):
    """Observes a Dict; with same-step autoreset it hands out the last observations as one Dict of arrays.

    Environment i ends its k-th step with an observation of 10 k + i and the mask of choice k mod 3, truncated
    where k is a multiple of 2 + i; the next episode begins with 0 and the mask of choice 0.

    tell: hand out the last masks
    """

    def __init__(self, tell: bool = True) -> None:
        self.metadata, self.num_envs = {"autoreset_mode": SAME}, 2
        self.single_observation_space = gym.spaces.Dict(place=gym.spaces.Discrete(99))
        self.single_action_space = gym.spaces.Discrete(3)
        self._k, self._tell = 0, tell

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict]:
        self._k = 0
        return {"place": np.zeros(2, np.int64)}, {"action_mask": np.eye(3)[[0, 0]]}

    def step(self, actions: np.ndarray) -> tuple[Any, Any, Any, Any, dict]:
        self._k += 1
        place, mask = 10 * self._k + np.arange(2), np.eye(3)[[self._k % 3] * 2]
        ended = self._k % np.array([2, 3]) == 0
        infos: dict[str, Any] = {"final_obs": {"place": place.copy()}}
        if self._tell:
            infos["final_info"] = {"action_mask": mask.copy()}
        place[ended], mask[ended] = 0, np.eye(3)[0]
        infos["action_mask"] = mask
        return {"place": place}, np.zeros(2), np.zeros(2, np.bool_), ended, infos


def choose(env: GymVectorEnv):
    return env.step({DEFAULT_BEHAVIOUR: np.eye(3, dtype=np.float32)[[0, 0]]})[DEFAULT_BEHAVIOUR]


def test_last_observations_and_masks_may_be_dicts_of_arrays():
    env = adapt(Atlas)
    assert begin(env).action_mask.argmax(1).tolist() == [0, 0]
    first, second, third = (choose(env) for _ in range(3))
    assert (first.obs["place"].tolist(), first.final) == ([10, 11], None)
    assert second.obs["place"].tolist() == [0, 21] and second.action_mask.argmax(1).tolist() == [0, 2]
    assert (second.final.obs["place"][0], second.final.action_mask[0].argmax()) == (20, 2)
    assert (third.final.obs["place"][1], third.final.action_mask[1].argmax()) == (31, 0)


class Wrong(DiaryVector):
    """Returns one thing in a wrong shape or undefined."""

    def __init__(self, what: str) -> None:
        super().__init__(2, mode=SAME)
        self._what = what

    def reset(self, **kwargs: Any) -> tuple[Any, dict]:
        obs, infos = super().reset(**kwargs)
        return (obs[0], infos) if self._what == "first" else (obs, infos)

    def step(self, actions: np.ndarray) -> tuple[Any, Any, Any, Any, dict]:
        names = ("observations", "rewards", "terminations", "truncations", "infos")
        found = dict(zip(names, super().step(actions), strict=True))
        if self._what in ("rewards", "truncations"):
            found[self._what] = found[self._what][0]
        found |= {
            "final_obs": {"infos": {"final_obs": np.zeros((2, 1))}},
            "undefined": {"terminations": np.array([0.0, np.nan])},
        }.get(self._what, {})
        return tuple(found.values())


class Loses(DiaryVector):
    """With same-step autoreset it keeps no last observation, or only those of some."""

    def __init__(self, keeps: list[bool] | None) -> None:
        super().__init__(3, mode=SAME)
        self._keeps = keeps

    def step(self, actions: np.ndarray) -> tuple[Any, Any, Any, Any, dict]:
        *found, infos = super().step(actions)
        infos = {} if self._keeps is None else {**infos, "_final_obs": np.array(self._keeps)}
        return (*found, infos)


@pytest.mark.parametrize("keeps", [None, [True, False, True]])
def test_a_lost_last_observation_is_the_one_before_it_and_unknown_where_the_episode_was_cut(keeps):
    told: list[Fault] = []
    env = GymVectorEnv(lambda: Loses(keeps), seed_of=diary_seed, name="Diary-v0", on_fault=told.append)
    whole = adapt(lambda: DiaryVector(3, mode=SAME))
    begin(whole)
    before, lost = begin(env).obs["obs"], 0
    for _ in range(12):
        result, truth = step(env), step(whole)
        for i in np.flatnonzero(result.terminated | result.truncated).tolist():
            kept = keeps is not None and keeps[i]
            lost += not kept
            assert np.array_equal(
                result.final.obs["obs"][i], truth.final.obs["obs"][i] if kept else before[i]
            )
            unknown = result.unknown is not None and bool(result.unknown[i])
            assert unknown == (not kept and not result.terminated[i])
        before = result.obs["obs"]
    assert lost > 1 and len(told) == 1


def made(vector: type, fails: str) -> GymVectorEnv:
    return adapt(lambda: vector([partial(Diary, i, fails=fails) for i in range(2)]))


@pytest.mark.filterwarnings("ignore:.*ERROR")  # gymnasium logs a worker's traceback as well
@pytest.mark.fault("F12")
@pytest.mark.fault("F14")
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: adapt(partial(Atlas, tell=False)), "without its last action mask"),
        (lambda: adapt(lambda: Wrong("first")), r"has shape \(4,\), its space has \(2, 4\)"),
        (lambda: adapt(lambda: Wrong("undefined")), "terminations are NaN"),
        (lambda: adapt(lambda: Wrong("final_obs")), r"final_obs.* of environment 0: observation 'obs' has"),
        (lambda: adapt(lambda: Wrong("rewards")), r"rewards have shape \(\) instead of \(2,\)"),
        (lambda: adapt(lambda: Wrong("truncations")), r"truncations have shape \(\)"),
        (lambda: adapt(lambda: DiaryVector(2, mode="NextStep")), "does not declare its autoreset mode"),
        (lambda: adapt(lambda: DiaryVector(2, colour="red")), "could not be made"),
        (
            lambda: made(SyncVectorEnv, "reset"),
            r"failed in reset(?s:.)*step 0(?s:.)*the pen is dry",
        ),
        (lambda: made(AsyncVectorEnv, "step"), r"failed in step(?s:.)*AsyncVectorEnv(?s:.)*the pen is dry"),
    ],
)
def test_a_class_that_breaks_its_contract_is_refused(make, message):
    with ExitStack() as stack, pytest.raises(EnvError, match=message):
        env = make()
        stack.callback(env.close)
        begin(env)
        action = env.specs[DEFAULT_BEHAVIOUR].action
        for _ in range(2):
            flat, *_ = action.random(np.random.default_rng(0), action.all_allowed(2))
            env.step({DEFAULT_BEHAVIOUR: flat})


def test_an_async_class_that_would_reset_twice_is_refused():
    """Gymnasium 1.4 does not clear its own flag there."""
    vector = AsyncVectorEnv([Diary], shared_memory=False)
    try:
        with pytest.raises(EnvError, match="shared_memory=True"):
            adapt(lambda: vector)
    finally:
        vector.close()
