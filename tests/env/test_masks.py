"""Action masks from observations and infos, in every form, and what is said of wrong ones."""

from __future__ import annotations

from contextlib import closing
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from algorithm.core.errors import EnvError
from algorithm.core.spec import DEFAULT_BEHAVIOUR
from algorithm.env.actions import Actions
from algorithm.env.adapter import Adapter
from algorithm.env.gym_vector import GymVectorEnv
from algorithm.env.masks import InInfo, InObservation, Masks
from algorithm.env.registry import make_vec_env
from algorithm.env.request import PoolOptions
from algorithm.env.single import SpaceMismatchError
from tests.env.strategies import spaces
from tests.env.test_actions import unique_names
from tests.oracles_env import plain_mask
from tests.toys_spaces import Grants, Masked, branch_sizes, structured

HYBRID = Dict(move=Discrete(3), keys=MultiDiscrete([2, 3]), force=Box(-2.0, 2.0, (2,)), bits=MultiBinary(1))


def masks(space: gym.Space, source: Any = None) -> Masks:
    return Masks(space, Actions(space, "x"), source or InInfo())


def read(space: gym.Space, given: Any, over: bool = False) -> Any:
    return masks(space).read(None, {"action_mask": given}, over=over)


@settings(max_examples=60)
@given(space=spaces(), seed=st.integers(0, 999))
def test_any_structure_equals_that_of_a_plain_walk(space, seed):
    assume(len(set(unique_names(space))) == len(unique_names(space)))
    rng = np.random.default_rng(seed)
    allowed = [rng.permutation(rng.integers(0, 2, n) | (np.arange(n) == 0)) for n in branch_sizes(space)]
    given = structured(space, iter([one.astype(np.int8) for one in allowed]))
    flat = [bool(one) for branch in allowed for one in branch]
    found = read(space, given)
    if found is None:  # a Box alone has the mask None
        assert not flat
        return
    assert found.dtype == np.bool_
    assert found.tolist() == plain_mask(space, given) == flat
    for form in (np.array(flat, np.int8), np.array(flat, np.bool_), np.array(flat, np.float64), flat):
        assert read(space, form).tolist() == flat


def test_a_mask_in_structure_by_hand():
    """move 0 1 1, keys 1 0 and 1 1 1 (left out), bits: 0 forced."""
    given = {"move": np.array([0, 1, 1], np.int8), "keys": ([1, 0], None), "bits": np.array([0], np.int8)}
    given["keys"] = (np.array([1, 0], np.int8), np.array([1, 1, 1], np.int8))
    assert read(HYBRID, given).astype(int).tolist() == [0, 1, 1, 1, 0, 1, 1, 1, 1, 0]
    given = {"force": None, "bits": np.array([2], np.int8)}
    assert read(HYBRID, given).all()
    assert read(Tuple([Discrete(2), Box(0, 1, (1,))]), (np.array([1, 0], np.int8), None)).tolist() == [
        True,
        False,
    ]


def test_without_a_mask_there_is_none():
    assert masks(HYBRID).read(None, {}, over=False) is None
    assert read(HYBRID, None) is None
    assert masks(HYBRID).read_batch(None, {}, np.zeros(2, np.bool_)) is None
    assert read(Box(0, 1, (1,)), None) is None


def test_a_mask_is_a_copy():
    given = np.ones(3, np.bool_)
    found = read(Discrete(3), given)
    given[:] = False
    assert found.all()


