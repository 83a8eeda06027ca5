"""The command line: flags that are given and flags that are not, helpful refusals."""

import json

import pytest

from algorithm.app.cli import train as cli
from algorithm.app.cli.parsing import parse_args
from algorithm.app.cli.train import TrainOptions, config_flags, notices
from algorithm.config import elsewhere, load_config
from algorithm.config.schema import BaseConfig, Config, fields
from algorithm.env.config import UnityArgs
from tests.config.conftest import PENDULUM


def refused(argv, capsys, code=2):
    with pytest.raises(SystemExit) as left:
        parse_args(argv)
    assert left.value.code == code
    out = capsys.readouterr()
    return out.err if code else out.out


def test_nothing_given_overrides_nothing():
    options = parse_args(["gym/task"])
    assert options == TrainOptions(env="gym/task")
    assert config_flags(options) == {}


def test_everything_given():
    argv = (
        "gym/task -c fast --run --logger_in_file --render --env_args g=9.8 --agents 3 --max_iter 4 -n n "
        "--disable_sample --use_env_nn --device cuda:1 --ckpt 1e4 --nn net --repeat 2 -o a=1 --override b=2 "
        "--seed 5 --quiet --debug"
    )
    assert parse_args(argv.split()) == TrainOptions(
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
        repeat=2,
        quiet=True,
        debug=True,
    )


def test_flags_reach_the_configuration(task):
    task(PENDULUM + "    env_args: {a: 1, b: 2}\n")
    options = parse_args(
        ["gym/task", "--envs=3", "--max_iter=-1", "--name=test_{time}", "--nn=net", "--env_args", "b=3"]
    )
    config = load_config(options.env, flags=config_flags(options)).config
    base = config.base_config
    assert (base.n_envs, base.max_iter, base.name, config.sac_config.nn) == (
        3,
        -1,
        "test_{time}",
        "net",
    )
    assert base.env_args == {"a": 1, "b": 3}


@pytest.mark.parametrize(
    "text, value",
    [
        ("g=9.8", {"g": 9.8}),
        ("a=1,b=[1,2],c=x y", {"a": 1, "b": [1, 2], "c": "x y"}),
        ("a=3e-4, b=true, c=null", {"a": 3e-4, "b": True, "c": None}),
        ("{a: 1, b: {c: d}}", {"a": 1, "b": {"c": "d"}}),
        ("a: 1, b: x=y", {"a": 1, "b": "x=y"}),
        ("url=http://x?a=b", {"url": "http://x?a=b"}),
    ],
)
def test_env_args_are_pairs_or_a_yaml_mapping(text, value):
    assert parse_args(["x", "--env_args", text]).env_args == value


@pytest.mark.parametrize(
    "text, device", [("cpu", "cpu"), ("gpu", "cuda"), ("GPU:1", "cuda:1"), ("cuda", "cuda"), ("auto", "auto")]
)
def test_devices(text, device):
    assert parse_args(["x", "--device", text]).device == device


@pytest.mark.parametrize("text, which", [("best", "best"), ("latest", "latest"), ("0", 0), ("2e3", 2000)])
def test_checkpoints(text, which):
    assert parse_args(["x", "--ckpt", text]).ckpt == which


@pytest.mark.fault("F21")
@pytest.mark.parametrize(
    "argv, said",
    [
        ("x --max_itr 3", "did you mean --max_iter?"),
        ("x --agents 0", "0 is not a whole number ≥ 1"),
        ("x --agents two", "two is not a whole number"),
        ("x --repeat 1.5", "1.5 is not a whole number"),
        ("x --seed -1", "-1 is not a whole number ≥ 0"),
        ("x --ckpt inf", "inf is not a whole number ≥ 0, and neither latest nor best"),
        ("x --ckpt Best", "neither latest nor best"),
        ("x --max_iter 0", "0 is not a whole number ≥ 1"),
        ("x --device tpu", "none of cpu, cuda"),
        ("x --env_args [1", "cannot read"),
        ("x --env_args [1]", "neither k=v,k=v nor a YAML mapping"),
        ("x --env_args word", "neither k=v,k=v nor a YAML mapping"),
        ("", "required: env"),
        ("x y", "unrecognized arguments: y"),
        ("x --algo ppo", "write python main.py x -o algorithm=PPO"),
        ("--algo=crossq --env x", "write python main.py x --preset cross"),
        ("x --algo td3", "write one of -o algorithm=SAC, -o algorithm=PPO"),
        ("x --total_timesteps 100", "write python main.py x --max_step 100"),
        ("--env-id x --n-steps 9 --algo ppo", "write python main.py x -o ppo_config.rollout_step=9 -o algo"),
        ("x --lr 3e-4 --capture-video", "x -o sac_config.learning_rate=3e-4 -o eval_config.video=true"),
        ("x --num-envs", "python main.py --help shows every flag"),
        ("x --max-step 3", "did you mean --max_step?"),
        ("train x --seed 1", "write python main.py x --seed 1"),
        ("x --steps 100 --no-cuda", "write python main.py x --max_step 100 --device cpu"),
        ("x evaluate", "write python main.py x --eval 10"),
        ("list", "write python main.py --list"),
        ("train", "name what to train: python main.py gym/pendulum"),
        ("x --age 3", "unrecognized arguments"),  # no abbreviations: they would change meaning with new flags
    ],
)
def test_mistakes_are_told_in_the_common_shape(argv, said, capsys):
    text = refused(argv.split(), capsys)
    assert said in text
    for part in ("\n  where  ", "\n  why    ", "\n  to do  "):
        assert part in text


