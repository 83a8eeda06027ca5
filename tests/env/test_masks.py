"""Action masks from observations and infos, in every form, and what is said of wrong ones."""

from contextlib import closing
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from algorithm.core.errors import EnvError
from algorithm.core.spec import DEFAULT_BEHAVIOUR
from algorithm.env.actions import Actions
from algorithm.env.adapter import Adapter
from algorithm.env.lanes.gym_vector import GymVectorEnv
from algorithm.env.masks import Masks
from algorithm.env.objects import source_of
from algorithm.env.outputs import SpaceMismatchError
from algorithm.env.registry import make_vec_env
from algorithm.env.request import EnvRequest
from tests.lib.toys_spaces import Grants

HYBRID = Dict(move=Discrete(3), keys=MultiDiscrete([2, 3]), force=Box(-2.0, 2.0, (2,)), bits=MultiBinary(1))


def masks(space: gym.Space, *, observed: bool = False) -> Masks:
    return Masks(Actions(space, "x"), observed=observed)


def read(space: gym.Space, given: Any, over: bool = False) -> Any:
    return masks(space).read(None, {"action_mask": given}, over=over)


def test_an_entry_for_each_choice_of_all_branches():
    flat = [0, 1, 1, 1, 1, 1, 1, 1, 1, 0]
    for form in (flat, np.array(flat, np.int8), np.array(flat, np.bool_), np.array(flat, np.float64)):
        assert read(HYBRID, form).tolist() == list(map(bool, flat))


def test_a_missing_mask_allows_everything():
    assert read(Discrete(3), None) is None
    assert masks(HYBRID).read(None, {}, over=False) is None
    assert masks(HYBRID).read_batch(None, {}, np.zeros(2, np.bool_)) is None


@pytest.mark.parametrize(("space", "given", "message"), [
    (Discrete(3), np.zeros(3), "action_mask leaves no choice in branch 0"),
    (HYBRID, np.array([1, 1, 1, 0, 0, 1, 1, 1, 1, 1]), "leaves no choice in branch 1"),
    (MultiDiscrete([2, 2]), np.array([1, 1, 0, 0]), "branch 1"),
    (Discrete(3), np.ones(4), "action_mask has shape (4,) for 3 choices"),
    (MultiDiscrete([2, 2]), (np.ones(2), np.ones(2)), "action_mask has shape (2, 2) for 4 choices"),
    (MultiDiscrete([2, 3]), (np.ones(2), np.ones(3)), "action_mask is not an array, one entry for each"),
    (HYBRID, {"move": np.ones(3)}, "action_mask has shape () for 10 choices"),
    (Discrete(2), np.array([0.0, -np.inf]), "action_mask holds other values than 0 and 1"),
    (Box(0, 1, (1,)), np.ones(3), "action_mask has shape (3,) for 0 choices"),
])  # fmt: skip
def test_a_wrong_mask_names_the_branch_and_what_is_wrong(space, given, message):
    with pytest.raises(SpaceMismatchError) as caught:
        read(space, given)
    assert message in str(caught.value)


def test_where_the_task_has_ended_a_branch_without_a_choice_is_open():
    """Many environments allow nothing there. Nobody acts, but a policy is evaluated all the same."""
    given = np.array([0, 0, 0, 1, 0, 0, 0, 0, 1, 0])
    assert read(HYBRID, given, over=True).astype(int).tolist() == [1, 1, 1, 1, 0, 1, 1, 1, 1, 0]


BATCH = [[1, 0, 1], [0, 1, 1]]


@pytest.mark.parametrize(("observed", "obs", "infos"), [
    (False, None, {"action_mask": np.array(BATCH, np.int8)}),
    (False, None, {"action_mask": [np.array(row) for row in BATCH]}),
    (True, {"action_mask": np.array(BATCH, np.int8)}, {"action_mask": np.zeros((2, 3))}),
])  # fmt: skip
def test_a_batch_in_each_form(observed, obs, infos):
    found = masks(Discrete(3), observed=observed).read_batch(obs, infos, np.zeros(2, np.bool_))
    assert found.astype(int).tolist() == BATCH


def test_an_observed_mask_is_no_observation():
    space = Dict(seat=Discrete(2), action_mask=Box(0, 1, (3,), np.int8), board=Box(0, 1, (9,), np.int8))
    adapter = Adapter(space, Discrete(3), "x")
    assert adapter.spec.obs.names == ("seat", "board")
    nested = Dict(deep=Dict(action_mask=MultiBinary(3)))
    assert Adapter(nested, Discrete(3), "x").spec.obs.names == ("deep/action_mask",)
    with pytest.raises(SpaceMismatchError, match="'action_mask' is missing"):
        adapter.masks.read({"seat": 1}, {}, over=False)
    with pytest.raises(EnvError, match="'action_mask' has nothing to mask"):
        Adapter(space, Box(0, 1, (3,)), "Task-v0")


def act(env: Any) -> Any:
    return env.step({DEFAULT_BEHAVIOUR: np.array([[1, 0, 0, 1, 0]] * 2, np.float32)})[DEFAULT_BEHAVIOUR]


def granted(masks: list[Any], workers: int = 0) -> Any:
    args, pool = {"masks": masks}, {"workers": workers}
    seed_of = lambda index, episode: 0  # noqa: E731
    return make_vec_env(
        EnvRequest("GYM", "tests.lib.toys:Grants-v0", env_args=args, n=2, seed_of=seed_of, **pool)
    )


