"""The command line of ``main_ds.py``: which role may be asked what, and what it means as configuration."""

from __future__ import annotations

import pytest

from algorithm.config import load_config
from algorithm.config.cli_ds import ClusterOptions, parse_distributed
from algorithm.config.schema import DISTRIBUTED_DEFAULTS
from tests.config.conftest import PENDULUM


def refusal(capsys, *words):
    with pytest.raises(SystemExit) as left:
        parse_distributed(words)
    assert left.value.code == 2
    return capsys.readouterr().err


@pytest.mark.parametrize(
    "flags",
    [["--run"], ["--render"], ["--ckpt=5"], ["--resume"], ["--seed=1"], ["-n", "x"], ["--max_iter=3"]],
    ids=" ".join,
)
def test_what_the_learner_decides_is_no_actors_flag(flags, capsys):
    parse_distributed(["task", "learner", *[flag for flag in flags if flag != "--ckpt=5"]])
    assert "is for the learner" in refusal(capsys, "task", "actor", *flags)


@pytest.mark.parametrize("flag", ["--num_actors=2", "--ray=1.2.3.4:5", "--scale=2", "--actor_cpus=0.5"])
def test_what_ray_is_told_is_the_clusters(flag, capsys):
    assert "role cluster" in refusal(capsys, "task", "learner", flag)


def test_a_cluster_starts_or_is_scaled(capsys):
    assert "--num_actors N" in refusal(capsys, "task", "cluster")
    assert "--num_actors N" in refusal(capsys, "task", "cluster", "--num_actors=2", "--scale=3")
    options = parse_distributed(["task", "cluster", "--num_actors=2", "--actor_cpus=0.5"])
    assert options.cluster == ClusterOptions(num_actors=2, actor_cpus=0.5)
    assert parse_distributed(["task", "learner"]).cluster is None


def test_flags_become_keys():
    options = parse_distributed(
        ["task", "l", "--learner_host=10.0.0.1", "--learner_port=0", "--insecure", "--agents=3", "-n", "x"]
    )
    assert options.flags == {
        "net_config.learner_host": "10.0.0.1",
        "net_config.learner_port": 0,
        "net_config.insecure": True,
        "base_config.n_envs": 3,
        "base_config.name": "x",
    }
    assert parse_distributed(["task", "l"]).flags == {}, "what is not given overrides nothing"


def test_defaults_of_a_distributed_training_lie_below_the_file(task):
    task(PENDULUM)
    assert interval() == 5000
    assert interval(defaults=DISTRIBUTED_DEFAULTS) == 100000
    task(f"{PENDULUM}  sac_config: {{save_model_per_step: 7}}\n")
    assert interval(defaults=DISTRIBUTED_DEFAULTS) == 7


def interval(**options):
    return load_config("gym/task", **options).config.sac_config.save_model_per_step
