"""An actor with the learner's weights does what an agent in the learner's process would do."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from algorithm.agents.registry import family
from algorithm.agents.roles import ActingInputs
from algorithm.agents.sac.config import SacConfig
from algorithm.config.schema import BaseConfig, Config
from algorithm.env.parameters.config import read_parameters
from ds.acting import Lessons, actor_seed, with_noise
from ds.weights import packed, unpack
from tests.lib import grid

CPU = torch.device("cpu")


ROWS = [row for row in grid.ROWS if row["family"] != "ACKTR"]  # which has no actors
# Greedy choices are those of the critics of all horizons, which an actor has then.
GREEDY = next(row for row in ROWS if (row["action"], row["horizon"]) == ("greedy", "two"))
FALLING = next(row for row in ROWS if (row["exploration"], row["action"]) == ("falling", "hybrid"))


@pytest.mark.parametrize("row", [*ROWS[::8], GREEDY, FALLING], ids=lambda row: "-".join(row.values()))
def test_it_acts_as_the_agent_does(row):
    """Every kind of action, observation, memory and extension: the same actions, densities and carries."""
    agent = grid.make_agent(row, seed=1)
    begun = agent.policy.state()
    grid.play(agent, np.random.default_rng(0), 12)
    agent.policy.load_state(begun)
    acting = family(agent.config).make_acting(
        ActingInputs(agent.spec, agent.config, nn_file=None, behaviour="x", seed=5, own_seed=1, device=CPU),
    )  # other weights than the agent began with, the same random numbers while acting
    unpack(packed({"x": agent.acting_parts()}), {"x": acting.parts})
    agent.policy.warming_up = acting.policy.warming_up = False
    told = grid.act(agent, np.random.default_rng(3))
    agent.policy = acting.policy
    found = grid.act(agent, np.random.default_rng(3))
    for name, expected in vars(told).items():
        np.testing.assert_array_equal(vars(found)[name], expected, err_msg=name)


def test_the_first_actor_has_the_seed_of_the_run_and_no_two_have_the_same():
    seeds = [actor_seed(7, number) for number in range(200)]
    assert seeds[0] == 7 and len(set(seeds)) == 200 and max(seeds) < 2**32


@pytest.mark.parametrize(
    ("rate", "slot", "noise"),
    [
        (0.02, 0, None),
        (0.02, 1, (0.02, 0.02)),
        (0.02, 9, (0.1, 0.1)),
        (0.0, 5, (0.1, 0.3)),  # without a rate, that of all counts
    ],
)
def test_an_actor_is_the_noisier_the_later_its_slot(rate, slot, noise):
    base = BaseConfig(noise_increasing_rate=rate, noise_max=0.1)
    config = Config(base_config=base, sac_config=SacConfig(action_noise=(0.1, 0.3)))
    assert with_noise(config, slot).sac_config.action_noise == noise


CURRICULUM = [
    {"name": name, "value": value, "completion_criteria": {"threshold": 1, "require_reset": resets}}
    for name, value, resets in (("near", 1, False), ("middle", 2, True), ("far", 3, False))
] + [{"name": "end", "value": 4}]


@pytest.mark.parametrize(
    ("before", "after", "renewed"),
    [
        ("near", "near", []),
        ("near", "middle", [("middle", False)]),
        ("near", "far", [("far", True)]),  # the word of middle's end and of near's came in one answer
        ("middle", "far", [("far", True)]),
        ("far", "end", [("end", False)]),
        ("far", "near", [("near", False)]),  # of a learner that has gone back to a checkpoint
    ],
)
def test_an_actor_follows_the_lessons_of_the_learner(before, after, renewed):
    parameters = read_parameters({"d": {"curriculum": CURRICULUM}, "g": 9.8})
    link, told, said = SimpleNamespace(lessons={}), [], []
    console = SimpleNamespace(message=said.append)
    assert Lessons(parameters, link, console).now == {"d": "near"}, "until there is a word of it"
    link.lessons = {"d": before}
    lessons = Lessons(parameters, link, console)
    link.lessons = {"d": after}
    rollout = SimpleNamespace(renew_parameters=lambda now, reset: told.append((now["d"], reset)))
    lessons.follow(rollout), lessons.follow(rollout)
    assert told == renewed and lessons.now == {"d": after} and len(said) == len(renewed)
