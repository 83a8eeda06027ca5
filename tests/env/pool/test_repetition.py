"""What was done in an episode, so that anybody can do it again."""

from contextlib import closing

import numpy as np

from algorithm.core.seeding import episode_seeds
from algorithm.core.spec import DEFAULT_BEHAVIOUR
from algorithm.env.registry import make_vec_env
from algorithm.env.request import EnvRequest
from tests.lib.toys_vector import diary_seed

SEEDS = episode_seeds(5, "train")


def test_an_episode_that_ended_with_the_last_step_is_the_one_that_is_meant():
    """Environment 0 has episodes of 1, 6 and 5 steps; environment 1 of 4, 3 and 2."""
    with closing(
        make_vec_env(EnvRequest("GYM", "tests.lib.toys_vector:Diary-v0", n=2, seed_of=diary_seed))
    ) as env:
        env.reset()
        for t in range(9):
            env.step({DEFAULT_BEHAVIOUR: np.float32([[-1 / 6, 1 / 6]] * 2) + np.float32(t / 1000)})
            episode, now = (0 if t == 0 else 1 if t < 7 else 2), (1 if t < 6 else 2)
            places = [f"environment 0, episode {k}, seed {diary_seed(0, k)}" for k in (episode, now)]
            assert [env.episode_of(0, begins=begins) for begins in (False, True)] == places
        env.reset([0])
        assert ", episode 3, " in env.episode_of(0, begins=True)
        assert env.episode_of(2, begins=False) == env.episode_of(-1, begins=False) == ""
