"""Loading: layers, sections, files, anchors, overrides, flags; and several faults at once."""

import pytest

from algorithm.config import Config, ConfigError, find_env, load_config
from algorithm.config.resolve import build, in_blocks
from algorithm.config.schema import fields, value_at
from algorithm.config.tree import Node, from_value, from_value_at
from tests.config.conftest import PENDULUM, places, refusal

FILE = "envs/gym/task/config.yaml"
LAYERS = """\
default:
  base_config: {env_type: GYM, env_name: Pendulum-v1}
  sac_config: {n_step: 2, tau: 0.1, gamma: 0.9, batch_size: 32}
  nn_config:
    rep: {dense_n: 64, dense_depth: 2}
one:
  sac_config: {n_step: 3, tau: 0.2}
two:
  sac_config: {tau: 0.3, v_c: 0.5}
three:
  inherited: one
  sac_config: {v_c: 0.25}
chosen:
  inherited: [three, two]
  sac_config: {batch_size: 64}
  nn_config:
    rep: {dense_n: 8}
cleared:
  nn_config: {rep: null}
hollow:
  sac_config:
empty:
"""


def test_layers_lie_in_the_documented_order(task):
    task(LAYERS)
    config = load_config("gym/task", "chosen", ["sac_config.gamma=0.5"]).config
    sac = config.sac_config
    # default 2, one 3 (by way of three) · one 0.2, two 0.3 · three 0.25, two 0.5 · chosen 64 · -o 0.5
    assert (sac.n_step, sac.tau, sac.v_c, sac.batch_size, sac.gamma) == (3, 0.3, 0.5, 64, 0.5)
    assert config.nn_config.rep == {"dense_n": 8, "dense_depth": 2}
    plain = load_config("gym/task", seed=1).config
    assert plain.sac_config.n_step == 2
    assert load_config("gym/task", "cleared").config.nn_config.rep is None
    for section in ("hollow", "empty"):
        assert load_config("gym/task", section, seed=1).config == plain


def test_anchors_and_merge_keys_work(task):
    task("""\
        default:
          base_config: &base {env_type: GYM, env_name: Pendulum-v1, n_envs: 2}
        other:
          base_config:
            <<: *base
            n_envs: 3
        several:
          base_config:
            n_envs: 4
            <<: [{env_timeout: 7.0, n_envs: 5}, {env_timeout: 9.0}]
        """)
    base = load_config("gym/task", "other").config.base_config
    assert (base.env_name, base.n_envs) == ("Pendulum-v1", 3)
    base = load_config("gym/task", "several").config.base_config
    assert (base.n_envs, base.env_timeout) == (4, 7.0)


def test_config_names_a_section_before_a_file(task):
    task(PENDULUM + "config:\n  base_config: {n_envs: 2}\nfast:\n  base_config: {n_envs: 3}\n")
    other = task(PENDULUM + "    n_envs: 5\nfast:\n  base_config: {n_envs: 4}\n", file="other.yaml")
    chosen = {"config": 2, "config.yaml": 1, "fast": 3, "other": 5, "other.yaml": 5, "other:fast": 4}
    for name, count in chosen.items():
        assert load_config("gym/task", name).config.base_config.n_envs == count
    loaded = load_config("gym/task", "other:default")
    assert (loaded.file, loaded.section, loaded.env_label) == (other, "default", "gym/task")


def test_an_environment_is_a_name_or_any_folder(task, tmp_path):
    inside = task(PENDULUM).parent
    outside = tmp_path / "elsewhere" / "mine"
    outside.mkdir(parents=True)
    (outside / "config.yaml").write_text(PENDULUM)
    for env in ("gym/task", "gym/task/", "envs/gym/task", str(inside)):
        assert (find_env(env).path, find_env(env).label) == (inside, "gym/task")
    assert (find_env("elsewhere/mine").path, find_env(str(outside)).label) == (outside, "mine")


OVERRIDES = {
    "sac_config.learning_rate=1e-3": 1e-3,
    "replay_config.capacity=1e6": 1_000_000,
    "sac_config.use_priority=false": False,
    "base_config.name=123": "123",
    "base_config.env_name={time}": "{time}",
    "base_config.env_args={g: 9.8}": {"g": 9.8, "deep": {"er": [1, 2]}},
    "base_config.env_args.deep.er=[1, 2]": None,
    "base_config.n_envs=2": 4,
    "sac_config.seed=7": 7,
    "nn_config.rep.dense_n=32": None,
    "sac_config.nn='quoted'": "quoted",
}