def vector(masks: list[Any]) -> Any:
    made = SyncVectorEnv([partial(Grants, masks)] * 2)
    return GymVectorEnv(lambda: made, seed_of=lambda index, episode: 0, name="Grants-v0")


@pytest.mark.parametrize("workers", [0, 1])
def test_masks_come_with_their_observations_and_end_with_their_steps(workers):
    """The third step has none; the last one's is that of the final observation, where the next has begun."""
    first, second, last = [1, 0, 0, 1, 1], [0, 1, 0, 1, 0], [0, 0, 1, 0, 1]
    with closing(granted([first, second, None, last], workers)) as env:
        seen = env.reset()[DEFAULT_BEHAVIOUR]
        results = [act(env) for _ in range(3)]
        found = [seen.action_mask, *(result.action_mask for result in results), results[2].final.action_mask]
        assert [mask[1].astype(int).tolist() for mask in found] == [first, second, [1] * 5, first, last]
        assert env.reset([1])[DEFAULT_BEHAVIOUR].action_mask.astype(int).tolist() == [first]


@pytest.mark.parametrize(("make", "masks", "said"), [
    (granted, [[1, 1, 1, 0, 0], None], "no choice in branch 1"),
    (granted, [None, [0, 0, 0, 1, 1]], "no choice in branch 0"),  # cut off: it is bootstrapped from
    (vector, [None, [1, 1, 1, 0, 0], None], "environment 0: action_mask leaves no choice in branch 1"),
])  # fmt: skip
def test_a_wrong_mask_ends_the_run_at_once(make, masks, said):
    with closing(make(masks)) as env, pytest.raises(EnvError) as caught:
        env.reset()
        act(env)
    assert said in str(caught.value)


class Over(gym.Env):
    """Ends after ``seed`` steps, terminated; then nothing is allowed."""

    observation_space = Dict(step=Discrete(9), action_mask=MultiBinary(2))
    action_space = Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self._left, self._step = seed, 0
        return self._seen(), {}

    def step(self, action: Any) -> Any:
        self._step += 1
        return self._seen(), 0.0, self._step == self._left, False, {}

    def _seen(self) -> dict[str, Any]:
        return {"step": self._step, "action_mask": np.full(2, self._step != self._left, np.int8)}


def test_a_copy_whose_reset_is_pending_may_still_show_that_nothing_is_allowed():
    """The task of environment 0 ends after two steps; 1, whose episodes have six, is reset from outside."""
    made, flat = SyncVectorEnv([Over] * 2), np.array([[1, 0]] * 2, np.float32)
    env = GymVectorEnv(lambda: made, seed_of=lambda index, episode: 2 + 4 * index, name="x")
    env.reset()
    for _ in range(2):
        seen = env.step({DEFAULT_BEHAVIOUR: flat})[DEFAULT_BEHAVIOUR]
    assert seen.terminated.tolist() == [True, False]
    assert env.reset([1])[DEFAULT_BEHAVIOUR].obs["step"].tolist() == [0]


def test_the_others_keep_their_masks_where_one_is_reset():
    """The infos of a reset do not contain them; the episode of environment 0 ends with its second step."""
    first, second, third = [1, 0, 0, 1, 1], [0, 1, 0, 1, 0], [0, 0, 1, 0, 1]
    one, other = partial(Grants, [first, second, second]), partial(Grants, [first, second, third, first])
    made = SyncVectorEnv([one, other], autoreset_mode=AutoresetMode.DISABLED)
    env = GymVectorEnv(lambda: made, seed_of=lambda index, episode: 0, name="Grants-v0")
    env.reset()
    act(env)
    assert act(env).action_mask.astype(int).tolist() == [first, third]


class Asked(gym.Env):
    """One choice of three is allowed, another one in each step, as only a method says. It ends by itself."""

    observation_space, action_space = Discrete(9), Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self._step = 0
        return 0, {}

    def step(self, action: Any) -> Any:
        assert self.action_masks()[action], "it is forbidden"
        self._step += 1
        return self._step, 0.0, self._step == 4, False, {}

    def action_masks(self) -> Any:
        assert self._step < 4, "nothing acts any more"
        return np.arange(3) == self._step % 3


@pytest.mark.parametrize("wrappers", [[], [{"TimeLimit": {"max_episode_steps": 9}}]])
def test_a_method_says_what_is_allowed(wrappers):
    options = {"seed_of": lambda index, episode: 0, "wrappers": wrappers}
    with closing(make_vec_env(EnvRequest("OBJECT", source_of(Asked), **options))) as env:
        mask = env.reset()[DEFAULT_BEHAVIOUR].action_mask
        for step in range(9):
            assert mask.tolist() == [[place == step % 4 % 3 for place in range(3)]]
            mask = env.step({DEFAULT_BEHAVIOUR: mask.astype(np.float32)})[DEFAULT_BEHAVIOUR].action_mask


@pytest.mark.parametrize("kind", [SyncVectorEnv, AsyncVectorEnv])
def test_a_method_that_a_vector_class_does_not_call_is_refused(kind):
    lanes = kind([Asked] * 2)
    env = make_vec_env(EnvRequest("OBJECT", source_of(lanes), n=2, seed_of=lambda *_: 0))
    with closing(lanes), pytest.raises(EnvError, match="action_masks"):
        env.reset()
