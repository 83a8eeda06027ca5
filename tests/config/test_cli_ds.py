"""The command line of ``main_ds.py``: which role may be asked what, and what it means as configuration."""

from __future__ import annotations

import re

import pytest

from algorithm.app.cli.ds import ClusterOptions, parse_distributed
from algorithm.config import load_config
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


@pytest.mark.parametrize("flag", ["--run", "--render", "--ckpt=5", "--learner_host=10.0.0.1"])
def test_what_a_cluster_cannot_do_is_refused_before_it_starts(flag, capsys):
    said = refusal(capsys, "task", "cluster", "--num_actors=2", flag)
    assert f"{flag.split('=')[0]} is for the learner" in said


def test_every_flag_of_another_role_is_told_at_once(capsys):
    said = refusal(capsys, "task", "actor", "--render", "--seed=0", "--scale=2")
    assert [flag in said for flag in ("1. --seed", "2. --render", "3. --scale")] == [True] * 3


SAMPLES = {
    **{"config": "x", "name": "x", "agents": "2", "env_args": "a=1", "max_iter": "3", "max_step": "9"},
    **{"override": "a.b=1", "learner_host": "h", "learner_port": "1", "unity_port": "1", "device": "cpu"},
    **{"seed": "1", "ckpt": "5", "nn": "x", "num_actors": "2", "ray": "auto", "scale": "2"},
    **{"learner_cpus": "2", "actor_cpus": "2", "num_learners": "2", "evaluations": "3", "networks": "x"},
    "completion": "bash",
    "directory": "runs",
    "preset": "lean",
}


ROLES = ("learner", "actor", "cluster", "evolver")


def helped(capsys):
    """Flag -> the roles that ``--help`` says take it, by the words that it really prints."""
    with pytest.raises(SystemExit):
        parse_distributed(["--help"])
    text = capsys.readouterr().out.partition("examples:")[0]
    entries = re.findall(r"^  (--\w+)(.*?)(?=^  -|^$)", text, re.M | re.S)
    found = {}
    for flag, entry in entries:
        said = re.search(r"\[([a-z ,\n]+)\]", entry)
        found[flag] = set(re.split(r",\s+", said[1])) if said else set(ROLES)
    return found


@pytest.mark.parametrize("role", ROLES)
def test_the_help_offers_exactly_what_a_role_takes(role, capsys):
    offered = helped(capsys)
    assert {"--run", "--learner_host", "--scale", "--agents", "--quiet"} <= set(offered)
    for flag, roles in offered.items():
        value = SAMPLES.get(flag[2:])
        words = [flag] if value is None else [f"{flag}={value}"]
        if role == "cluster" and flag not in ("--num_actors", "--scale"):
            words.append("--num_actors=2")
        if role == "evolver" and flag != "--num_learners":
            words.append("--num_learners=2")
        try:
            parse_distributed(["task", role, *words])
        except SystemExit as left:  # --version and --completion leave as well
            assert left.code == 0 or role not in roles, f"{flag} is offered to {role} and refused"
        else:
            assert role in roles, f"{flag} is taken by {role}, and the help says it is not"
        capsys.readouterr()


def test_the_help_names_the_roles(capsys):
    with pytest.raises(SystemExit):
        parse_distributed(["--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert "{learner,l,actor,a,cluster,evolver,e}" in text
    assert "no effect on a learner" in text and "no effect on GYM" in text
    assert "evolver" in refusal(capsys, "task", "lerner")


def test_an_evolver_has_members(capsys):
    for words in ((), ("--num_learners=1",)):
        assert "needs --num_learners N, at least 2" in refusal(capsys, "task", "evolver", *words)
    options = parse_distributed(["task", "e", "--num_learners=3"])
    assert options.cluster == ClusterOptions(num_learners=3)


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
