"""Environments that stand where others stood: nobody can tell which of them never stopped."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from algorithm.core.data import State
from algorithm.core.errors import EnvError
from algorithm.core.seeding import episode_seeds
from algorithm.core.spec import DEFAULT_BEHAVIOUR
from algorithm.env.base import Fault, VecEnv
from algorithm.env.lanes.gym_vector import GymVectorEnv
from algorithm.env.registry import make_vec_env
from algorithm.env.request import EnvRequest
from tests.lib.agreement import stored
from tests.lib.toys_vector import DiaryVector, diary_seed

SEEDS = episode_seeds(5, "train")
DIARY = "tests.lib.toys_vector:Diary-v0"


def make(name: str, n: int = 5, workers: int = 0, seed_of: Any = SEEDS, **options: Any) -> VecEnv:
    own = {key: options.pop(key) for key in ("timeout", "restarts", "on_fault") if key in options}
    pool = dict(workers=workers, **own)
    return make_vec_env(EnvRequest("GYM", name, n=n, seed_of=seed_of, **pool, **options))


def bits(state: State) -> tuple[dict[str, tuple[str, Any, bytes]], Any]:
    return {k: (str(v.dtype), v.shape, v.tobytes()) for k, v in state.arrays.items()}, state.meta


class Driver:
    """Acts at random and asks for resets; what it does depends on the step and the masks only.

    resets: step -> environments that are reset after it
    """

    def __init__(self, env: VecEnv, resets: Mapping[int, list[int]] | None = None) -> None:
        self._env, self._resets = env, resets or {}
        first = env.reset(episode=0)[DEFAULT_BEHAVIOUR]
        self._mask, self._t = first.action_mask.copy(), 0

    def play(self, steps: int) -> list[tuple[bytes, ...]]:
        """All that means something in what comes back."""
        return [self._step() for _ in range(steps)]

    def follow(self, other: Driver) -> Mapping[int, str]:
        """Go on where the other one stands."""
        self._mask, self._t = other._mask, other._t
        return self._env.resume(stored(other._env.state()))

    def _step(self) -> tuple[bytes, ...]:
        spec = self._env.specs[DEFAULT_BEHAVIOUR].action
        action, *_ = spec.random(np.random.default_rng(self._t), self._mask)
        result = self._env.step({DEFAULT_BEHAVIOUR: action})[DEFAULT_BEHAVIOUR]
        self._mask = result.action_mask.copy()
        ended = result.terminated | result.truncated
        found: list[Any] = [result.ids, result.reward, result.terminated, result.truncated]
        found += [np.zeros(len(ended), np.bool_) if result.skipped is None else result.skipped]
        found += [*result.obs.values(), result.action_mask]
        if result.final:
            found += [value[ended] for value in result.final.obs.values()]
            found.append(result.final.action_mask[ended])
        if again := self._resets.get(self._t):
            first = self._env.reset(again)[DEFAULT_BEHAVIOUR]
            self._mask[again] = first.action_mask
            found += [first.ids, *first.obs.values()]
        self._t += 1
        return tuple(value.tobytes() for value in found)


def check_resumed(
    make_env: Callable[[int], VecEnv], before: int, after: int, resets: Any = None, workers: int = 0
) -> None:
    """What comes after ``before`` steps comes as well where those steps are only repeated."""
    with closing(make_env(0)) as one, closing(make_env(workers)) as other:
        first, second = Driver(one, resets), Driver(other, resets)
        first.play(before)
        assert second.follow(first) == {}
        assert bits(one.state()) == bits(other.state())
        assert second.play(after) == first.play(after)
        assert bits(one.state()) == bits(other.state())


LATE_MASK: list[Any] = [None, None, [1, 0, 1, 1, 1], None]
STACKED = [{"FrameStackObservation": {"stack_size": 4}}]
KINDS: dict[str, tuple[int, dict[str, Any]]] = {
    "dict, images, tuple of actions": (0, {"name": "tests.lib.toys:Nested-v0"}),
    "late masks in workers": (
        2,
        {"name": "tests.lib.toys:Grants-v0", "env_args": {"masks": LATE_MASK}},
    ),
    "stacks of frames": (0, {"name": "tests.lib.toys:Film-v0", "wrappers": STACKED}),
    "Pendulum": (0, {"name": "Pendulum-v1", "env_args": {"max_episode_steps": 7}}),
    "NaN": (
        0,
        {"name": "tests.env.pool.toys:Fickle-v0", "env_args": {"how": "nan"}, "seed_of": diary_seed},
    ),
    "Bullet in workers": (
        1,
        {
            "name": "pybullet_envs_gymnasium:HalfCheetahBulletEnv-v0",
            "env_args": {"max_episode_steps": 20},
        },
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_following_steps_are_those_of_a_pool_that_never_stopped(kind):
    """With resets of single environments, one of them just before the state is taken."""
    workers, options = KINDS[kind]
    check_resumed(
        lambda workers: make(workers=workers, **options), 23, 25, {4: [1, 3], 22: [0], 30: [2, 4]}, workers
    )


@settings(max_examples=20)
@given(
    before=st.integers(0, 30),
    resets=st.dictionaries(st.integers(0, 39), st.lists(st.integers(0, 2), min_size=1, unique=True)),
    fails=st.booleans(),
)
def test_any_history(before, resets, fails):
    """Episodes that end, are cut off or fail, in any order; failures go on to be counted."""
    faults: list[list[Fault]] = []

    def diaries(workers: int) -> VecEnv:
        faults.append([])
        args = {"fails": "sometimes" if fails else "", "reuse": True}
        options = {"restarts": 99, "on_fault": faults[-1].append, "seed_of": diary_seed}
        return make(DIARY, 3, env_args=args, **options)

    check_resumed(diaries, before, 10, resets)
    assert faults[1] == faults[0][len(faults[0]) - len(faults[1]) :]


def test_more_steps_than_are_sorted_at_a_time():
    check_resumed(lambda workers: make("tests.lib.toys:Endless-v0", 2), 1300, 3, {600: [1]})


@pytest.mark.fault("F12")
@pytest.mark.parametrize(("how", "before", "why"), [
    ("entropy", 12, "another observation"),
    ("zero", 5, "another observation"),
    ("reward", 5, "another observation, mask or return"),
    ("mask", 5, "another observation, mask or return"),
    ("end", 5, "it ended after 2 of 5 steps"),
    ("end", 2, "it ended after 2 of 2 steps"),
    ("fail", 5, "it failed while it was repeated"),
])  # fmt: skip
def test_an_episode_that_is_not_the_same_again_is_named_and_the_others_go_on(how, before, why):
    faults: list[Fault] = []
    options = {"env_args": {"how": how}, "seed_of": diary_seed, "on_fault": faults.append}
    with closing(make("tests.env.pool.toys:Fickle-v0", 3, **options)) as one:
        first = Driver(one)
        first.play(before)
        state = stored(one.state())
    with closing(make("tests.env.pool.toys:Fickle-v0", 3, **options)) as env:
        env.reset(episode=0)
        ((lost, reason),) = env.resume(state).items()
        assert lost == 1 and why in reason
        assert [fault.why for fault in faults] == ["RuntimeError: the second time is the worse"] * (
            how == "fail"
        )
        episode = env.state().arrays["episode"]
        assert episode.tolist() == state.arrays["episode"].tolist()
        assert env.reset([1])[DEFAULT_BEHAVIOUR].obs["obs"][0, 1] == 0
        assert env.state().arrays["episode"].tolist() == (episode + np.array([0, 1, 0])).tolist()
        rows = env.step({DEFAULT_BEHAVIOUR: np.eye(3, dtype=np.float32)})[DEFAULT_BEHAVIOUR].obs["obs"]
        assert rows[:, 1].tolist() == [before % 9 + 1, 1, before % 9 + 1]


@pytest.mark.fault("F13")
def test_a_worker_that_is_lost_while_it_repeats_costs_its_own_environments_only(tmp_path):
    faults: list[Fault] = []
    mark = tmp_path / "mark"
    mark.touch()  # while it is there, nothing happens

    def faulty(workers: int) -> VecEnv:
        args = {"fault": "die", "mark": str(mark)}
        return make("tests.lib.toys_faults:Faulty-v0", 4, workers, env_args=args, on_fault=faults.append)

    with closing(faulty(0)) as one, closing(faulty(2)) as other:
        first, second = Driver(one), Driver(other)
        first.play(4)
        mark.unlink()
        lost = second.follow(first)
        assert sorted(lost) in ([0, 1], [2, 3]) and set(lost.values()) == {"it failed while it was repeated"}
        assert "died in repeat" in faults[0].what
        assert f"environment {min(lost)}, episode 0" in faults[0].where
        again = other.reset(sorted(lost))[DEFAULT_BEHAVIOUR].obs["obs"]
        assert again.tolist() == [[SEEDS(i, 1) % 1000, 0] for i in sorted(lost)]
        action = {DEFAULT_BEHAVIOUR: np.zeros((4, 1), np.float32)}
        assert (
            sorted({*range(4)} - {*lost})
            == np.flatnonzero(other.step(action)[DEFAULT_BEHAVIOUR].terminated).tolist()
        )


@pytest.mark.fault("F12")
def test_failures_from_before_do_not_count():
    faults: list[Fault] = []

    def diaries() -> VecEnv:
        args = {"env_args": {"fails": "sometimes"}, "seed_of": diary_seed, "restarts": 2}
        return make(DIARY, 1, **args, on_fault=faults.append)

    with closing(diaries()) as one, closing(diaries()) as other:
        first, second = Driver(one), Driver(other)
        while len(faults) < 2:
            first.play(1)
        assert second.follow(first) == {}
        with pytest.raises(EnvError, match="failed in step"):
            second.play(30)
        assert len(faults) == 2 + 2


@pytest.mark.fault("F12")
def test_failures_of_the_reset_before_do_not_count_twice():
    """The environments begin at episode 0 before they are restored; it was counted the first time."""
    options = {"env_args": {"fails": "first"}, "seed_of": diary_seed, "on_fault": lambda fault: None}
    check_resumed(lambda workers: make(DIARY, 2, **options, restarts=5), before=4, after=20)


def vector(**options: Any) -> VecEnv:
    return GymVectorEnv(lambda: DiaryVector(3), seed_of=diary_seed, name="Diary-v0")


def counting(n: int) -> VecEnv:
    return make("tests.lib.toys:Counting-v0", n)


@pytest.mark.parametrize(("one", "other", "why"), [
    (lambda: counting(3), lambda: counting(2), "there were 3"),
    (lambda: counting(3), lambda: counting(4), "there were 3"),
    (lambda: counting(3), lambda: make("tests.lib.toys:Endless-v0", 3), "the spaces were others"),
    (vector, vector, "DiaryVector"),
    (vector, lambda: make(DIARY, 3, seed_of=diary_seed), "their actions were not kept"),
    (lambda: make(DIARY, 3, seed_of=diary_seed), vector, "DiaryVector"),
], ids=("fewer", "more", "other spaces", "a class", "from a class", "to a class"))  # fmt: skip
def test_environments_that_cannot_go_on_all_begin_anew(one, other, why):
    """The numbers of their episodes go on, those of new ones from where they are."""
    with closing(one()) as before, closing(other()) as after:
        first, second = Driver(before), Driver(after)
        first.play(20)
        lost = second.follow(first)
        numbers = before.state().arrays["episode"] + 1
        after.reset()
        found = after.state().arrays["episode"].tolist()
    assert [*lost] == [*range(len(found))] and all(why in reason for reason in lost.values())
    assert found == [*numbers.tolist(), 1][: len(found)]
