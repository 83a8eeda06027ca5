"""Data sets of Minari: episodes come back to the last bit, and what does not fit is refused in words."""

# ruff: noqa: E501 - a table of faults is read across, one fault a line
from __future__ import annotations

import shutil
import sys
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, Text
from hypothesis import given
from hypothesis import strategies as st

from algorithm.core.data import Demonstrations
from algorithm.core.errors import UsageError
from algorithm.core.spec import DEFAULT_BEHAVIOUR
from algorithm.demos.sources import load_demonstrations
from algorithm.demos.spaces import in_space
from algorithm.env.actions import Actions
from algorithm.env.executed import flat_actions
from algorithm.env.observations import Observations
from algorithm.extras.minari.reading import read_minari
from algorithm.keys.demonstrations import DemoConfig
from tests.lib.episodes import record
from tests.lib.strategies import spaces

ID = "own/data-v0"


@pytest.fixture
def minari(tmp_path, monkeypatch):
    """The library, with a folder of its own for data sets."""
    library = pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "sets"))
    return library


def load(folder, spec, path=f"minari:{ID}", **keys) -> Demonstrations:
    found = load_demonstrations(DemoConfig(path=path, **keys), spec, DEFAULT_BEHAVIOUR, folder)
    assert found is not None
    return found


def refusal(folder, spec, path=f"minari:{ID}", **keys) -> str:
    with pytest.raises(UsageError) as error:
        load(folder, spec, path, **keys)
    return str(error.value)


@given(space=spaces(), n=st.integers(1, 4), seed=st.integers(0, 99))
def test_spaces_are_gone_through_in_both_directions(space, n, seed):
    """The inverses undo what an environment's adapter does, whatever the space."""
    space.seed(seed)
    samples = [space.sample() for _ in range(n)]
    obs = Observations(space, "x")
    again = obs.read_batch(in_space(space, obs.read_each(samples)), n)
    for name, value in obs.read_each(samples).items():
        np.testing.assert_array_equal(again[name], value)
    actions = Actions(space, "x")
    flat, _, _ = actions.spec.random(np.random.default_rng(seed), actions.spec.all_allowed(n))
    done = actions.to_env(flat)
    found = flat_actions(space, done, n)
    assert (
        found.dtype == np.float32
        and (found[:, : actions.spec.discrete] == flat[:, : actions.spec.discrete]).all()
    )
    _assert_equal(actions.to_env(found), done)


def _assert_equal(a, b):
    if isinstance(a, dict | tuple):
        for key in a if isinstance(a, dict) else range(len(a)):
            _assert_equal(a[key], b[key])
    else:
        np.testing.assert_allclose(a, b, rtol=1e-3 if a.dtype == np.float16 else 1e-5, atol=1e-4)


PENDULUM = {"observation_space": Box(-8.0, 8.0, (3,)), "action_space": Box(-2.0, 2.0, (1,))}


def built(minari, length=4, spaces=PENDULUM, **changed: Any) -> None:
    """A data set by somebody else, of one episode of Python's numbers, without infos."""
    from minari.data_collector import EpisodeBuffer

    whole = {
        "observations": np.array([[0.1 * t, 0.2, 0.3] for t in range(length + 1)]),
        "actions": [np.array([0.5 * t]) for t in range(length)],
        "rewards": [-1.0 / 3 - t for t in range(length)],
        "terminations": [False] * length,
        "truncations": [False] * (length - 1) + [True],
    }
    with pytest.warns(UserWarning):
        minari.create_dataset_from_buffers(ID, [EpisodeBuffer(**(whole | changed))], **spaces)


@pytest.fixture
def spec(tmp_path):
    """Of Pendulum."""
    return record(tmp_path / "a.npz", "Pendulum-v1", 1, limit=2)


def test_a_data_set_of_somebody_else_becomes_arrays_of_an_agent(minari, tmp_path, spec):
    built(minari)
    (episode,) = load(tmp_path, spec).episodes
    assert episode.obs["obs"].dtype == episode.reward.dtype == episode.action.dtype == np.float32
    np.testing.assert_array_equal(episode.obs["obs"][:, 0], np.float32([0, 0.1, 0.2, 0.1 * 3, 0.4]))
    np.testing.assert_array_equal(episode.action, np.float32([[0], [0.25], [0.5], [0.75]]))  # of [-2, 2]
    np.testing.assert_array_equal(episode.reward, np.float32([-1 / 3 - t for t in range(4)]))
    assert not episode.terminated and episode.action_mask.shape == (5, 0)


