"""An environment's own vector class: what is handed out in each autoreset mode, and what is refused."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

from algorithm.core.errors import EnvError
from algorithm.core.spec import DEFAULT_BEHAVIOUR
from algorithm.env.gym_vector import GymVectorEnv
from tests.toys_vector import Diary, DiaryVector, diary_seed

NEXT, SAME, OFF = AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED


def own(n: int = 3, *, options: dict[str, Any] | None = None, **args: Any) -> GymVectorEnv:
    return adapt(lambda: DiaryVector(n, **args), options)


def sync(mode: AutoresetMode, n: int = 3, options: dict[str, Any] | None = None, **args: Any) -> GymVectorEnv:
    copies = [partial(Diary, i, **args) for i in range(n)]
    return adapt(lambda: SyncVectorEnv(copies, copy=False, autoreset_mode=mode), options)


def adapt(make: Any, options: dict[str, Any] | None = None) -> GymVectorEnv:
    return GymVectorEnv(make, seed_of=diary_seed, options=options, name="Diary-v0")


def begin(env: GymVectorEnv, *args: Any, **kwargs: Any):
    return env.reset(*args, **kwargs)[DEFAULT_BEHAVIOUR]


def step(env: GymVectorEnv, n: int = 3, u: float = 0.0):
    """Both actions are 1 + 3u; u = 0 moves the position by 1 and leaves episodes to their length."""
    return env.step({DEFAULT_BEHAVIOUR: np.full((n, 2), u, np.float32)})[DEFAULT_BEHAVIOUR]


def rows(seen) -> list[list[float]]:
    return seen.obs["obs"].astype(int).tolist()


@pytest.mark.parametrize("make", [own, sync])
def test_next_step_autoreset_skips_the_step_that_resets(make):
    """Environment 0 has episodes of 1 and 6 steps, environment 1 of 4, environment 2 of 1 and 6."""
    env = make(mode=NEXT)
    assert rows(begin(env)) == [[0, 0, 0, 0], [1, 0, 0, 0], [2, 0, 0, 0]]
    first = step(env)
    assert first.truncated.tolist() == [True, False, True]
    assert first.skipped is None
    assert rows(first.final) == [[0, 0, 1, 1], [1, 0, 1, 1], [2, 0, 1, 1]]
    second = step(env)
    assert second.skipped.tolist() == [True, False, True]
    assert rows(second) == [[0, 1, 0, 0], [1, 0, 2, 2], [2, 1, 0, 0]]
    assert second.reward.tolist() == [0.0, 3.0, 0.0]
    assert not (second.terminated | second.truncated).any()
    assert second.final is None
    third = step(env)
    assert third.skipped is None
    assert rows(third) == [[0, 1, 1, 1], [1, 0, 3, 3], [2, 1, 1, 1]]


@pytest.mark.parametrize("make", [own, sync])
@pytest.mark.parametrize("mode", [SAME, OFF])
def test_the_other_modes_hand_out_both_observations_of_an_end(make, mode):
    env = make(mode=mode)
    begin(env)
    first = step(env)
    assert first.truncated.tolist() == [True, False, True]
    assert rows(first.final) == [[0, 0, 1, 1], [1, 0, 1, 1], [2, 0, 1, 1]]
    assert rows(first) == [[0, 1, 0, 0], [1, 0, 1, 1], [2, 1, 0, 0]]
    assert first.reward.tolist() == [2.0, 2.0, 2.0]
    second = step(env)
    assert second.skipped is first.skipped is None
    assert second.final is None
    assert rows(second) == [[0, 1, 1, 1], [1, 0, 2, 2], [2, 1, 1, 1]]


@pytest.mark.parametrize("make", [own, sync])
@pytest.mark.parametrize("mode", [NEXT, SAME, OFF])
def test_some_copies_can_be_reset_alone(make, mode):
    env = make(mode=mode)
    begin(env)
    step(env)
    assert rows(step(env))[1] == [1, 0, 2, 2]
    again = begin(env, [2, 0])
    assert again.ids.tolist() == [2, 0]
    assert [(copy, at) for copy, _, at, _ in rows(again)] == [(2, 0), (0, 0)]
    after = rows(step(env))
    assert after[1] == [1, 0, 3, 3]
    assert [at for _, _, at, _ in after] == [1, 3, 1]


@pytest.mark.parametrize("make", [own, sync])
def test_a_reset_from_outside_takes_the_place_of_the_pending_one(make):
    env = make(mode=NEXT)
    begin(env)
    assert step(env).truncated.tolist() == [True, False, True]
    assert rows(begin(env, [0])) == [[0, 1, 0, 0]]
    result = step(env)
    assert result.skipped.tolist() == [False, False, True]
    assert rows(result)[0] == [0, 1, 1, 1]
    assert step(env).skipped is None


@pytest.mark.parametrize("mode", [NEXT, SAME, OFF])
def test_gymnasiums_own_classes_take_the_seed_of_every_episode_that_is_reset_here(mode):
    env = sync(mode, n=4)
    assert [row[:2] for row in rows(begin(env, episode=5))] == [[i, 5] for i in range(4)]
    assert rows(begin(env, [3, 1], episode=8)) == [[3, 8, 0, 0], [1, 8, 0, 0]]
    assert rows(begin(env, [1])) == [[1, 9, 0, 0]]


def test_without_autoreset_every_episode_has_the_seed_of_its_number():
    numbers = []
    made = SyncVectorEnv([partial(Diary, i) for i in range(2)], autoreset_mode=OFF)
    env = GymVectorEnv(
        lambda: made, seed_of=lambda i, e: numbers.append((i, e)) or diary_seed(i, 10 * e), name="Diary-v0"
    )
    begin(env)
    seen = {tuple(row[:2]) for _ in range(20) for row in rows(step(env, 2))}
    assert {copy for copy, _ in seen} == {0, 1}
    assert seen <= {(i, 10 * e) for i, e in numbers}
    assert sorted(numbers) == sorted({*numbers})  # each episode is seeded once
    assert [e for i, e in numbers if i == 0] == list(range(len([e for i, e in numbers if i == 0])))


def test_another_class_takes_one_seed_for_all():
    made = DiaryVector(3, mode=OFF)
    env = adapt(lambda: made)
    begin(env, episode=4)
    begin(env, [2, 0])
    assert [seed for seed, _ in made.calls] == [diary_seed(0, 4), diary_seed(2, 5)]
    assert made.calls[0][1] == {}
    assert made.calls[1][1]["reset_mask"].tolist() == [True, False, True]


@pytest.mark.parametrize("mode", [NEXT, SAME, OFF])
def test_options_go_with_every_reset_and_stay_as_they_were(mode):
    options = {"mass": 2.0}
    made = SyncVectorEnv([partial(Diary, i) for i in range(2)], autoreset_mode=mode)
    env = adapt(lambda: made, options)
    begin(env)
    begin(env, [1])
    assert [diary.options for diary in made.envs] == [{"mass": 2.0}] * 2
    assert options == {"mass": 2.0}


@pytest.mark.parametrize("mode", [NEXT, SAME, OFF])
def test_what_was_handed_out_does_not_change(mode):
    """The class writes into the same arrays at every step."""
    env = own(mode=mode)
    handed = [begin(env)]
    for _ in range(12):
        handed.append(step(env))
        then = [(rows(r), rows(r.final) if getattr(r, "final", None) else None) for r in handed]
    now = [(rows(r), rows(r.final) if getattr(r, "final", None) else None) for r in handed]
    assert now == then
    assert len({str(r) for r in now}) > 5
    assert all(r.obs["obs"].dtype == np.float32 for r in handed)
    assert [r.reward[1] for r in handed[1:5]] == [2.0, 3.0, 4.0, 5.0]


@pytest.mark.parametrize("mode", [NEXT, SAME])
def test_a_class_that_resets_too_much_is_refused(mode):
    env = own(mode=mode, masks=False)
    begin(env)
    step(env)
    begin(env)  # all of them is no trouble
    step(env)
    with pytest.raises(EnvError, match="not asked to reset") as caught:
        env.reset([0])
    for fragment in ("DiaryVector", "reset_mask", "max_step_each_iter to -1"):
        assert fragment in str(caught.value)


def test_a_class_without_autoreset_that_resets_too_much_is_refused_at_the_first_end():
    env = own(mode=OFF, masks=False)
    begin(env)
    with pytest.raises(EnvError, match="workers to 1"):
        step(env)


@pytest.mark.parametrize(("mode", "shown"), [
    (NEXT, "3 in DiaryVector (next-step autoreset)"),
    (SAME, "3 in DiaryVector (same-step autoreset)"),
    (OFF, "3 in DiaryVector (reset by us)"),
])  # fmt: skip
def test_the_arrangement_names_number_class_and_mode(mode, shown):
    assert own(mode=mode).arrangement == shown


@pytest.mark.parametrize(("args", "limit"), [({}, 50), ({"max_episode_steps": 7}, 7)])
def test_the_time_limit_is_that_of_the_registry_or_of_env_args(args, limit):
    make = partial(gym.make_vec, "DiaryVector-v0", 2, vectorization_mode="vector_entry_point", **args)
    assert adapt(make).time_limit == limit
    assert own().time_limit is None


@pytest.mark.parametrize("mode", [None, "NextStep"])
def test_a_class_that_does_not_say_when_it_resets_is_refused(mode):
    with pytest.raises(EnvError, match="does not declare its autoreset mode") as caught:
        own(mode=mode)
    assert "autoreset_mode" in str(caught.value)


class Spoken(DiaryVector):
    """Hands out a text."""

    def __init__(self) -> None:
        super().__init__(2)
        self.single_observation_space = gym.spaces.Dict(word=gym.spaces.Text(5))


def test_the_vector_class_of_cart_pole_brings_what_single_cart_poles_bring():
    """From the same states, which the class draws in its own way, the same step; in its float32."""
    make = partial(gym.make_vec, "CartPole-v1", 3, vectorization_mode="vector_entry_point")
    env = GymVectorEnv(make, seed_of=diary_seed, name="CartPole-v1")
    assert env.arrangement == "3 in CartPoleVectorEnv (next-step autoreset)"
    assert env.specs[DEFAULT_BEHAVIOUR].action.branches == (2,)
    first = begin(env).obs["obs"]
    after = env.step({DEFAULT_BEHAVIOUR: np.eye(2, dtype=np.float32)[[0, 1, 0]]})[DEFAULT_BEHAVIOUR]
    plain = gym.make("CartPole-v1").unwrapped
    plain.reset(seed=0)
    for copy, choice in enumerate((0, 1, 0)):
        plain.state = tuple(first[copy].astype(np.float64))
        assert after.obs["obs"][copy] == pytest.approx(plain.step(choice)[0], abs=1e-5)
    env.close()


class Atlas(VectorEnv):
    """Observes a Dict; with same-step autoreset it hands out the last observations as one Dict of arrays.

    Copy i ends its k-th step with an observation of 10 k + i and the mask of choice k mod 3, truncated where
    k is a multiple of 2 + i; the next episode begins with 0 and the mask of choice 0.

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
    assert second.truncated.tolist() == [True, False]
    assert second.obs["place"].tolist() == [0, 21]
    assert second.action_mask.argmax(1).tolist() == [0, 2]
    assert (second.final.obs["place"][0], second.final.action_mask[0].argmax()) == (20, 2)
    assert third.obs["place"].tolist() == [30, 0]
    assert (third.final.obs["place"][1], third.final.action_mask[1].argmax()) == (31, 0)
    assert third.final.obs["place"].dtype == np.uint8


