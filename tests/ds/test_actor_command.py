"""What a learner shows is the command of an actor that fits it."""

import shlex

import pytest

from algorithm.app.cli.ds import parse_distributed
from algorithm.config import by_spaces
from algorithm.config.loader import dump_config, load_config, load_config_file
from algorithm.config.schema import DISTRIBUTED_DEFAULTS
from algorithm.config.tree import from_value
from algorithm.core.spec import ActionSpec, AgentSpec, ObsSpec
from algorithm.run.context import fitted
from ds.compatibility import actor_command, settings

SPECS = {"default": AgentSpec(ObsSpec(("obs",), ((3,),), ("float32",)), ActionSpec(continuous=1))}
TASK = """\
default:
  base_config: {env_type: GYM, env_name: Pendulum-v1}
  nn_config: {rep: {dense_n: 8}}
many:
  base_config: {max_episode_length: 30}
"""


@pytest.fixture
def task(cwd):
    (cwd / "task").mkdir()
    (cwd / "task" / "config.yaml").write_text(TASK)
    (cwd / "task" / "more.yaml").write_text(TASK.replace("many", "fast"))
    (cwd / "task" / "nn_b.py").touch()


def load(*arguments):
    options = parse_distributed(["./task", *arguments])
    own = options.train
    return load_config(
        own.env, own.config, own.overrides, options.flags, seed=1, defaults=DISTRIBUTED_DEFAULTS
    )


def shown(loaded, port=61001):
    """The words after the role, and what an actor of that command has."""
    words = shlex.split(actor_command(loaded, SPECS, "./task", port))
    assert words[:4] == ["python", "main_ds.py", "./task", "actor"]
    return words[4:], fitted(load(*words[3:]), SPECS)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ([], []),
        (["-c", "many"], ["-c", "many"]),
        (["-c", "more.yaml:fast"], ["-c", "more.yaml:fast"]),
        (["-c", "more.yaml"], ["-c", "more.yaml:default"]),
        (["-c", "seed"], ["-c", "seed"]),  # of everybody
        (["-o", "sac_config.gamma=0.9"], ["-o", "sac_config.gamma=0.9"]),
        (["--algorithm", "PPO"], ["-o", 'algorithm="PPO"']),
        (["--nn", "nn_b"], ["-o", 'sac_config.nn="nn_b"']),
        (["--env_args", "g=5"], ["-o", 'base_config.env_args={"g": 5}']),
        (["--insecure", "--learner_host", "10.0.0.1"], ["--learner_host", "10.0.0.1", "--insecure"]),
        (["--learner_host", "0.0.0.0"], ["--learner_host", "HOST"]),
    ],
)
def test_an_actor_of_that_command_fits(task, flags, words):
    learner = fitted(load("learner", *flags), SPECS)
    said, actor = shown(learner)
    assert said == words
    assert settings(actor.config) == settings(learner.config)


def test_a_task_that_cannot_be_read_any_more_and_another_folder_of_all_runs(task, tmp_path):
    learner = load("learner")
    (tmp_path / "task" / "config.yaml").write_text("default: {nonsense: 1}")
    words = shlex.split(actor_command(learner, SPECS, "./task", 5, tmp_path / "all runs"))
    assert words[4:] == ["--directory", "all runs", "--learner_port", "5"]


@pytest.mark.parametrize(
    ("norm", "plain"),
    [("layer", False), ("batch", True)],  # what is set has the section left out, or not
)
def test_an_actor_of_another_version_has_the_values_of_a_resumed_run(
    task, tmp_path, monkeypatch, norm, plain
):
    first = fitted(load("learner"), SPECS)
    (tmp_path / "own.yaml").write_text(dump_config(first))
    resumed = fitted(load_config_file(tmp_path / "own.yaml"), SPECS)
    said, actor = shown(resumed)
    assert said == [] and settings(actor.config) == settings(first.config)
    tree = {"nn_config": {"q": {"norm": norm}}, "sac_config": {"start_repeat_c": 3}}
    monkeypatch.setattr(by_spaces, "shipped", lambda: from_value({"continuous": tree}, "later"))
    said, actor = shown(resumed)
    assert settings(actor.config) == settings(first.config)
    assert ("base_config.preset=plain" in said) == plain
