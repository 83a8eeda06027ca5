"""Parameters on their way into environments: options, attributes, methods; and refusals."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from algorithm.core.errors import UsageError
from algorithm.env.gym import GymEnv
from algorithm.env.parameters.apply import WithParameters
from algorithm.env.parameters.config import read_parameters
from algorithm.env.parameters.curricula import ParameterSource
from tests.env.parameters.test_samplers import sampler
from tests.lib.toys import Weighed

PATHS = {"mass": None, "gravity": "gravity", "wind": "model.wind.1", "pull": "set_pull"}


def test_each_way_into_an_environment_through_its_wrappers() -> None:
    env = GymEnv(gym.wrappers.TimeLimit(Weighed(), 5), options={"size": 1}, parameters=PATHS)
    for values in ([1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]):
        assert env.reset(7, np.array(values)).obs["obs"].tolist() == [*values, 7]
    env.step(np.zeros(1, np.float32))
    assert env.reset(8, np.array(values)).obs["obs"].tolist() == [*values, 8]


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("gravty", "no attribute 'gravty'"),
        ("model.wnd.1", "no attribute 'wnd'"),
        ("model.wind.3", "out of bounds"),
        ("model.wind", "it is ndarray"),
        ("model.name", "it is str"),
        ("model.label", "it is ndarray"),
        ("gravity.1", "not subscriptable"),
        ("close", "it is method"),
    ],
)
def test_a_path_that_leads_nowhere_is_refused(path: str, why: str) -> None:
    with pytest.raises(UsageError) as raised:
        GymEnv(gym.wrappers.TimeLimit(Weighed(), 5), parameters={"g": path})
    assert raised.value.where == "environment_parameters.g.set" and why in raised.value.why


class Stubborn(Weighed):
    """Attributes that do not take any number."""

    rooms, cells, fixed = 3, np.arange(3), property(lambda self: 2.0)
    mass, floors, width = np.array(0.5, np.float32), [np.array(3)], np.array(1, np.uint8)

    def reset(self, **given: Any) -> tuple[Any, dict]:
        self.gravity = 9.81
        self.model.wind.flags.writeable = False
        self.width[...] = 1  # in the array that was set
        assert [*range(self.rooms)] and self.mass[()] and self.floors[0].shape == (), "of the same kind"
        return super().reset(**given)


@pytest.mark.parametrize(
    ("path", "value", "why"),
    [
        ("fixed", 1.0, "AttributeError"),
        ("model.wind.1", 1.0, "read-only"),
        ("cells.1", 1.5, "whole numbers and became 1"),
        ("gravity", 1.0, "reset() sets it to 9.81 again"),
        ("gravity", 9.81, None),
        ("rooms", 2.0, None),
        ("cells.1", 2.0, None),
        ("mass", 1.5, None),
        ("floors.0", 2.0, None),
        ("floors.0", 1.5, "whole numbers and became 1"),
        ("width", 300.0, "OverflowError"),
        ("width", 2.0, "reset() sets it to 1 again"),
    ],
)
def test_what_is_set_has_to_last_until_the_episode_begins(path: str, value: float, why: str | None) -> None:
    env = GymEnv(Stubborn(), parameters={"g": path})
    env._env.unwrapped.model.wind.flags.writeable = path != "model.wind.1"
    if why is None:
        env.reset(1, np.array([value]))
        return
    with pytest.raises(UsageError) as raised:
        env.reset(1, np.array([value]))
    assert raised.value.where == "environment_parameters.g.set" and why in raised.value.why


def test_an_environment_of_its_own_draws_by_the_seeds_of_its_episodes() -> None:
    given = {"gravity": {**sampler("uniform", min_value=1, max_value=2), "set": "gravity"}}
    source = ParameterSource(read_parameters(given))
    env, other = WithParameters(Weighed(), source), WithParameters(Weighed(), source)
    assert env.reset(seed=3)[0][1] == source.draw(3)[0]
    other.reset(seed=3)
    later = [one.reset()[0][1] for one in (env, other, env, other)]
    assert later[:1] * 2 + later[2:3] * 2 == later and len({*later}) == 2
    told = WithParameters(gym.make("Weighed-v0"), source).spec
    assert isinstance(gym.make(told).unwrapped, Weighed), "a data set of Minari can make it again"
