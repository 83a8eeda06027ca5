"""The command lines: flags that are given and flags that are not, and the keys that they stand for."""

import re

import pytest

from algorithm.app.cli import parsing
from algorithm.app.cli.ds import ClusterOptions, parse_distributed
from algorithm.app.cli.flags import EVERY_ROLE
from algorithm.app.cli.parsing import parse_args
from algorithm.app.cli.train import TrainOptions
from algorithm.app.cli.train_flags import config_flags, notices
from algorithm.config import Config, load_config
from tests.config.conftest import PENDULUM


def left(parse, words, capsys, code=2):
    """What is printed by a command line that ends the program."""
    with pytest.raises(SystemExit) as ended:
        parse(words)
    assert ended.value.code == code
    out = capsys.readouterr()
    return out.err if code else out.out


def test_what_is_not_given_overrides_nothing():
    assert parse_args(["x"]) == TrainOptions(env="x")
    assert config_flags(parse_args(["x"])) == {} == parse_distributed(["x", "l"]).flags
    assert parse_distributed(["x", "learner"]).cluster == ClusterOptions()


def test_watching_and_several_words():
    assert parse_args(["x", "--watch"]) == parse_args(["x", "--run", "--render", "--disable_sample"])
    assert parse_args(["x", "--report", "a", "b"]).report == ("a", "b")
    assert parse_args(["x", "-o", "a=1", "--override", "b=2"]).overrides == ("a=1", "b=2")


def test_flags_reach_the_configuration(task):
    task(PENDULUM + "    env_args: {a: 1, b: 2}\n")
    line = "gym/task --envs=3 --max_iter=-1 --name=test_{time} --nn=net --env_args b=3 --algorithm=TD3"
    options = parse_args(line.split())
    config = load_config(options.env, flags=config_flags(options)).config
    assert config.algorithm == "TD3"
    base = config.base_config
    found = base.n_envs, base.max_iter, base.name, base.env_args, config.sac_config.nn
    assert found == (3, -1, "test_{time}", {"a": 1, "b": 3}, "net")
    words = ["x", "l", "--learner_host=10.0.0.1", "--learner_port=0", "--insecure", "-p=5006", "--editor"]
    assert parse_distributed(words).flags == {
        "net_config.learner_host": "10.0.0.1",
        "net_config.learner_port": 0,
        "net_config.insecure": True,
        "base_config.unity_args.port": 5006,
        "base_config.unity_args.fixed_port": True,
        "base_config.unity_args.editor": True,
    }


VALUES = {
    "--env_args": {
        "g=9.8": {"g": 9.8},
        "a=1,b=[1,2],c=x y": {"a": 1, "b": [1, 2], "c": "x y"},
        "a=3e-4, b=true, c=null": {"a": 3e-4, "b": True, "c": None},
        "{a: 1, b: {c: d}}": {"a": 1, "b": {"c": "d"}},
        "a: 1, b: x=y": {"a": 1, "b": "x=y"},
        "url=http://x?a=b": {"url": "http://x?a=b"},
    },
    "--device": {"cpu": "cpu", "gpu": "cuda", "GPU:1": "cuda:1", "cuda": "cuda", "auto": "auto"},
    "--ckpt": {"best": "best", "latest": "latest", "0": 0, "2e3": 2000},
    "--max_step": {"-1": -1, "1e6": 1_000_000},
}


@pytest.mark.parametrize("flag", VALUES)
def test_values_are_read(flag):
    for text, value in VALUES[flag].items():
        assert getattr(parse_args(["x", "--run", flag, text]), flag[2:]) == value


@pytest.mark.parametrize(
    ("words", "keys", "on_gym", "on_unity"),
    [
        ("", {}, 0, 0),
        ("-p 5006 --editor", {}, 2, 0),
        ("", {"base_config": {"max_step_each_iter": 50}}, 0, 1),
        ("", {"base_config": {"reset_on_iteration": True}}, 0, 1),
        ("", {"base_config": {"unity_args": {"listen": "all"}}}, 0, 1),
    ],
)
def test_flags_without_an_effect_and_settings_to_know_of_are_told(words, keys, on_gym, on_unity):
    options = parse_args(["x", *words.split()])
    for kind, count in (("GYM", on_gym), ("UNITY", on_unity)):
        base = {"env_type": kind, "env_name": "x", **keys.get("base_config", {})}
        assert len(notices(options, Config.model_validate({**keys, "base_config": base}))) == count
    assert len(notices(options, None)) == (2 if words else 0)


def test_help_shows_every_flag_and_examples_that_are_right(task, capsys):
    text = left(parse_args, ["--help"], capsys, code=0)
    assert all(
        option in text for action in parsing.train_parser()._actions for option in action.option_strings
    )
    task(PENDULUM, name="gym/pendulum")
    examples = [line.split() for line in parsing._EXAMPLES.splitlines() if line.strip().startswith("python")]
    assert len(examples) == 14 and " ".join(examples[0]) in text
    for _, _, *argv in examples:
        options = parse_args([word.strip('"') for word in argv])
        if options.from_mlagents:  # tests/extras/mlagents/test_translation.py
            continue
        load_config(
            options.env, options.config, options.overrides, config_flags(options), require_runnable=True
        )


# ---- roles


@pytest.mark.parametrize("role", ["learner", "actor", "evolver"])
def test_a_role_has_a_short_name(role):
    more = ["--num_learners=2"] if role == "evolver" else []
    assert parse_distributed(["x", role[0], *more]) == parse_distributed(["x", role, *more])


SAMPLES = {
    **{"config": "x", "name": "x", "agents": "2", "env_args": "a=1", "max_iter": "3", "max_step": "9"},
    **{"override": "a.b=1", "learner_host": "h", "learner_port": "1", "port": "1", "device": "cpu"},
    **{"seed": "1", "ckpt": "5", "nn": "x", "num_actors": "2", "ray": "auto"},
    **{"learner_cpus": "2", "actor_cpus": "2", "num_learners": "2", "evaluations": "3"},
    **{
        "init_from": "x",
        "init_parts": "q",
        "directory": "runs",
        "preset": "lean",
        "lesson": "x",
        "algorithm": "PPO",
    },
}
NEEDED = {"cluster": ("--num_actors",), "evolver": ("--num_learners",)}
"""Role -> flags of which it needs one."""


def test_the_help_offers_exactly_what_a_role_takes(capsys):
    """By the words that ``--help`` really prints."""
    text = left(parse_distributed, ["--help"], capsys, code=0).partition("examples:")[0]
    for flag, entry in re.findall(r"^  (--\w+)(.*?)(?=^  -|^$)", text, re.M | re.S):
        said = re.search(r"\[([a-z ,\n]+)\]", entry)
        offered = re.split(r",\s+", said[1]) if said else EVERY_ROLE
        assert [role for role in EVERY_ROLE if takes(role, flag)] == [*offered], flag


def takes(role, flag):
    value = SAMPLES.get(flag[2:])
    words = [flag] if value is None else [f"{flag}={value}"]
    words += ["--run"] * (flag in ("--lesson", "--ckpt"))
    if role in NEEDED and flag not in NEEDED[role]:
        words.append(f"{NEEDED[role][0]}=2")
    try:
        parse_distributed(["task", role, *words])
    except SystemExit as ended:  # --version leaves as well
        return ended.code == 0
    return True