SHORT = [
    # algorithm, key as it was written → key that it is; the same where it fits no block or several
    ("SAC", "learning_rate", "sac_config.learning_rate"),
    ("PPO", "learning_rate", "ppo_config.learning_rate"),
    ("ACER", "learning_rate", "acer_config.learning_rate"),
    ("their:Family", "learning_rate", "sac_config.learning_rate"),
    ("TD3", "capacity", "replay_config.capacity"),
    ("SAC", "max_step", "base_config.max_step"),  # eval_config has it too
    ("SAC", "episodes", "eval_config.episodes"),
    ("PPO", "n_step", "sac_config.n_step"),  # and is refused as SAC's
    ("PPO", "batch_size", "sac_config.batch_size"),
    ("SAC", "updates", "updates"),
    ("SAC", "clip", "ppo_config.clip"),
    ("SAC", "algorithm", "algorithm"),
    ("SAC", "nowhere", "nowhere"),
    ("SAC", "alpha", "alpha"),  # elsewhere the temperature
]


@pytest.mark.parametrize(("algorithm", "written", "key"), SHORT)
def test_a_key_without_its_block_is_that_of_the_algorithm(algorithm, written, key):
    below, chosen = from_value({"algorithm": algorithm}, "a file"), {"algorithm": algorithm}
    assert in_blocks({written: 1}, below, {}) == {key: 1}
    assert in_blocks([f"{written}=1"], Node({}), chosen) == [f"{key}=1"]


def test_keys_without_blocks_are_kept_with_them(loaded):
    found = loaded("batch_size=64", "q={dense_n: 5}")
    assert found.overrides == ("sac_config.batch_size=64", "nn_config.q={dense_n: 5}")
    assert found.config.run.batch_size == 64
    with pytest.raises(ConfigError, match="cannot read the override `batch_size`"):
        loaded("batch_size")


def test_overrides_are_typed_by_the_schema_and_flags_win(loaded):
    found = loaded(*OVERRIDES, seed=None, flags={"base_config.n_envs": 4})
    for text, value in OVERRIDES.items():
        if value is not None:
            read = value_at(found.config, tuple(text.partition("=")[0].split(".")))
            assert read == value and type(read) is type(value), text
    assert found.config.nn_config.rep == {"dense_n": 32}
    assert found.overrides == tuple(OVERRIDES) and found.raw["base_config"]["n_envs"] == 4
    assert found.is_set("base_config.name") and not found.is_set("sac_config.tau")


ACCEPTED = {
    "learning_rate: 3e-4": 3e-4,
    'learning_rate: "3e-4"': 3e-4,
    "n_step: 010": 10,
    "learning_rate: 3E-4": 3e-4,
    "gamma: 1": 1.0,
    "batch_size: 1e2": 100,
    'batch_size: "64"': 64,
    "clip_epsilon: -1": -1.0,
    "start_step: 0": 0,
    "nn: 2024-01-01": "2024-01-01",
}


@pytest.mark.parametrize("written", ACCEPTED)
def test_what_is_meant_well_is_understood(task, written):
    task(f"{PENDULUM}  sac_config:\n    {written}\n")
    found = getattr(load_config("gym/task").config.sac_config, written.partition(":")[0])
    assert found == ACCEPTED[written] and type(found) is type(ACCEPTED[written])


@pytest.mark.parametrize(
    ("text", "wrappers"),
    [
        ("[ClipReward, 'my.module:Wrapper']", ({"ClipReward": None}, {"my.module:Wrapper": None})),
        ("[{TimeLimit: {max_episode_steps: 5}}]", ({"TimeLimit": {"max_episode_steps": 5}},)),
        ("[{ClipReward: }, {ClipReward: {}}]", ({"ClipReward": None}, {"ClipReward": {}})),
        ("[]", ()),
    ],
)
def test_a_wrapper_is_a_name_alone_or_with_arguments(loaded, text, wrappers):
    assert loaded(f"base_config.wrappers={text}").config.base_config.wrappers == wrappers


def test_the_seed_comes_from_the_argument_the_file_or_nowhere(task):
    task(PENDULUM + "  sac_config: {seed: 5}\nfresh:\n  sac_config: {seed: null}\n")
    assert load_config("gym/task").seed == 5
    assert load_config("gym/task", seed=9).seed == 9
    drawn = {load_config("gym/task", "fresh").seed for _ in range(3)}
    assert len(drawn) == 3 and all(isinstance(seed, int) for seed in drawn)


def test_differences_name_what_is_not_the_default(task):
    """And nothing that says nothing with the algorithm."""
    task(PENDULUM + "  sac_config: {n_step: 5, tau: 0.02}\n  ma_config: {B: {sac_config: {n_step: 4}}}\n")
    expected = {
        "base_config.env_type": "GYM",
        "base_config.env_name": "Pendulum-v1",
        "sac_config.n_step": 5,
        "sac_config.tau": 0.02,
        "ma_config.B.sac_config.n_step": 4,
    }
    assert load_config("gym/task").differences() == expected
    shown = load_config("gym/task", overrides=["algorithm=PPO", "ppo_config.clip=0.1"]).differences()
    assert {"algorithm", "ppo_config.clip"} <= shown.keys() and "sac_config.tau" not in shown