def test_an_episode_cut_off_without_its_last_mask_is_refused():
    env = adapt(partial(Atlas, tell=False))
    begin(env)
    choose(env)
    with pytest.raises(EnvError, match="without its last action mask") as caught:
        choose(env)
    assert 'infos["final_info"]' in str(caught.value)


def test_an_async_class_that_would_reset_twice_is_refused():
    """Gymnasium 1.4 does not clear its own flag there."""
    made = AsyncVectorEnv([Diary], shared_memory=False)
    try:
        with pytest.raises(EnvError, match="shared_memory=True"):
            adapt(lambda: made)
    finally:
        made.close()


@pytest.mark.filterwarnings("ignore:.*ERROR")  # gymnasium logs a worker's traceback as well
@pytest.mark.fault("F12")
@pytest.mark.parametrize("call", ["reset", "step"])
@pytest.mark.parametrize("vector", [SyncVectorEnv, AsyncVectorEnv])
def test_failures_name_the_class_the_step_and_the_cause(call, vector):
    env = adapt(lambda: vector([partial(Diary, i, fails=call) for i in range(2)]))
    try:
        with pytest.raises(EnvError) as caught:
            begin(env)
            step(env, 2)
        fragments = (f"Diary-v0 failed in {call}", vector.__name__, "index unknown", "step 0", "RuntimeError",
                     "the pen is dry")  # fmt: skip
        assert all(fragment in str(caught.value) for fragment in fragments), str(caught.value)
        assert caught.value.exit_code == 4
    finally:
        env.close()


