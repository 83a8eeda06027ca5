"""The command lines: flags that are given and flags that are not, and the keys that they stand for."""

import json
import re

import pytest

from algorithm.app.cli import parsing
from algorithm.app.cli.ds import ClusterOptions, distributed_parser, parse_distributed
from algorithm.app.cli.flags import EVERY_ROLE
from algorithm.app.cli.parsing import parse_args
from algorithm.app.cli.train import TrainOptions, config_flags, notices
from algorithm.config import elsewhere, load_config
from algorithm.config.schema import BaseConfig, Config, fields
from algorithm.env.config import UnityArgs
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
    assert parse_distributed(["x", "learner"]).cluster is None


def test_everything_given():
    argv = (
        "gym/task -c fast --run --logger_in_file --render --env_args g=9.8 --agents 3 --max_iter 4 -n n "
        "--disable_sample --use_env_nn --device cuda:1 --ckpt 1e4 --nn net -o a=1 --override b=2 "
        "--seed 5 --quiet --debug"
    )
    options = parse_args(argv.split())
    assert options == TrainOptions(
        env="gym/task",
        config="fast",
        overrides=("a=1", "b=2"),
        seed=5,
        run=True,
        logger_in_file=True,
        render=True,
        env_args={"g": 9.8},
        agents=3,
        max_iter=4,
        name="n",
        disable_sample=True,
        use_env_nn=True,
        device="cuda:1",
        ckpt=10000,
        nn="net",
        quiet=True,
        debug=True,
    )
    assert options.plays and not options.shares
    assert parse_args(["x", "--watch"]) == parse_args(["x", "--run", "--render", "--disable_sample"])
    assert parse_args(["x", "--report", "a", "b"]).report == ("a", "b")


def test_flags_reach_the_configuration(task):
    task(PENDULUM + "    env_args: {a: 1, b: 2}\n")
    options = parse_args(
        ["gym/task", "--envs=3", "--max_iter=-1", "--name=test_{time}", "--nn=net", "--env_args", "b=3"]
    )
    config = load_config(options.env, flags=config_flags(options)).config
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
        assert getattr(parse_args(["x", flag, text]), flag[2:]) == value


def test_a_task_may_have_the_name_of_a_command(task):
    task(PENDULUM, name="test")
    assert parse_args(["test"]).env == "test"


