"""Copies of an environment that stand where others stood: nobody can tell which of them never stopped."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from hypothesis import given, settings
from hypothesis import strategies as st

from algorithm.core.data import State
from algorithm.core.errors import EnvError
from algorithm.core.seeding import episode_seeds
from algorithm.core.spec import DEFAULT_BEHAVIOUR
from algorithm.env.base import Fault, VecEnv
from algorithm.env.gym_vector import GymVectorEnv
from algorithm.env.registry import make_vec_env
from algorithm.env.request import PoolOptions
from tests.toys_vector import DiaryVector, diary_seed

SEEDS = episode_seeds(5, "train")


def make(name: str, n: int = 5, workers: int = 0, seed_of: Any = SEEDS, **options: Any) -> VecEnv:
    own = {key: options.pop(key) for key in ("timeout", "restarts", "on_fault") if key in options}
    pool = PoolOptions(workers=workers, **own)
    return make_vec_env("GYM", name, n=n, seed_of=seed_of, pool=pool, **options)


def stored(state: State) -> State:
    """The state as it comes back from the disk."""
    arrays = {name: np.frombuffer(v.tobytes(), v.dtype).reshape(v.shape) for name, v in state.arrays.items()}
    return State(arrays, json.loads(json.dumps(state.meta, allow_nan=False)))


def same(one: State, other: State) -> bool:
    def flat(state: State) -> dict[str, tuple]:
        return {name: (str(v.dtype), v.shape, v.tobytes()) for name, v in state.arrays.items()}

    return flat(one) == flat(other) and one.meta == other.meta


class Driver:
    """Acts at random and asks for resets; what it does depends on the step and the masks only.

    resets: step -> copies that are reset after it
    """

    def __init__(self, env: VecEnv, resets: Mapping[int, list[int]] | None = None) -> None:
        self._env, self._resets = env, resets or {}
        first = env.reset(episode=0)[DEFAULT_BEHAVIOUR]
        self._mask, self._t = first.action_mask.copy(), 0

    def play(self, steps: int) -> list[tuple]:
        """All that means something in what comes back."""
        return [self._step() for _ in range(steps)]

    def follow(self, other: Driver) -> Mapping[int, str]:
        """Go on where the other one stands."""
        self._mask, self._t = other._mask, other._t
        return self._env.resume(stored(other._env.state()))

    def _step(self) -> tuple:
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


def resumed(
    make_env: Callable[[int], VecEnv], before: int, after: int, resets: Any = None, workers: int = 0
) -> None:
    """What comes after ``before`` steps comes as well where those steps are only repeated."""
    with closing(make_env(0)) as one, closing(make_env(workers)) as other:
        first, second = Driver(one, resets), Driver(other, resets)
        first.play(before)
        assert second.follow(first) == {}
        assert same(one.state(), other.state())
        assert second.play(after) == first.play(after)
        assert same(one.state(), other.state())


KINDS: dict[str, dict[str, Any]] = {
    "terminations and truncations": {"name": "tests.toys_vector:Diary-v0", "seed_of": diary_seed},
    "dict, images, tuple of actions": {"name": "tests.toys:Nested-v0"},
    "masks in info, now and then": {"name": "tests.toys:Masked-v0", "env_args": {"actions": "nested"}},
    "masks that come late": {
        "name": "tests.toys:Grants-v0",
        "env_args": {"masks": [None, None, [1, 0, 1, 1, 1], None]},
    },
    "masks in obs": {"name": "tests.toys:Masked-v0", "env_args": {"where": "obs"}},
    "stacks of frames": {
        "name": "tests.toys:Film-v0",
        "wrappers": [{"FrameStackObservation": {"stack_size": 4}}],
    },
    "CartPole": {"name": "CartPole-v1", "wrappers": [{"TimeLimit": {"max_episode_steps": 30}}]},
    "Pendulum": {"name": "Pendulum-v1", "env_args": {"max_episode_steps": 7}},
    "memory": {"name": "algorithm.env.toys:ToyHallway-v0"},
    "nothing but NaN": {
        "name": "tests.toys_faults:Fickle-v0",
        "env_args": {"how": "nan"},
        "seed_of": diary_seed,
    },
}


@pytest.mark.parametrize(
    ("kind", "before"), [*((kind, 23) for kind in KINDS), ("CartPole", 0), ("CartPole", 1)]
)
def test_the_following_steps_are_those_of_a_pool_that_never_stopped(kind, before):
    """With resets of single environments, one of them just before the state is taken."""
    resets = {4: [1, 3], 22: [0], 30: [2, 4]}
    resumed(lambda workers: make(workers=workers, **KINDS[kind]), before, 25, resets)


@pytest.mark.parametrize("workers", [2])
def test_processes_repeat_the_episodes_of_their_copies(workers):
    """Their state is that of copies in this process: who runs them does not matter."""
    kind = KINDS["masks in info, now and then"]
    resumed(lambda workers: make(workers=workers, **kind), 23, 25, {22: [0]}, workers)


def test_a_bullet_simulation_goes_on_in_another_process():
    """It keeps much inside; and its very first episode is not quite like the same one later on."""
    args = {"name": "pybullet_envs_gymnasium:HalfCheetahBulletEnv-v0", "env_args": {"max_episode_steps": 40}}
    resumed(lambda workers: make(n=2, workers=workers, **args), 65, 30, {50: [1]}, workers=1)


@settings(max_examples=40)
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
        return make(
            "tests.toys_vector:Diary-v0",
            3,
            seed_of=diary_seed,
            env_args=args,
            restarts=99,
            on_fault=faults[-1].append,
        )

    resumed(diaries, before, 10, resets)
    assert faults[1] == faults[0][len(faults[0]) - len(faults[1]) :]


def test_more_steps_than_are_sorted_at_a_time():
    resumed(lambda workers: make("tests.toys:Endless-v0", 2), 1300, 3, {600: [1]})


def taken(how: str, before: int, workers: int = 0) -> tuple[State, VecEnv, list[Fault]]:
    """A state, and another pool that has resumed nothing yet."""
    faults: list[Fault] = []
    options = {"env_args": {"how": how}, "seed_of": diary_seed}
    with closing(make("tests.toys_faults:Fickle-v0", 3, **options)) as env:
        Driver(env).play(before)
        state = stored(env.state())
    other = make("tests.toys_faults:Fickle-v0", 3, workers, on_fault=faults.append, **options)
    other.reset(episode=0)
    return state, other, faults


@pytest.mark.parametrize(("how", "before", "why"), [
    ("entropy", 12, "another observation"),
    ("life", 12, "another observation"),
    ("zero", 5, "another observation"),
    ("reward", 5, "other rewards"),
    ("mask", 5, "another action mask"),
    ("end", 5, "it ended after 2 of 5 steps"),
    ("end", 2, "it ended after 2 of 2 steps"),
])  # fmt: skip
def test_an_episode_that_is_not_the_same_again_is_named_and_the_others_go_on(how, before, why):
    state, env, faults = taken(how, before)
    with closing(env):
        (copy, reason), *others = env.resume(state).items()
        assert copy == 1 and not others and not faults
        assert why in reason
        check_that_the_next_episode_begins(env, state, lost=[1], step=before % 9)


def check_that_the_next_episode_begins(env: VecEnv, state: State, lost: list[int], step: int) -> None:
    """Of the environments that the caller resets; that shows in their seeds."""
    episode = env.state().arrays["episode"]
    assert episode.tolist() == state.arrays["episode"].tolist()
    first = env.reset(lost)[DEFAULT_BEHAVIOUR]
    assert first.obs["obs"][:, 1].tolist() == [0.0] * len(lost)
    assert env.state().arrays["episode"][lost].tolist() == (episode[lost] + 1).tolist()
    rows = env.step({DEFAULT_BEHAVIOUR: np.eye(3, dtype=np.float32)})[DEFAULT_BEHAVIOUR].obs["obs"]
    assert rows[:, 1].tolist() == [1.0 if i in lost else step + 1.0 for i in range(3)]


@pytest.mark.fault("F12")
@pytest.mark.parametrize(("workers", "lost"), [(0, [1]), (2, [1])])
def test_a_copy_that_fails_while_it_is_repeated_is_a_failure_like_any_other(workers, lost):
    state, env, faults = taken("fail", 5, workers)
    with closing(env):
        assert env.resume(state) == dict.fromkeys(lost, "it failed while it was repeated")
        (fault,) = faults
        assert fault.what == "Fickle-v0 failed in step" and "the second time is the worse" in fault.why
        assert (
            f"environment 1, episode 0, seed {diary_seed(1, 0)}, step 2 of the episode, action ["
            in fault.where
        )
        check_that_the_next_episode_begins(env, state, lost, step=5)


@pytest.mark.fault("F13")
@pytest.mark.parametrize(("fault", "said"), [("die", "died in repeat"), ("hang", "hangs in repeat")])
def test_a_worker_that_is_lost_while_it_repeats_costs_its_own_copies_only(tmp_path, fault, said):
    faults: list[Fault] = []
    mark = tmp_path / "mark"
    mark.touch()  # while it is there, nothing happens

    def faulty(workers: int) -> VecEnv:
        args = {"fault": fault, "mark": str(mark)}
        options = {"env_args": args, "timeout": 1.0 if workers else -1, "on_fault": faults.append}
        return make("tests.toys_faults:Faulty-v0", 4, workers, **options)

    with closing(faulty(0)) as one, closing(faulty(2)) as other:
        first, second = Driver(one), Driver(other)
        first.play(4)
        mark.unlink()
        lost = second.follow(first)
        assert sorted(lost) in ([0, 1], [2, 3]) and set(lost.values()) == {"it failed while it was repeated"}
        assert said in faults[0].what
        assert (
            f"environment {min(lost)}, episode 0" in faults[0].where
            and "step 3 of the episode" in faults[0].where
        )
        again = other.reset(sorted(lost))[DEFAULT_BEHAVIOUR].obs["obs"]
        assert again.tolist() == [[SEEDS(i, 1) % 1000, 0] for i in sorted(lost)]
        kept = [i for i in range(4) if i not in lost]
        action = np.zeros((4, 1), np.float32)
        assert other.step({DEFAULT_BEHAVIOUR: action})[DEFAULT_BEHAVIOUR].terminated[kept].all()


@pytest.mark.fault("F12")
def test_failures_from_before_do_not_count():
    faults: list[Fault] = []

    def diaries() -> VecEnv:
        args = {"env_args": {"fails": "sometimes"}, "seed_of": diary_seed, "restarts": 2}
        return make("tests.toys_vector:Diary-v0", 1, **args, on_fault=faults.append)

    with closing(diaries()) as one, closing(diaries()) as other:
        first, second = Driver(one), Driver(other)
        while len(faults) < 2:
            first.play(1)
        assert second.follow(first) == {}
        with pytest.raises(EnvError, match="failed in step") as caught:
            second.play(30)
        assert "2 failures are survived" in caught.value.fix
        assert len(faults) == 2 + 2, "as it says"


@pytest.mark.fault("F12")
def test_failures_of_the_reset_before_do_not_count_twice():
    """The environments begin at episode 0 before they are restored; it was counted the first time."""
    options = {"env_args": {"fails": "first"}, "seed_of": diary_seed, "on_fault": lambda fault: None}
    resumed(lambda workers: make("tests.toys_vector:Diary-v0", 2, **options, restarts=5), before=4, after=20)


@pytest.mark.parametrize(("n", "name", "why"), [
    (2, "tests.toys:Counting-v0", "there were 3"),
    (4, "tests.toys:Counting-v0", "there were 3"),
    (3, "tests.toys:Endless-v0", "the spaces were others"),
])  # fmt: skip
def test_other_environments_all_begin_anew(n, name, why):
    """The numbers of their episodes go on, those of new ones from where they are."""
    with closing(make("tests.toys:Counting-v0", 3)) as one, closing(make(name, n)) as other:
        first = Driver(one)
        first.play(20)
        other.reset(episode=0)
        assert other.resume(stored(one.state())) == dict.fromkeys(range(n), why)
        before = one.state().arrays["episode"]
        other.reset()
        assert other.state().arrays["episode"][:3].tolist() == (before + 1)[:n].tolist()
        assert other.state().arrays["episode"][3:].tolist() == [1] * (n - 3)


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_a_vector_class_begins_the_next_episodes(mode):
    def diaries() -> VecEnv:
        return GymVectorEnv(lambda: DiaryVector(3, mode=mode), seed_of=diary_seed, name="Diary-v0")

    with closing(diaries()) as one, closing(diaries()) as other:
        first, second = Driver(one), Driver(other)
        first.play(7)
        lost = second.follow(first)
        assert sorted(lost) == [0, 1, 2] and "DiaryVector" in lost[0]
        before = one.state().arrays["episode"]
        assert before.min() > 0
        other.reset()
        assert other.state().arrays["episode"].tolist() == (before + 1).tolist()
        assert other.trace(0) is None and other.render() is None


def test_a_vector_class_and_copies_of_their_own_know_each_others_episodes_by_number():
    """Workers may be given to a run that had none."""
    vector = GymVectorEnv(lambda: DiaryVector(3), seed_of=diary_seed, name="Diary-v0")
    with closing(vector) as one, closing(make("tests.toys_vector:Diary-v0", 3, seed_of=diary_seed)) as other:
        for before, after in ((one, other), (other, one)):
            first, second = Driver(before), Driver(after)
            first.play(7)
            assert sorted(second.follow(first)) == [0, 1, 2]
            after.reset()
            expected = before.state().arrays["episode"] + 1
            assert after.state().arrays["episode"].tolist() == expected.tolist()