class Wrong(DiaryVector):
    """Returns one thing in a wrong shape or undefined, or ends an episode without its last observation."""

    def __init__(self, what: str) -> None:
        super().__init__(2, mode=SAME)
        self._what = what

    def reset(self, **kwargs: Any) -> tuple[Any, dict]:
        obs, infos = super().reset(**kwargs)
        return (obs[0], infos) if self._what == "first" else (obs, infos)

    def step(self, actions: np.ndarray) -> tuple[Any, Any, Any, Any, dict]:
        names = ("observations", "rewards", "terminations", "truncations", "infos")
        found = dict(zip(names, super().step(actions), strict=True))
        if self._what == "missing":
            found["infos"] = {}
        elif self._what == "masked":
            found["infos"]["_final_obs"] = np.zeros(2, np.bool_)
        elif self._what == "final_obs":
            found["infos"]["final_obs"] = np.zeros((2, 1))
        elif self._what == "undefined":
            found["terminations"] = np.array([0.0, np.nan])
        elif self._what in names:
            found[self._what] = found[self._what][0]
        return tuple(found.values())


@pytest.mark.fault("F14")
@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("missing", "without its last observation"),
        ("masked", "without its last observation"),
        ("first", r"observation 'obs' has shape \(4,\), its space says \(2, 4\)"),
        ("observations", "observation 'obs' has shape"),
        ("undefined", "terminations are NaN, neither true nor false"),
        ("final_obs", r"final_obs.* of environment 0: observation 'obs' has shape \(1,\), its space says"),
        *((what, rf"{what} have shape \(\) instead of \(2,\)")
          for what in ("rewards", "terminations", "truncations")),
    ],
)  # fmt: skip
def test_a_class_that_breaks_its_contract_is_refused(what, message):
    env = adapt(lambda: Wrong(what))
    with pytest.raises(EnvError, match=message) as caught:
        begin(env)
        step(env, 2)
    assert "Wrong of 2 environments" in str(caught.value)


@pytest.mark.fault("F12")
def test_what_cannot_be_made_says_what_to_check():
    make = partial(gym.make_vec, "DiaryVector-v0", 2, vectorization_mode="vector_entry_point", colour="red")
    with pytest.raises(EnvError, match="could not be made") as caught:
        adapt(make)
    assert all(fragment in str(caught.value) for fragment in ("Diary-v0", "colour", "env_args"))
