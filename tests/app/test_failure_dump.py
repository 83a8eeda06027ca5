"""Dumps of episodes with a number that is not finite: their content, their limit, and why there is none."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from algorithm.config.schema import BaseConfig, Config
from algorithm.core.data import ActorOutput
from algorithm.core.errors import NumericalError
from algorithm.core.seeding import episode_seeds
from algorithm.env.base import Trace
from algorithm.env.parameters.config import read_parameters
from algorithm.env.parameters.curricula import ParameterSource
from algorithm.env.registry import make_vec_env
from algorithm.env.request import EnvRequest
from algorithm.extras.check.command import replay_failure
from algorithm.run.experience.collector import LocalCollector
from algorithm.run.experience.failure_dump import LIMIT, FailureDump, FailureDumps
from algorithm.run.experience.non_finite import Stop
from tests.toys_numbers import LENGTH

pytestmark = pytest.mark.fault("F10")

SEEDS = episode_seeds(3, "train")
CONFIG = Config(base_config=BaseConfig(env_type="GYM", env_name="Pendulum-v1"))
NUMBERS = "tests.toys_numbers:Numbers-v0"


def meet(folder: Path, *, n: int = 2, env_name: str = NUMBERS, **base: Any) -> tuple[NumericalError, Path]:
    """Run into a number that is not finite; the error, and the file it names."""
    keys = BaseConfig(env_type="GYM", env_name=env_name, **base)
    options = {"colour": "red"}
    dumps = FailureDumps(folder / "faults", Config(base_config=keys, reset_config=options), env="task")
    env = make_vec_env(
        EnvRequest(
            "GYM",
            env_name,
            env_args=keys.env_args,
            n=n,
            seed_of=SEEDS,
            options=options,
            wrappers=keys.wrappers,
        )
    )
    player = Playing()
    with pytest.raises(NumericalError) as caught:
        rollout = LocalCollector(env, {"default": player}, on_non_finite=Stop(dumps))
        for _ in range(4 * LENGTH):
            rollout.step()
    env.close()
    named = re.search(r"main\.py task --check --from (\S+)", str(caught.value))
    assert named, str(caught.value)
    return caught.value, Path(named[1])


class Playing:
    """Acts on the step of the episode alone, which its carry counts."""

    stored_carry_shape = (1,)

    def initial_carry(self, n: int) -> np.ndarray:
        return np.zeros((n, 1), np.float32)

    def act(self, obs, prev_action, carry, action_mask) -> ActorOutput:
        z = 0.2 + 0.1 * carry
        return ActorOutput(action=np.tanh(z), z=z, behaviour_logp=0.0 * carry, carry=carry + 1)


def read(path: Path) -> Mapping[str, Any]:
    return json.loads(path.read_text())


def test_the_file_says_all_that_is_needed(tmp_path):
    event = (SEEDS(0, 0), 2, "reward", "nan")
    wrappers = ({"TimeLimit": {"max_episode_steps": 50}},)
    _, path = meet(tmp_path, env_args={"events": [event]}, wrappers=wrappers)
    assert path.parent == tmp_path / "faults" and path.name == "non_finite_2.json"
    found = read(path)
    assert found["env_type"] == "GYM" and found["env_name"] == NUMBERS
    assert found["env_args"] == {"events": [list(event)]} and found["wrappers"] == list(wrappers)
    assert found["reset_config"] == {"colour": "red"}
    assert found["environment_step"] == 2
    flat, own = np.array(found["actions"]), np.array(found["env_actions"])
    np.testing.assert_allclose(own, -1.0 + 2.0 * flat, rtol=1e-6)  # of a Box from −3 to 1
    np.testing.assert_allclose(flat[:, 0], np.tanh([0.2, 0.3]), rtol=1e-6)


def test_the_simulators_own_means_show_it_too(tmp_path):
    """As the documentation says: a reset with the seed, then ``env_actions`` one after the other."""
    import gymnasium as gym

    _, path = meet(tmp_path, env_args={"events": [(SEEDS(0, 1), 3, "obs", "inf")]})
    found = read(path)
    env = gym.make(found["env_name"], **found["env_args"])
    env.reset(seed=found["seed"], options=found["reset_config"])
    for action in found["env_actions"]:
        obs, *_ = env.step(np.array(action, np.float32))
    assert np.isinf(obs[1])


def test_it_is_replayed_with_the_parameters_of_its_episode(tmp_path):
    """The mass breaks it: of the values that were drawn this one alone comes to 1.5."""
    uniform = {"sampler_type": "uniform", "sampler_parameters": {"min_value": 1.0, "max_value": 2.0}}
    given = {"mass": uniform, "gravity": {**uniform, "set": "gravity"}}
    name, keys = "tests.env.parameters.toys:Weighed-v0", {"env_args": {"breaks": 1.5}}
    base = BaseConfig(env_type="GYM", env_name=name, **keys)
    dumps = FailureDumps(tmp_path, Config(base_config=base, environment_parameters=given), env="task")
    source = ParameterSource(read_parameters(given))
    env = make_vec_env(EnvRequest("GYM", name, **keys, n=2, seed_of=SEEDS, parameters=source))
    with closing(env), pytest.raises(NumericalError) as caught:
        rollout = LocalCollector(env, {"default": Playing()}, on_non_finite=Stop(dumps))
        for _ in range(99):
            rollout.step()
    dump = FailureDump.read(next(tmp_path.iterdir()))
    mass, gravity = source.draw(dump.seed)
    assert dump.environment_parameters == {"mass": mass, "gravity": {"value": gravity, "set": "gravity"}}
    assert mass >= 1.5 and replay_failure(dump, print), str(caught.value)
    other = dump.model_copy(update={"environment_parameters": {"mass": 1.0}})
    assert not replay_failure(other, print)


def record(dumps: FailureDumps, step: int = 7, trace: Trace | None = None) -> str:
    return dumps.record(
        lambda: trace,
        what="reward",
        value="nan",
        behaviour="default",
        agent=0,
        episode_step=1,
        environment_step=step,
    )


TRACE = Trace(
    env_index=0,
    episode=0,
    seed=3,
    actions=np.zeros((1, 1), np.float32),
    next_seed=None,
    to_env=lambda action: action,
)


def test_there_are_never_more_than_a_few_and_none_is_written_over(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    dumps = FailureDumps(tmp_path / "faults", CONFIG, env="gym/pendulum")
    said = [record(dumps, 7, TRACE) for _ in range(LIMIT)]
    assert len(list((tmp_path / "faults").iterdir())) == LIMIT == len(set(said))
    assert said[1].startswith("python main.py gym/pendulum --check --from faults/non_finite_7_2.json ")
    again = FailureDumps(tmp_path / "faults", CONFIG, env="gym/pendulum")  # as after a resume
    assert record(again, 8, TRACE) == f"no dump: there are {LIMIT} in faults"
    assert len(list((tmp_path / "faults").iterdir())) == LIMIT


def test_why_there_is_none_is_said(tmp_path):
    assert "the episode is unknown" in record(FailureDumps(tmp_path / "faults", CONFIG, env="gym/pendulum"))
    (tmp_path / "taken").write_text("")
    said = record(FailureDumps(tmp_path / "taken", CONFIG, env="task"), trace=TRACE)
    assert said.startswith("no dump: ") and "there is a file where a folder is needed" in said
