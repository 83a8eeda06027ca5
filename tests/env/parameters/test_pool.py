"""Parameters of episodes in a pool: equal draws anywhere, lessons from the next reset on, resume."""

import json
from contextlib import closing
from typing import Any

import numpy as np
import pytest

from algorithm.core.data import State
from algorithm.core.seeding import episode_seeds
from algorithm.core.spec import DEFAULT_BEHAVIOUR
from algorithm.env.base import VecEnv
from algorithm.env.parameters.config import read_parameters
from algorithm.env.parameters.curricula import ParameterSource
from algorithm.env.registry import make_vec_env
from algorithm.env.request import EnvRequest
from tests.env.parameters.test_samplers import sampler

SEEDS = episode_seeds(5, "train")
UNIFORM = sampler("uniform", min_value=1.0, max_value=2.0)
GIVEN: dict[str, Any] = {
    "mass": {
        "curriculum": [
            {"name": "light", "value": UNIFORM, "completion_criteria": {"threshold": 1.0}},
            {"name": "heavy", "value": sampler("uniform", min_value=11.0, max_value=12.0)},
        ]
    },
    "gravity": {**sampler("gaussian", mean=9.81, st_dev=1.0), "set": "gravity"},
}


def make(given: dict[str, Any] = GIVEN, n: int = 3, args: Any = None, **options: Any) -> VecEnv:
    pool = dict(parameters=ParameterSource(read_parameters(given)), **options)
    name = "tests.lib.toys:Weighed-v0"
    return make_vec_env(EnvRequest("GYM", name, env_args=args or {}, n=n, seed_of=SEEDS, **pool))


def step(env: VecEnv, n: int = 3) -> np.ndarray:
    """Return observations [N, 5] after a step."""
    found = env.step({DEFAULT_BEHAVIOUR: np.full((n, 1), 0.5, np.float32)})
    return found[DEFAULT_BEHAVIOUR].obs["obs"].copy()


def seen(values: Any) -> list[float]:
    """Return values in the precision of an observation."""
    return np.array([*values], np.float64).tolist()


def told(env: VecEnv, *, begins: bool = False) -> list[float]:
    """Return the parameters of the episode of agent 1, as a message names them."""
    _, mass, gravity = env.episode_of(1, begins=begins).rsplit(", ", 2)
    return seen(float(part.split()[1]) for part in (mass, gravity))


def drawn(episode: int, lessons: dict[str, str] | None = None) -> list[list[float]]:
    """Return mass and gravity of each copy in an episode, as they are observed."""
    source = ParameterSource(read_parameters(GIVEN), lessons)
    return [seen(source.draw(SEEDS(copy, episode))) for copy in range(3)]


@pytest.mark.parametrize("workers", [0, 2])
def test_values_follow_from_seeds_and_a_lesson_counts_from_the_next_reset_on(
    workers: int,
) -> None:
    with closing(make(workers=workers)) as env:
        assert env.reset(episode=0)[DEFAULT_BEHAVIOUR].obs["obs"][:, :2].tolist() == drawn(0)
        assert env.metrics()["param/mass"] == pytest.approx(np.mean([mass for mass, _ in drawn(0)]))
        step(env)
        env.renew_parameters({"mass": "heavy"})
        assert step(env)[:, :2].tolist() == drawn(0), "an open episode goes on"
        assert told(env) == drawn(0)[1]
        assert step(env)[:, :2].tolist() == drawn(1, {"mass": "heavy"}), "the episode was planned before"
        assert told(env) == drawn(0)[1]
        assert told(env, begins=True) == drawn(1, {"mass": "heavy"})[1]
        assert (
            env.reset([1], episode=7)[DEFAULT_BEHAVIOUR].obs["obs"][0, :2].tolist()
            == drawn(7, {"mass": "heavy"})[1]
        )


@pytest.mark.parametrize("workers", [0, 2])
def test_a_resumed_episode_has_its_own_values_whatever_is_configured_now(workers: int) -> None:
    other = {**GIVEN, "gravity": {"value": 1.0, "set": "gravity"}}
    with closing(make()) as env, closing(make(other, workers=workers)) as later:
        env.reset(episode=0)
        step(env)
        env.renew_parameters({"mass": "heavy"})
        here = step(env)
        arrays = {name: value.copy() for name, value in env.state().arrays.items()}
        saved = State(arrays, json.loads(json.dumps(env.state().meta)))
        later.reset(episode=0)
        later.renew_parameters({"mass": "heavy"})
        assert later.resume(saved) == {}
        assert here[:, :2].tolist() == drawn(0)
        after, there = step(env), step(later)
        assert (after[:, [0, 4]] == there[:, [0, 4]]).all() and (there[:, 1] == 1.0).all()
        with closing(make({name: GIVEN[name] for name in ("mass",)})) as another:
            another.reset(episode=0)
            assert {*another.resume(saved).values()} == {"the parameters of its episodes were others"}


@pytest.mark.parametrize("workers", [0, 2])
def test_a_restarted_environment_has_the_parameters_of_its_next_episode(workers: int) -> None:
    heaviest = int(np.argmax([mass for mass, _ in drawn(0)]))
    breaks = float(np.max(drawn(0)[heaviest][0])) - 1e-6
    with closing(make(args={"breaks": breaks, "fails": True}, workers=workers)) as env:
        env.reset(episode=0)
        assert step(env)[:, :2].tolist() == [drawn(copy == heaviest)[copy] for copy in range(3)]


def test_a_vector_class_of_its_own_is_not_used() -> None:
    pool = {"parameters": ParameterSource(read_parameters({"gravity": {"value": 9.0, "set": "gravity"}}))}
    with closing(make_vec_env(EnvRequest("GYM", "CartPole-v1", n=2, seed_of=SEEDS, **pool))) as env:
        assert env.arrangement == "2 in process"


def test_the_episode_that_ended_is_named_though_the_next_one_did_not_begin() -> None:
    def fails(seed: int, values: object) -> None:
        raise RuntimeError("not now")

    with closing(make(restarts=1)) as env:
        env.reset(episode=0)
        step(env), step(env)
        env._executor._group._envs[1].reset = fails  # type: ignore[attr-defined]
        step(env)
    assert ", episode 0, " in env.episode_of(1, begins=False) and told(env) == drawn(0)[1]
    assert (
        f", seed {SEEDS(1, 2)}, " in env.episode_of(1, begins=True) and told(env, begins=True) == drawn(2)[1]
    )