def test_a_cycle_free_diamond_loads_and_unused_sections_are_not_judged(task):
    task("""\
        default: {base_config: {env_type: GYM}}
        top: {sac_config: {n_step: 2}}
        left: {inherited: top}
        right: {inherited: top}
        bottom: {inherited: [left, right]}
        unused: {algorithm: ACKTR, inherited: unused}
        """)
    assert load_config("gym/task", "bottom").config.sac_config.n_step == 2


def test_a_task_of_sac_can_be_tried_with_another_algorithm(task):
    """Keys of SAC in its section are named, or switched off; those written beside the flag are refused."""
    task(
        PENDULUM + "  nn_config: {q: {dense_n: 8}, rep: {dense_n: 8}}\n"
        "  sac_config: {tau: 0.02, use_rnd: true, siamese: null, gamma: 0.9}\nppo: {algorithm: PPO}\n"
        "wide: {inherited: ppo, sac_config: {tau: 0.03}}\n"
    )
    chosen = load_config("gym/task", "wide", flags={"algorithm": "A2C"})
    assert chosen.left_out == ("sac_config.tau", "sac_config.use_rnd")
    default = load_config("gym/task", overrides=["algorithm=A2C"])
    assert default.left_out == ("nn_config.q", *chosen.left_out)
    for config in (chosen.config, default.config):
        assert (config.algorithm, config.run.gamma, config.run.use_rnd) == ("A2C", 0.9, False)
    for section, flags in (("default", {"algorithm": "SAC"}), ("ppo", {"algorithm": "PPO"})):
        assert load_config("gym/task", section, ["sac_config.use_rnd=false"], flags).left_out == ()
    for key in ("tau=0.1", "use_rnd=true"):
        with pytest.raises(ConfigError, match=f"sac_config.{key.partition('=')[0]}"):
            load_config("gym/task", overrides=[f"sac_config.{key}"], flags={"algorithm": "PPO"})
    assert load_config("gym/task", "ppo", flags={"algorithm": "A2C"}).config.algorithm == "A2C"


def test_a_behaviour_with_an_algorithm_of_its_own_keeps_its_keys(task):
    task(
        PENDULUM + "  sac_config: {tau: 0.02}\n  td3_config: {policy_delay: 3}\n  ma_config:\n"
        "    A: {algorithm: SAC, sac_config: {n_step: 4}}\n    B: {sac_config: {n_step: 5}}\n"
    )
    loaded = load_config("gym/task", flags={"algorithm": "PPO"})
    assert loaded.left_out == ("sac_config.tau", "td3_config.policy_delay", "ma_config.B.sac_config.n_step")
    own = loaded.behaviours["A"]
    assert (own.algorithm, own.sac_config.tau, own.sac_config.n_step) == ("SAC", 0.02, 4)
    assert loaded.behaviours["B"].algorithm == "PPO"


@pytest.mark.fault("F21")
def test_all_faults_are_told_at_once(task):
    task("""\
        default:
          base_config:
            env_type: GYM
            max_step: 0
          sac_config:
            learning_rte: 1e-3
            n_step: 1
            n_step: 2
            capacity: 3
        bad:
          inherited: [bad, nowhere]
          replay_config: {alpha: high}
        """)
    error = refusal("gym/task", "bad", ["sac_config.lr=1", "noequals"], {"base_config.n_envs": 0}, seed=-3)
    lines = [4, 6, 8, 9, 11, 11, 12]
    others = ["--seed", "-o noequals", "-o sac_config.lr=1", "command line (base_config.n_envs)"]
    assert sorted(where for _, where in places(error)) == sorted([*(f"{FILE}:{n}" for n in lines), *others])
    assert str(error).startswith("configuration refused, 11 problems:\n1. ") and error.exit_code == 2


WRONG = (
    None,
    True,
    -7,
    2.5,
    float("inf"),
    "",
    "text",
    "1e999",
    [None],
    [0, 1, 2],
    [{"a": 1}],
    {},
    {"a": [None]},
)


@pytest.mark.fault("F21")
def test_whatever_a_key_is_set_to_it_is_accepted_or_refused_in_full():
    for path, _ in fields():
        for value in WRONG:
            problems = []
            assert isinstance(build(from_value_at(path, value, "here"), problems), Config)
            assert all(problem.what and problem.why and problem.fix for problem in problems), path