@pytest.mark.parametrize(
    ("typed", "program"),
    [("bin/asac", "asac"), ("asac/__main__.py", "python -m asac"), ("main.py", "python main.py")],
)
def test_what_to_write_begins_as_what_was_typed(typed, program, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", [typed])
    assert f"write {program} x --max_step 9" in left(parse_args, ["x", "--total_timesteps", "9"], capsys)


def test_what_other_libraries_say_is_said_in_names_that_exist():
    keys = {path[-1] for path, _ in fields()}
    assert {name for ours in (elsewhere.KEYS | elsewhere.RELATED).values() for name in ours} <= keys
    for flags in elsewhere.COMMANDS.values():
        parse_args([*flags, "x"])
    for ours in {*elsewhere.FLAGS.values(), *elsewhere.ALGORITHMS.values()} - {"{}"}:
        parse_args(["x", *ours.format("cpu" if "--device" in ours else "3").split()])


def test_flags_without_an_effect_and_settings_to_know_of_are_told():
    def told(options, kind, **keys):
        reset = {"reset_config": keys.pop("reset_config", None)}
        base = BaseConfig(env_type=kind, env_name="x", **keys)
        return len(notices(options, Config(base_config=base, **reset)))

    plain, given = parse_args(["x"]), parse_args(["x", "-p", "5006", "--editor"])
    sampled = {"mass": {"uniform": [1, 2]}, "size": 1}
    assert [told(given, "GYM"), told(given, "UNITY"), told(plain, "GYM"), len(notices(given, None))] == [
        2,
        0,
        0,
        2,
    ]
    assert [told(plain, kind, reset_config=sampled) for kind in ("GYM", "UNITY")] == [1, 0]
    for keys in (
        {"max_step_each_iter": 50},
        {"reset_on_iteration": True},
        {"unity_args": UnityArgs(listen="all")},
    ):
        assert [told(plain, kind, **keys) for kind in ("GYM", "UNITY")] == [0, 1]


def test_help_shows_every_flag_and_examples_that_are_right(task, capsys):
    text = left(parse_args, ["--help"], capsys, code=0)
    assert all(
        option in text for action in parsing.train_parser()._actions for option in action.option_strings
    )
    task(PENDULUM, name="gym/pendulum")
    examples = [line.split() for line in parsing._EXAMPLES.splitlines() if line.strip().startswith("python")]
    assert len(examples) == 11 and " ".join(examples[0]) in text
    for _, _, *argv in examples:
        options = parse_args([word.strip('"') for word in argv])
        load_config(
            options.env, options.config, options.overrides, config_flags(options), require_runnable=True
        )
    schema = left(parse_args, ["--schema"], capsys, code=0)
    assert "Section" in json.loads(schema)["$defs"]


# ---- flags that the project began with, and roles

MAIN_FLAGS = """--config CONFIG -c CONFIG --run --logger_in_file --render --env_args {a:1} --agents 2
--max_iter 3 --port 1 -p 1 --editor --name NAME -n NAME --disable_sample --use_env_nn --device cpu
--device gpu --ckpt 5 --nn NN --repeat 2"""
DS_FLAGS = """--config CONFIG -c CONFIG --run --logger_in_file --learner_host HOST --learner_port 1 --render
--env_args {a:1} --agents 2 --unity_port 1 -p 1 --editor --name NAME -n NAME --device cpu --ckpt 5 --nn NN"""


def usages(text):
    """Each flag with its value, if it has one."""
    return [match.split() for match in re.findall(r"-[^\s]+(?: (?!-)\S+)?", " ".join(text.split()))]


def test_every_flag_and_role_that_the_project_began_with_is_read():
    for flag in usages(MAIN_FLAGS):
        assert parse_args(["x", *flag]) != TrainOptions(env="x"), flag
    for flag in usages(DS_FLAGS):
        assert parse_distributed(["x", "learner", *flag]) != parse_distributed(["x", "learner"]), flag
    for role in ("learner", "actor", "evolver"):
        more = ["--num_learners=2"] if role == "evolver" else []
        assert {parse_distributed(["x", name, *more]).role for name in (role, role[0])} == {role}


SAMPLES = {
    **{"config": "x", "name": "x", "agents": "2", "env_args": "a=1", "max_iter": "3", "max_step": "9"},
    **{"override": "a.b=1", "learner_host": "h", "learner_port": "1", "port": "1", "device": "cpu"},
    **{"seed": "1", "ckpt": "5", "nn": "x", "num_actors": "2", "ray": "auto", "scale": "2"},
    **{"learner_cpus": "2", "actor_cpus": "2", "num_learners": "2", "evaluations": "3", "networks": "x"},
    **{"completion": "bash", "directory": "runs", "preset": "lean"},
}
NEEDED = {"cluster": ("--num_actors", "--scale"), "evolver": ("--num_learners",)}
"""Role -> flags of which it needs one."""


@pytest.fixture
def helped(capsys):
    """Flag -> the roles that ``--help`` of main_ds.py says take it, by the words that it really prints."""
    text = left(parse_distributed, ["--help"], capsys, code=0).partition("examples:")[0]
    entries = re.findall(r"^  (--\w+)(.*?)(?=^  -|^$)", text, re.M | re.S)
    said = {flag: re.search(r"\[([a-z ,\n]+)\]", entry) for flag, entry in entries}
    return {
        flag: set(re.split(r",\s+", roles[1])) if roles else set(EVERY_ROLE) for flag, roles in said.items()
    }


@pytest.mark.parametrize("role", EVERY_ROLE)
def test_the_help_offers_exactly_what_a_role_takes(role, helped, capsys):
    assert {"--run", "--learner_host", "--scale", "--agents", "--quiet"} <= set(helped)
    for flag, roles in helped.items():
        value = SAMPLES.get(flag[2:])
        words = [flag] if value is None else [f"{flag}={value}"]
        if role in NEEDED and flag not in NEEDED[role]:
            words.append(f"{NEEDED[role][0]}=2")
        try:
            parse_distributed(["task", role, *words])
        except SystemExit as ended:  # --version and --completion leave as well
            assert ended.code == 0 or role not in roles, f"{flag} is offered to {role} and refused"
        else:
            assert role in roles, f"{flag} is taken by {role}, and the help says it is not"
        capsys.readouterr()


def test_placement_by_ray():
    assert parse_distributed(["x", "e", "--num_learners=3"]).cluster == ClusterOptions(num_learners=3)
    options = parse_distributed(["x", "cluster", "--num_actors=2", "--actor_cpus=0.5"])
    assert options.cluster == ClusterOptions(num_actors=2, actor_cpus=0.5)
    assert distributed_parser().get_default("learner_cpus") == 1.0