@pytest.mark.parametrize(("space", "given", "message"), [
    (Discrete(3), np.zeros(3), "action_mask leaves no choice in branch 0"),
    (HYBRID, {"keys": (np.ones(2), np.zeros(3))}, "leaves no choice in branch 2 (keys[1])"),
    (HYBRID, np.array([1, 1, 1, 0, 0, 1, 1, 1, 1, 1]), "leaves no choice in branch 1 (keys[0])"),
    (MultiDiscrete([2, 2]), np.array([1, 1, 0, 0]), "branch 1 (action[1])"),
    (Discrete(3), np.ones(4), "action_mask has shape (4,) for 3 choices"),
    (MultiDiscrete([2, 3]), np.ones(4), "action_mask has 4 entries for 5 choices"),
    (MultiDiscrete([2, 3]), np.array(1), "action_mask has 1 entries for 5 choices"),
    (MultiDiscrete([2, 3]), (np.ones(2),), "action_mask is not a tuple of 2 masks"),
    (MultiDiscrete([2, 3]), (np.ones(2), np.ones(2)), "action_mask[1] has shape (2,) for 3 choices"),
    (HYBRID, np.ones(9), "action_mask has 9 entries for 10 choices"),
    (HYBRID, np.ones((2, 5)), "action_mask is not a mapping: the action space has ['move',"),
    (HYBRID, {"mvoe": np.ones(3)}, "action_mask has unknown keys ['mvoe']"),
    (HYBRID, {"move": np.ones(4)}, "action_mask/move has shape (4,) for 3 choices"),
    (HYBRID, {"force": np.ones(2)}, "action_mask/force belongs to a Box"),
    (HYBRID, {"bits": np.array([3])}, "action_mask/bits is not an array of 0, 1 and 2"),
    (Tuple([Discrete(2), Discrete(2)]), (np.ones(2),), "action_mask is not a tuple of 2 parts"),
    (Tuple([Discrete(2), Discrete(2)]), {"0": np.ones(2)}, "is not a tuple of 2 parts"),
    (Discrete(2), np.array([0.0, -np.inf]), "action_mask holds other values than 0 and 1"),
    (Discrete(2), np.array([1, 2]), "holds other values than 0 and 1"),
    (Discrete(2), [[1], [1, 2]], "action_mask is not an array"),
    (Box(0, 1, (1,)), np.ones(3), "action_mask has 3 entries for 0 choices"),
])  # fmt: skip
def test_a_wrong_mask_names_the_branch_and_what_is_wrong(space, given, message):
    with pytest.raises(SpaceMismatchError) as caught:
        read(space, given)
    assert message in str(caught.value)


def test_where_the_task_has_ended_a_branch_without_a_choice_is_open():
    """Many environments allow nothing there. Nobody acts, but a policy is evaluated all the same."""
    given = np.array([0, 0, 0, 1, 0, 0, 0, 0, 1, 0])
    assert read(HYBRID, given, over=True).astype(int).tolist() == [1, 1, 1, 1, 0, 1, 1, 1, 1, 0]
    with pytest.raises(SpaceMismatchError, match=r"no choice in branch 0 \(move\)"):
        read(HYBRID, given)


BATCH = [[1, 0, 1], [0, 1, 1]]


@pytest.mark.parametrize(("source", "obs", "infos"), [
    (InInfo(), None, {"action_mask": np.array(BATCH, np.int8)}),
    (InInfo(), None, {"action_mask": [np.array(row) for row in BATCH]}),
    (InObservation(), {"action_mask": np.array(BATCH, np.int8)}, {"action_mask": np.zeros((2, 3))}),
])  # fmt: skip
def test_a_batch_in_each_form(source, obs, infos):
    found = masks(Discrete(3), source).read_batch(obs, infos, np.zeros(2, np.bool_))
    assert found.astype(int).tolist() == BATCH


def test_a_batch_of_structures_as_gymnasium_gathers_it():
    """Of the second copy nothing is known of the move, of the third one nothing at all."""
    infos: dict[str, Any] = {}
    vector = SyncVectorEnv([partial(Grants, [None])] * 3)
    vector._add_info(
        infos, {"action_mask": {"move": np.array([1, 0, 1]), "keys": (np.array([0, 1]), np.ones(3))}}, 0
    )
    vector._add_info(infos, {"action_mask": {"keys": (np.array([1, 0]), np.ones(3))}}, 1)
    vector._add_info(infos, {"other": 1}, 2)
    found = masks(HYBRID).read_batch(None, infos, np.zeros(3, np.bool_))
    assert found.astype(int).tolist() == [
        [1, 0, 1, 0, 1, 1, 1, 1, 1, 1],
        [1, 1, 1, 1, 0, 1, 1, 1, 1, 1],
        [1] * 10,
    ]


def test_an_observed_mask_is_no_observation():
    space = Dict(seat=Discrete(2), action_mask=Box(0, 1, (3,), np.int8), board=Box(0, 1, (9,), np.int8))
    adapter = Adapter(space, Discrete(3), "x")
    assert adapter.spec.obs.names == ("seat", "board")
    nested = Dict(deep=Dict(action_mask=MultiBinary(3)))
    assert Adapter(nested, Discrete(3), "x").spec.obs.names == ("deep/action_mask",)
    with pytest.raises(SpaceMismatchError, match="'action_mask' is missing"):
        adapter.masks.read({"seat": 1}, {}, over=False)


@pytest.mark.parametrize(("obs", "action", "message"), [
    (Dict(x=Discrete(2), action_mask=MultiBinary(3)), Box(0, 1, (3,)), "'action_mask' has nothing to mask"),
    (Dict(action_mask=MultiBinary(3)), Discrete(3), "is empty"),
])  # fmt: skip
def test_a_mask_for_nothing_is_refused(obs, action, message):
    with pytest.raises(EnvError, match=message) as caught:
        Adapter(obs, action, "Task-v0")
    assert "Task-v0" in str(caught.value)