def test_nothing_at_all_is_told_what_to_name(capsys):
    text = refused([], capsys)
    assert "name what to train: python main.py gym/pendulum, or python main.py CartPole-v1" in text


@pytest.mark.parametrize(
    "typed, program",
    [("bin/asac", "asac"), ("asac/__main__.py", "python -m asac"), ("main.py", "python main.py")],
)
def test_what_to_write_begins_as_what_was_typed(typed, program, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", [typed])
    assert f"write {program} x --max_step 9" in refused(["x", "--total_timesteps", "9"], capsys)


def test_a_task_may_have_the_name_of_a_command(task):
    task(PENDULUM, name="test")
    assert parse_args(["test"]).env == "test"


def test_what_other_libraries_say_is_said_in_names_that_exist():
    keys = {path[-1] for path, _ in fields()}
    assert {name for ours in (elsewhere.KEYS | elsewhere.RELATED).values() for name in ours} <= keys
    for flags in elsewhere.COMMANDS.values():
        parse_args([*flags, "x"])
    for ours in {*elsewhere.FLAGS.values(), *elsewhere.ALGORITHMS.values()} - {"{}"}:
        value = "cpu" if "--device" in ours else "3"
        parse_args(["x", *ours.format(value).split()])


def test_every_refusal_begins_as_an_error(capsys):
    assert refused(["x", "--sed", "1"], capsys).startswith("error: configuration refused")


@pytest.mark.parametrize(
    "argv, said",
    [
        ("--resume --run", "--run, --eval or --video and --resume cannot go together"),
        ("--check --dry_run", "--check and --dry_run cannot go together"),
        ("--report a --eval 3", "--run, --eval or --video and --report cannot go together"),
        ("--repeat 2 --resume", "--repeat and --resume cannot go together"),
        ("--from x.json", "--from needs --check"),
        ("--from x.json --dry_run", "--from needs --check"),
        ("--record x.npz --video", "--record needs --run or --eval"),
        ("--eval 0", "0 is not a whole number ≥ 1"),
        ("--report", "expected at least one argument"),
    ],
)
def test_what_cannot_go_together_is_refused(argv, said, capsys):
    assert said in refused(["x", *argv.split()], capsys)


@pytest.mark.parametrize(
    "argv, plays", [("--run", True), ("--eval 3", True), ("--video", True), ("--resume", False)]
)
def test_playing_is_told_from_training(argv, plays):
    assert parse_args(["x", *argv.split()]).plays == plays


def test_unity_flags_have_no_effect_and_say_so():
    options = parse_args(["x", "-p", "5006", "--editor"])
    gym = Config(base_config=BaseConfig(env_type="GYM", env_name="x"))
    unity = Config(base_config=BaseConfig(env_type="UNITY", env_name="x"))
    assert notices(options, gym) == [
        "--port has no effect on GYM: it is for Unity environments",
        "--editor has no effect on GYM: it is for Unity environments",
    ]
    assert all("no effect on this command" in notice for notice in notices(options, None))
    assert notices(options, unity) == []
    assert notices(parse_args(["x"]), gym) == []
    sampled = {"reset_config": {"mass": {"uniform": [1, 2]}, "size": 1}}
    (notice,) = notices(parse_args(["x"]), gym.model_copy(update=sampled))
    assert "reset_config.mass is handed to reset() as it is" in notice
    assert notices(options, unity.model_copy(update=sampled)) == []


@pytest.mark.parametrize("flag", ["-p", "--port", "--unity_port"])
def test_unity_flags_stand_for_keys(flag):
    options = parse_args(["x", flag, "5006", "--editor"])
    assert config_flags(options) == {
        "base_config.unity_args.port": 5006,
        "base_config.unity_args.fixed_port": True,
        "base_config.unity_args.editor": True,
    }
    assert config_flags(parse_args(["x"])) == {}


@pytest.mark.parametrize("port", ["0", "65536", "5005.5", "x"])
def test_a_wrong_port_is_refused(port, capsys):
    assert "argument --port/-p/--unity_port" in refused(["x", "-p", port], capsys)


def test_listening_on_every_interface_is_announced():
    base = BaseConfig(env_type="UNITY", env_name="x", unity_args=UnityArgs(listen="all"))
    assert "neither a password nor encryption" in "".join(
        notices(parse_args(["x"]), Config(base_config=base))
    )


@pytest.mark.parametrize("keys", [{"max_step_each_iter": 50}, {"reset_on_iteration": True}], ids=str)
def test_a_reset_of_one_unity_agent_is_announced_as_one_of_all(keys):
    unity, gym = (
        Config(base_config=BaseConfig(env_type=kind, env_name="x", **keys)) for kind in ("UNITY", "GYM")
    )
    (notice,) = notices(parse_args(["x"]), unity)
    assert "all its agents" in notice
    assert notices(parse_args(["x"]), gym) == []


def test_help_shows_every_flag_and_the_examples(capsys):
    text = refused(["--help"], capsys, code=0)
    for action in cli.train_parser()._actions:
        assert all(option in text for option in action.option_strings)
    assert "python main.py gym/pendulum -c config" in text


def test_the_examples_of_the_help_are_right(task, capsys):
    task(PENDULUM, name="gym/pendulum")
    examples = [line.split() for line in cli._EXAMPLES.splitlines() if line.strip().startswith("python")]
    assert len(examples) == 11
    for _, _, *argv in examples:
        options = parse_args([word.strip('"') for word in argv])
        load_config(
            options.env, options.config, options.overrides, config_flags(options), require_runnable=True
        )


def test_schema_prints_the_json_schema_without_an_environment(capsys):
    assert "Section" in json.loads(refused(["--schema"], capsys, code=0))["$defs"]
