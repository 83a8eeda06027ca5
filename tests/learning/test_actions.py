"""Does it learn every kind of action? Toy tasks with a known optimum, in seconds."""

import csv
from pathlib import Path

import pytest

from algorithm.env.toys import basic as toy
from main import main
from tests.learning.test_continuous import last_eval

DQN_LIKE = "sac_config.discrete_dqn_like=true"


@pytest.mark.parametrize(
    ("section", "kind", "steps", "share", "options"),
    [
        ("discrete", toy.ToyDiscrete, 600, 0.8, []),
        pytest.param("discrete", toy.ToyDiscrete, 600, 0.8, [DQN_LIKE], marks=pytest.mark.slow),
        pytest.param("branches", toy.ToyBranches, 700, 0.8, [], marks=pytest.mark.slow),
        pytest.param("branches", toy.ToyBranches, 700, 0.8, [DQN_LIKE], marks=pytest.mark.slow),
        pytest.param(
            "masked", toy.ToyMasked, 900, 0.5, ["sac_config.use_add_with_td=true"], marks=pytest.mark.slow
        ),
    ],
    ids=["discrete", "discrete-dqn", "branches", "branches-dqn", "masked"],
)
def test_discrete_toys_come_near_their_optimum(cwd, section, kind, steps, share, options):
    """The share of the way from a policy that does not look to the best one."""
    overrides = [part for option in options for part in ("-o", option)]
    arguments = ["toy/identity", "-c", section, "--seed=1", "--device=cpu", "--quiet"]
    assert main([*arguments, "-o", f"base_config.max_step={steps}", *overrides]) == 0
    assert (last_eval("toy/identity") - kind.chance) / (kind.optimum - kind.chance) > share


@pytest.mark.slow
@pytest.mark.parametrize("greedy", [False, True], ids=["sac", "dqn-like"])
def test_the_right_value_for_the_right_choice(cwd, greedy):
    """More than a policy blind to one of the observations can get."""
    options = ["-o", f"sac_config.discrete_dqn_like={str(greedy).lower()}", "-o", "base_config.max_step=1200"]
    assert main(["toy/hybrid", "--seed=1", "--device=cpu", "--quiet", *options]) == 0
    assert last_eval("toy/hybrid") > toy.ToyHybrid.chance + 0.1


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_a_goal_is_worth_no_more_than_its_reward(cwd, seed):
    """MiniGrid pays once, at the end, and less than 1. The bonus for entropy may not add to that."""
    wrappers = "base_config.wrappers=['minigrid.wrappers:ImgObsWrapper']"
    words = ["minigrid:MiniGrid-Empty-5x5-v0", f"--seed={seed}", "--device=cpu", "--quiet", "--max_step=2500"]
    assert main([*words, "-o", wrappers, "-o", "sac_config.write_summary_per_step=250"]) == 0
    (metrics,) = Path("models").rglob("metrics.csv")
    with metrics.open(newline="") as file:
        values = [float(row["value/q_mean"]) for row in csv.DictReader(file) if row["value/q_mean"]]
    assert len(values) > 4 and max(values) < 1.0