FREE = [1, 1, 1, 1, 1]


def granted(masks: list[Any], *, n: int = 2, workers: int = 0):
    return make_vec_env(
        "GYM",
        "tests.toys:Grants-v0",
        env_args={"masks": masks},
        n=n,
        pool=PoolOptions(workers=workers),
        seed_of=lambda index, episode: 0,
    )


def act(env, n: int = 2):
    return env.step({DEFAULT_BEHAVIOUR: np.tile(np.array([1, 0, 0, 1, 0], np.float32), (n, 1))})[
        DEFAULT_BEHAVIOUR
    ]


@pytest.mark.parametrize("workers", [0, 1])
def test_masks_come_with_their_observations_and_end_with_their_steps(workers):
    """The third step has none; the last one's is that of the final observation, where the next has begun."""
    first, second, last = [1, 0, 0, 1, 1], [0, 1, 0, 1, 0], [0, 0, 1, 0, 1]
    with closing(granted([first, second, None, last], workers=workers)) as env:
        seen = env.reset()[DEFAULT_BEHAVIOUR]
        assert seen.action_mask.astype(int).tolist() == [first] * 2
        results = [act(env) for _ in range(3)]
        assert [r.action_mask[1].astype(int).tolist() for r in results] == [second, FREE, first]
        assert results[2].final.action_mask.astype(int).tolist() == [last] * 2
        assert env.reset([1])[DEFAULT_BEHAVIOUR].action_mask.astype(int).tolist() == [first]
        assert seen.action_mask.astype(int).tolist() == [first] * 2  # what was handed out is the caller's


def test_an_environment_that_never_masks_shares_one_mask_that_nobody_can_change():
    with closing(granted([None, None, None])) as env:
        env.reset()
        first, second = act(env), act(env)
        assert first.action_mask is second.action_mask is second.final.action_mask
        assert first.action_mask.shape == (2, 5) and first.action_mask.all()
        with pytest.raises(ValueError, match="read-only"):
            first.action_mask[0, 0] = False


@pytest.mark.parametrize(("masks", "workers"), [
    ([[1, 1, 1, 0, 0], None], 0),
    ([None, [1, 1, 1, 0, 0], None], 0),
    ([None, [1, 1, 1, 0, 0], None], 1),
])  # fmt: skip
def test_a_wrong_mask_ends_the_run_at_once(masks, workers):
    """A new copy would do the same, so no restart is tried."""
    with closing(granted(masks, workers=workers)) as env, pytest.raises(EnvError) as caught:
        env.reset()
        act(env)
    for fragment in (
        "Grants-v0 failed in",
        "no choice in branch 1 (jump)",
        "environment 0, episode 0",
        "fix the",
    ):
        assert fragment in str(caught.value)


def test_an_episode_cut_off_where_nothing_is_allowed_is_refused():
    """Its last state is bootstrapped from: what would the policy do there?"""
    with (
        closing(granted([None, [0, 0, 0, 1, 1]])) as env,
        pytest.raises(EnvError, match="failed in step") as caught,
    ):
        env.reset()
        act(env)
    assert "no choice in branch 0 (move)" in str(caught.value)


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_a_vector_class_names_copy_and_branch_too(mode):
    made = SyncVectorEnv([partial(Grants, [None, [1, 1, 1, 0, 0], None])] * 2, autoreset_mode=mode)
    env = GymVectorEnv(lambda: made, seed_of=lambda index, episode: 0, name="Grants-v0")
    env.reset()
    with pytest.raises(EnvError, match="Grants-v0 returned what its spaces do not allow") as caught:
        act(env)
    assert "environment 0: action_mask leaves no choice in branch 1 (jump)" in str(caught.value)


def test_a_copy_whose_reset_is_pending_may_still_show_that_nothing_is_allowed():
    """The task of environment 0 ends after two steps; 1, whose episodes have six, is reset from outside."""
    copies = [partial(Masked, where="obs")] * 2
    env = GymVectorEnv(lambda: SyncVectorEnv(copies), seed_of=lambda index, episode: 4 * index, name="x")
    rng, action = np.random.default_rng(0), env.specs[DEFAULT_BEHAVIOUR].action
    seen = env.reset()[DEFAULT_BEHAVIOUR]
    for _ in range(2):
        flat, *_ = action.random(rng, seen.action_mask)
        seen = env.step({DEFAULT_BEHAVIOUR: flat})[DEFAULT_BEHAVIOUR]
    assert seen.terminated.tolist() == [True, False]
    again = env.reset([1])[DEFAULT_BEHAVIOUR]
    assert again.obs["state"].tolist() == [[4, 0]]