def test_masks_of_observations_and_infos_are_read(minari, tmp_path):
    """Nothing is forbidden after the end of the task."""
    actions, mask = [0, 2, 1], np.array([[1, 1, 0], [0, 0, 1], [1, 1, 1], [0, 0, 0]], np.int8)
    plain = {"actions": actions, "rewards": [0, 0, 1], "terminations": [0, 0, 1], "truncations": [0, 0, 0]}
    for obs, space, infos in (
        (
            {"x": np.arange(4.0), "action_mask": mask},
            Dict(x=Box(-9, 9, ()), action_mask=Box(0, 1, (3,), np.int8)),
            None,
        ),
        ({"x": np.arange(4.0)}, Dict(x=Box(-9, 9, ())), {"action_mask": mask}),
    ):
        built(
            minari,
            spaces={"observation_space": space, "action_space": Discrete(3)},
            observations=obs,
            infos=infos,
            **plain,
        )
        (episode,) = read_minari(ID, None, pytest.fail)
        np.testing.assert_array_equal(episode.action_mask, [*mask[:3], [True] * 3])
        assert list(episode.obs) == ["x"] and episode.action.argmax(1).tolist() == actions
        shutil.rmtree(tmp_path / "sets" / ID)


FAULTS = {
    # what a data set holds instead -> where, why
    "another environment": ({"spaces": PENDULUM | {"action_space": Box(-1.0, 1.0, (1,))}}, "episode 0", "its spaces are obs float32 [3]; Box(-1.0, 1.0, (1,), float32), and those of the agent obs float32 [3]; Box(-2.0, 2.0, (1,), float32)"),
    "another observation": ({"spaces": PENDULUM | {"observation_space": Dict(seen=Box(-8.0, 8.0, (3,)))}, "observations": {"seen": np.zeros((5, 3))}}, "episode 0", "its spaces are seen float32 [3]"),
    "no space of ours": ({"spaces": PENDULUM | {"observation_space": Text(3)}, "observations": ["a"] * 5}, "", "Text space, which is not supported"),
    "no bounds": ({"spaces": PENDULUM | {"action_space": Box(-np.inf, np.inf, (1,))}}, "", "has no finite bounds"),
    "not finite": ({"rewards": [0.0, np.nan, 0.0, 0.0]}, "episode 0, reward", "not finite"),
    "beyond the bounds": ({"actions": np.array([[0.0], [0.0], [2.1], [0.0]])}, "episode 0, action", "continuous actions in [-1, 1]"),
    "an observation too few": ({"observations": np.zeros((4, 3))}, "episode 0", "has shape (4, 3), its space has (5, 3)"),
    "an action too few": ({"actions": np.zeros((3, 1))}, "episode 0", "the action is float64 [3, 1], not numbers [4, 1]"),
    "rewards of another shape": ({"rewards": np.zeros((4, 1))}, "episode 0", "expected one reward for each step, got float64 [4, 1]"),
    "an end in the middle": ({"terminations": [False, True, False, False]}, "episode 0, terminated", "true before the last step"),
    "no choice": ({"spaces": {"observation_space": Box(-8.0, 8.0, (3,)), "action_space": Discrete(2)}, "actions": [0, 1, 2, 0]}, "episode 0", "the action holds 2, its space has 0 to 1"),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_what_does_not_fit_is_named_with_data_set_episode_and_field(minari, tmp_path, spec, fault):
    changed, where, why = FAULTS[fault]
    built(minari, **changed)
    said = refusal(tmp_path, spec)
    assert f"minari:{ID}{f', {where}' if where else ''}" in said and why in said, said


def test_a_data_set_that_is_not_here_or_none_or_damaged_is_told(minari, tmp_path, spec, monkeypatch):
    assert f"minari download {ID}" in refusal(tmp_path, spec)
    for name in ("own/data", "/tmp/x-v0", "../x-v0", "a b-v0", ""):
        assert "is not a Minari id" in refusal(tmp_path, spec, f"minari:{name}")
    built(minari)
    file = tmp_path / "sets" / ID / "data" / "main_data.hdf5"
    whole = file.read_bytes()
    for content in (whole[: len(whole) // 2], b"", b"no"):
        file.write_bytes(content)
        assert "it cannot be read" in refusal(tmp_path, spec)
    (file.parent / "metadata.json").write_text("{")
    assert "it is not a Minari data set" in refusal(tmp_path, spec)
    monkeypatch.setitem(sys.modules, "minari", None)
    assert "[offline]" in refusal(tmp_path, spec)


def test_sources_of_several_kinds_are_read_in_their_order(minari, tmp_path, spec):
    built(minari)
    found = load(tmp_path, spec, ("a.npz", f"minari:{ID}", "*.npz", f"minari:{ID}"))
    assert list(found.digests) == ["a.npz", f"minari:{ID}"] and len(found.episodes) == 2
