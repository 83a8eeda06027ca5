"""Data sets of Minari: episodes come back to the last bit, and what does not fit is refused in words."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from algorithm.core.data import Demonstrations
from algorithm.core.errors import UsageError
from algorithm.core.spec import DEFAULT_BEHAVIOUR
from algorithm.demos.config import DemoConfig
from algorithm.demos.minari import read_minari
from algorithm.demos.minari_writer import MinariWriter
from algorithm.demos.npz import NpzWriter, read_npz
from algorithm.demos.sources import load_demonstrations
from algorithm.demos.spaces import flat_actions, in_space
from algorithm.env.actions import Actions
from algorithm.env.observations import Observations
from algorithm.env.registry import find_recipe
from tests.demos.episodes import record
from tests.env.strategies import spaces

ID = "own/data-v0"
SAID = {"algorithm": "SAC", "description": "version 1"}


@pytest.fixture
def minari(tmp_path, monkeypatch):
    """The library, with a folder of its own for data sets."""
    library = pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "sets"))
    return library


def made(env_name):
    recipe = find_recipe("GYM", env_name, folder=None, env_args=None, options=None, wrappers=())
    return recipe.make_gym_env()


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
    back = in_space(space, obs.read_each(samples))
    again = obs.read_batch(back, n)
    for name, value in obs.read_each(samples).items():
        np.testing.assert_array_equal(again[name], value)
    actions = Actions(space, "x")
    mask = actions.spec.all_allowed(n)
    flat, _, _ = actions.spec.random(np.random.default_rng(seed), mask)
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


ROUND = (
    "Pendulum-v1",
    "CartPole-v1",
    "algorithm.env.toys:ToyHybrid-v0",
    "algorithm.env.toys:ToyMasked-v0",
    "algorithm.env.toys:ToyTwoCameras-v0",
    "tests.toys_spaces:Nested",
    "tests.toys_spaces:Film",
)


@pytest.mark.parametrize("env_name", ROUND)
def test_a_recording_goes_through_minari_and_back_to_the_last_bit(minari, tmp_path, env_name, recwarn):
    spec = record(tmp_path / "a.npz", env_name, 3, limit=5)
    env = made(env_name)
    writer = MinariWriter(ID, env, **SAID)
    writer.begin()
    for episode in read_npz(tmp_path / "a.npz", None):
        writer.write(episode)
    writer.finish()
    assert not recwarn.list
    back = NpzWriter(tmp_path / "b.npz")
    back.begin()
    for episode in read_minari(ID, None):
        back.write(episode)
    back.finish()
    with np.load(tmp_path / "a.npz") as old, np.load(tmp_path / "b.npz") as new:
        kept = [
            name for name in old.files if not name.endswith("/carry") and (old[name].size or "/obs/" in name)
        ]
        assert {name for name in new.files if new[name].size} == {name for name in kept if old[name].size}
        for name in kept:
            assert old[name].dtype == new[name].dtype, name
            np.testing.assert_array_equal(old[name], new[name], err_msg=name)
    (a,), (b,) = (load(tmp_path, spec, path).digests.values() for path in ("a.npz", f"minari:{ID}"))
    assert a == b
    known = minari.load_dataset(ID)
    assert known.env_spec is None or known.env_spec.id == env.spec.id
    assert known.storage.metadata["algorithm_name"] == "SAC"
