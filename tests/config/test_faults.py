"""F21: each fault of a configuration with its file, line, path and suggestion, and all of them at once."""

# ruff: noqa: E501 - a table of faults is read across, one fault a line
import json
import re
import subprocess
import sys

import pytest
from pydantic import ValidationError

from algorithm.config import Config, ConfigError, load_config, load_config_file, reference
from algorithm.config.schema import fields
from tests.config.conftest import PENDULUM, refusal

pytestmark = pytest.mark.fault("F21")
FILE = "envs/gym/task/config.yaml"


def only(error):
    assert len(error.problems) == 1, str(error)
    return error.problems[0]


SINGLE = {
    # what is written below `default`, what is said, line, suggestion
    "typo": ("  sac_config: {learning_rte: 1}", "unknown key `sac_config.learning_rte`", 5, "`learning_rate`"),
    "typo of a block": ("  sac_confg: {}", "unknown key `sac_confg`", 5, "did you mean `sac_config`"),
    "wrong block": ("  sac_config: {capacity: 9}", "unknown key `sac_config.capacity`", 5, "belongs under replay_config"),
    "no block": ("  n_step: 3", "unknown key `n_step`", 5, "belongs under sac_config"),
    "block in block": ("  sac_config:\n    eval_config: {}", "`sac_config.eval_config`", 6, "the top level of a section"),
    "typo elsewhere": ("  sac_config: {capacty: 9}", "`sac_config.capacty`", 5, "`replay_config.capacity`"),
    "another library's key": ("  sac_config: {lr: 1}", "`sac_config.lr`", 5, "did you mean `learning_rate`?"),
    "another library's key elsewhere": ("  sac_config: {n_epochs: 9}", "`sac_config.n_epochs`", 5, "`ppo_config.num_epoch`"),
    "another library's key of several": ("  ent_coef: 9", "`ent_coef`", 5, "`sac_config.init_log_alpha` or `ppo_config.entropy_coef` or"),
    "wild key": ("  sac_config: {zzzzzz: 9}", "`sac_config.zzzzzz`", 5, "known here: nn, seed"),
    "text for number": ("  sac_config:\n    n_step: many", "wrong value `sac_config.n_step: many`", 6, "≥ 1"),
    "fraction for int": ("  sac_config: {n_step: 2.5}", "wrong value `sac_config.n_step: 2.5`", 5, "whole number"),
    "bool for int": ("  sac_config: {n_step: true}", "wrong value `sac_config.n_step: true`", 5, "whole number"),
    "number for bool": ("  sac_config: {use_priority: 1}", "`sac_config.use_priority: 1`", 5, "true or false"),
    "number for text": ("  sac_config: {nn: 3}", "wrong value `sac_config.nn: 3`", 5, "text"),
    "out of bounds": ("  sac_config: {gamma: 1.5}", "wrong value `sac_config.gamma: 1.5`", 5, "from 0 to 1"),
    "not finite": ("  sac_config: {tau: .nan}", "wrong value `sac_config.tau: .nan`", 5, "a number"),
    "null for number": ("  sac_config: {n_step: null}", "`sac_config.n_step: null`", 5, "whole number"),
    "no choice": ("  base_config: {env_type: GIM}", "`base_config.env_type: GIM`", 5, "UNITY, GYM, DM_CONTROL"),
    "mapping for number": ("  sac_config: {n_step: {a: 1}}", "`sac_config.n_step: {a: 1}`", 5, "whole number"),
    "value for block": ("  sac_config: 3", "`sac_config` has no keys", 5, "indented below"),
    "zero limit": ("  eval_config: {per_step: 0}", "`eval_config.per_step: 0`", 5, "set it to -1 or"),
    "below no limit": ("  eval_config: {per_step: -2}", "`eval_config.per_step: -2`", 5, "set it to -1 or"),
    "two kinds of noise": ("  base_config: {noise_increasing_rate: 0.1}\n  sac_config: {action_noise: [0, 0.1]}", "`base_config.noise_increasing_rate` and `sac_config.action_noise` contradict", 5, "set one of them"),
    "two encoders with a memory": ("  algorithm: PPO\n  ppo_config: {shared: false}\n  sac_config: {seq_encoder: RNN}", "`ppo_config.shared` and `sac_config.seq_encoder` contradict", 6, "leave ppo_config.shared or seq_encoder out"),
    "noise of actors with PPO": ("  algorithm: PPO\n  base_config: {noise_increasing_rate: 0.1}", "`base_config.noise_increasing_rate` and `algorithm` contradict", 6, "leave noise_increasing_rate out"),
    "a reward of nothing": ("  reward_signals: {extrinsic: {strength: 0}}", "`reward_signals.extrinsic.strength` and `reward_signals.rnd.strength` and `reward_signals.gail.strength` contradict", 5, "raise one of them"),
    "GAIL of nothing": ("  reward_signals: {gail: {strength: 1}}", "`reward_signals.gail.strength` and `demonstrations.path` contradict", 5, "set demonstrations.path"),
    "cloning of nothing": ("  algorithm: PPO\n  behavioral_cloning: {strength: 1}", "`behavioral_cloning.strength` and `demonstrations.path` contradict", 6, "set demonstrations.path"),
    "cloning with SAC": ("  behavioral_cloning: {strength: 1}\n  demonstrations: {path: a.npz}", "`behavioral_cloning.strength` and `algorithm` contradict", 5, "set algorithm: PPO or A2C"),
    "pretraining without cloning": ("  algorithm: PPO\n  behavioral_cloning: {pretrain: 9}", "`behavioral_cloning.pretrain` and `behavioral_cloning.strength` contradict", 6, "set behavioral_cloning.strength"),
    "a batch of none": ("  behavioral_cloning: {batch_size: 0}", "wrong value `behavioral_cloning.batch_size: 0`", 5, "a whole number ≥ 1 or null"),
    "a strength below 0": ("  reward_signals: {rnd: {strength: -1}}", "wrong value `reward_signals.rnd.strength: -1`", 5, "a number ≥ 0"),
    "no file": ("  demonstrations: {path: 3}", "wrong value `demonstrations.path: 3`", 5, "text or a list of texts or null"),
    "an algorithm to come": ("  algorithm: ACKTR", "`algorithm: ACKTR` is not available in this version", 5, "default SAC"),
    "an algorithm to come, spelt small": ("  algorithm: acktr", "`algorithm: acktr` is not available", 5, "default SAC"),
    "an algorithm spelt small": ("  algorithm: sac", "wrong value `algorithm: sac`", 5, "did you mean `SAC`?"),
    "no algorithm": ("  algorithm: TD4", "wrong value `algorithm: TD4`", 5, "set it to SAC"),
    "algorithm of a behaviour": ("  ma_config: {B: {algorithm: A3C}}", "`algorithm: A3C` is not available", 5, "default SAC"),
    "a key of another family": ("  algorithm: PPO\n  sac_config: {tau: 0.01}", "`sac_config.tau` has no effect", 6, "leave it out"),
    "priorities without a replay": ("  algorithm: PPO\n  sac_config: {use_priority: true}", "`sac_config.use_priority` has no effect", 6, "leave it out"),
    "steps of a target": ("  algorithm: PPO\n  sac_config:\n    n_step: 3", "`sac_config.n_step` has no effect", 7, "leave it out"),
    "a key of no family": ("  algorithm: PPO\n  sac_config: {alpha: 0.6}", "unknown key `sac_config.alpha`", 6, "belongs under replay_config"),
    "two views with PPO": ("  algorithm: PPO\n  sac_config: {siamese: ATC}", "`sac_config.siamese` and `algorithm` contradict", 6, "leave siamese out"),
    "novel actions with A2C": ("  algorithm: A2C\n  sac_config: {use_rnd: true}", "`sac_config.use_rnd` and `algorithm` contradict", 6, "leave use_rnd out"),
    "fewer sequences than parts": ("  algorithm: PPO\n  ppo_config: {rollout_step: 128, num_minibatch: 32}\n  sac_config: {seq_encoder: RNN}", "`ppo_config.num_minibatch` and `ppo_config.sequence_step` contradict", 6, "lower num_minibatch or sequence_step, or raise rollout_step or n_envs"),
    "values of SAC": ("  nn_config: {v: {dense_n: 8}}", "`nn_config.v` has no effect", 5, "leave it out"),
    "critics of PPO": ("  algorithm: PPO\n  nn_config: {q: {dense_n: 8}}", "`nn_config.q` has no effect", 6, "leave it out"),
    "images that would move": ("  algorithm: PPO\n  nn_config:\n    rep: {random_shift: 4}", "`nn_config.rep.random_shift` has no effect", 7, "leave it out"),
    "more parts than a rollout fills": ("  algorithm: PPO\n  ppo_config: {rollout_step: 8, num_minibatch: 5}", "`ppo_config.num_minibatch` and `ppo_config.rollout_step` contradict", 6, "raise rollout_step or n_envs"),
    "a rollout of nothing": ("  algorithm: A2C\n  a2c_config: {rollout_step: 0}", "wrong value `a2c_config.rollout_step: 0`", 6, "≥ 1"),
    "a clip without an end": ("  algorithm: PPO\n  base_config: {max_step: -1}\n  ppo_config: {clip_schedule: linear}", "`ppo_config.clip_schedule` and `base_config.max_step` contradict", 7, "set base_config.max_step"),
    "a key that another family has, too": ("  algorithm: A2C\n  sac_config: {learning_rate: 0.01}", "`sac_config.learning_rate` has no effect", 6, "set a2c_config.learning_rate"),
    "the block of another family": ("  ppo_config: {clip: 0.1}", "`ppo_config.clip` has no effect", 5, "set algorithm: PPO"),
    "a replay without one": ("  algorithm: PPO\n  replay_config: {capacity: 10}", "`replay_config.capacity` has no effect", 6, "leave it out"),
    "algorithm in a block": ("  sac_config: {algorithm: SAC}", "unknown key `sac_config.algorithm`", 5, "the top level of a section"),
    "seed": ("  sac_config: {seed: -1}", "wrong value `sac_config.seed: -1`", 5, "from 0 to 4294967295"),
    "duplicate": ("  sac_config:\n    n_step: 2\n    n_step: 2", "`n_step` stands twice", 7, "remove one"),
    "duplicate block": ("  base_config: {n_envs: 2}\n  base_config: {n_envs: 2}", "`base_config` stands twice", 6, "remove one"),
    "tab": ("  sac_config:\n\t  n_step: 3", "indented with a tab", 6, "spaces"),
    "yaml": ("  sac_config: {n_step: 3", "not valid YAML", 6, "brackets"),
    "tag": ("  sac_config: !!python/name:os.system x", "not valid YAML", 5, "look at"),
    "alias": ("  sac_config: *nothing", "not valid YAML", 5, "look at"),
    "endless alias": ("  env: &a [*a]", "not valid YAML", 5, "look at"),
    "merge key": ("  sac_config: {<<: 3}", "not valid YAML", 5, "look at"),
    "list as key": ("  sac_config: {[1]: 3}", "not valid YAML", 5, "look at"),
    "inherited": ("  inherited: [3]", "`inherited` names no sections", 5, "first, second"),
    "unknown parent": ("  inherited: defalt", "unknown section `defalt`", 5, "other sections"),
    "critics": ("  sac_config: {ensemble_q_sample: 3}", "`sac_config.ensemble_q_sample` and `sac_config.ensemble_q_num` contradict", 5, "raise ensemble_q_num"),
    "clipped around nothing": ("  sac_config: {use_target_network: false, clip_epsilon: 0.2}", "`sac_config.use_target_network` and `sac_config.clip_epsilon` contradict", 5, "use_target_network: true"),
    "views of nothing": ("  sac_config: {use_target_network: false, siamese: BYOL}", "`sac_config.use_target_network` and `sac_config.siamese` contradict", 5, "set siamese: null"),
    "clipped quantiles": ("  sac_config: {value_head: quantile, clip_epsilon: 0.2}", "`sac_config.value_head` and `sac_config.clip_epsilon` contradict", 5, "value_head: scalar"),
    "no quantile left": ("  sac_config: {value_head: quantile, quantile_num: 2}", "`sac_config.quantile_drop` and `sac_config.quantile_num` contradict", 5, "raise quantile_num"),
    "quantiles of a number": ("  sac_config: {quantile_num: 5}", "`sac_config.quantile_num` and `sac_config.value_head` contradict", 5, "set value_head: quantile"),
    "bins of a number": ("  sac_config: {categorical_range: 9}", "`sac_config.categorical_range` and `sac_config.value_head` contradict", 5, "set value_head: categorical"),
    "a range for any return": ("  sac_config: {value_head: categorical, reward_scaling: false}", "`sac_config.value_head` and `sac_config.reward_scaling` contradict", 5, "set reward_scaling: true"),
    "v-trace": ("  sac_config: {v_rho: 0.5}", "`sac_config.v_rho` and `sac_config.v_c` contradict", 5, "lower v_c"),
    "noise upside down": ("  sac_config: {action_noise: [0.5, 0.1]}", "`sac_config.action_noise`", 5, "[lowest, highest]"),
    "too much noise": ("  sac_config: {action_noise: [0, 1.5]}", "`sac_config.action_noise", 5, "a list of 2 numbers"),
    "no priorities to add with": ("  sac_config: {use_add_with_td: true, use_priority: false}", "`sac_config.use_add_with_td`", 5, "turn use_add_with_td off"),
    "no replay to add to": ("  sac_config: {use_add_with_td: true, use_replay_buffer: false}", "`sac_config.use_add_with_td`", 5, "turn use_add_with_td off"),
    "an end that is not known": ("  sac_config: {learning_rate_schedule: linear}\n  base_config: {max_step: -1}", "`sac_config.learning_rate_schedule` and `base_config.max_step`", 5, "set base_config.max_step"),
    "td error": ("  replay_config: {td_error_min: 20}", "`replay_config.td_error_min` and", 5, "lower td_error_min"),
    "small replay": ("  replay_config: {capacity: 100}", "`replay_config.capacity` and `sac_config.batch_size`", 5, "lower batch_size"),
    "just too small": ("  replay_config: {capacity: 256}", "`replay_config.capacity` and `sac_config.batch_size`", 5, "raise capacity"),
    "more rows than can be linked": ("  replay_config: {capacity: 1e9}", "`replay_config.capacity: 1000000000.0`", 5, "536870911"),
    "long window": ("  sac_config: {n_step: 524288}", "`replay_config.capacity` and `sac_config.n_step`", 5, "lower n_step"),
    "long memory": ("  sac_config: {burn_in_step: 524288, seq_encoder: RNN}", "`replay_config.capacity` and `sac_config.burn_in_step`", 5, "lower burn_in_step"),
    "burn-in of nothing": ("  sac_config: {burn_in_step: 4, learn_step: 2}", "`sac_config.burn_in_step` and `sac_config.seq_encoder` contradict", 5, "burn_in_step to 0"),
    "sequences of nothing": ("  sac_config: {learn_step: 2}", "`sac_config.learn_step` and `sac_config.seq_encoder` contradict", 5, "learn_step to 1"),
    "nothing to refresh": ("  sac_config: {refresh_carry: true, seq_encoder: ATTN, burn_in_step: 2}", "`sac_config.refresh_carry` and `sac_config.seq_encoder` contradict", 5, "turn refresh_carry off"),
    "no attention": ("  sac_config: {seq_encoder: ATTN, burn_in_step: 0, learn_step: 9}", "`sac_config.burn_in_step` and `sac_config.seq_encoder` contradict", 5, "steps back"),
    "a time of day": ("  sac_config: {n_step: 1:30}", "wrong value `sac_config.n_step: 1:30`", 5, "whole number"),
    "idle workers": ("  base_config: {workers: 2}", "`base_config.workers` and `base_config.n_envs`", 5, "raise n_envs"),
    "behaviours": ("  ma_config: 3", "`ma_config` is not a mapping", 5, "or null"),
    "behaviour": ("  ma_config: {B: 3}", "`ma_config.B` is not a mapping", 5, "or null"),
    "behaviour of the run": ("  ma_config: {B: {base_config: {n_envs: 2}}}", "`ma_config.B.base_config` cannot", 5, "remove it"),
}  # fmt: skip


@pytest.mark.parametrize("written, said, line, fix", SINGLE.values(), ids=SINGLE)
def test_each_fault_is_told_with_its_place_and_a_way_out(task, written, said, line, fix):
    task("default:\n\n\n\n" + written + "\n")
    problem = only(refusal("gym/task"))
    assert said in problem.what
    assert problem.where.startswith(f"{FILE}:{line}")
    assert fix in problem.fix
    assert problem.why


ACCEPTED = {
    "exponent": ("learning_rate: 3e-4", "learning_rate", 3e-4),
    "quoted exponent": ('learning_rate: "3e-4"', "learning_rate", 3e-4),
    "leading zero": ("n_step: 010", "n_step", 10),
    "capital": ("learning_rate: 3E-4", "learning_rate", 3e-4),
    "int as float": ("gamma: 1", "gamma", 1.0),
    "float as int": ("batch_size: 1e2", "batch_size", 100),
    "quoted int": ('batch_size: "64"', "batch_size", 64),
    "clipping off": ("clip_epsilon: -1", "clip_epsilon", -1.0),
    "at once": ("start_step: 0", "start_step", 0),
    "reserved at its default": ("transition_kl: 0.8", "transition_kl", 0.8),
    "quoted reserved default": ('transition_kl: "8e-1"', "transition_kl", 0.8),
    "date as text": ("nn: 2024-01-01", "nn", "2024-01-01"),
}


@pytest.mark.parametrize("written, key, value", ACCEPTED.values(), ids=ACCEPTED)
def test_what_is_meant_well_is_understood(task, written, key, value):
    task(f"{PENDULUM}  sac_config:\n    {written}\n")
    found = getattr(load_config("gym/task").config.sac_config, key)
    assert found == value and type(found) is type(value)


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
          algorithm: ACKTR
        """)
    error = refusal("gym/task", "bad", ["sac_config.lr=1", "noequals"], {"base_config.n_envs": 0}, seed=-3)
    text = str(error)
    for line, said in [
        (4, "`base_config.max_step: 0`"),
        (6, "unknown key `sac_config.learning_rte`"),
        (8, "`n_step` stands twice"),
        (9, "unknown key `sac_config.capacity`"),
        (11, "goes in a circle"),
        (11, "unknown section `nowhere`"),
        (12, "wrong value `replay_config.alpha: high`"),
        (13, "`algorithm: ACKTR` is not available in this version"),
    ]:
        assert any(said in p.what and p.where == f"{FILE}:{line}" for p in error.problems), said
    assert "-o sac_config.lr=1" in text and "cannot read the override `noequals`" in text
    assert "command line (base_config.n_envs)" in text and "--seed" in text
    assert len(error.problems) == 12
    assert text.startswith("configuration refused, 12 problems:\n1. ")
    assert error.exit_code == 2


def test_a_cycle_names_its_way(task):
    task(PENDULUM + "a: {inherited: b}\nb: {inherited: [c]}\nc: {inherited: a}\n")
    problem = only(refusal("gym/task", "a"))
    assert problem.why == "a → b → c → a" and problem.where == f"{FILE}:7"
    task(PENDULUM + "a: {inherited: a}\n")
    assert only(refusal("gym/task", "a")).why == "a → a"


def test_an_unknown_section_lists_the_known_ones(task):
    task(PENDULUM + "vanilla: {}\n")
    problem = only(refusal("gym/task", "vanila"))
    assert "did you mean `vanilla`? sections: default, vanilla; files: config.yaml" in problem.fix
    problem = only(refusal("gym/task", "config:vanila"))
    assert problem.what == "unknown section `vanila`" and "did you mean `vanilla`" in problem.fix


def test_a_file_that_has_sections_and_keys_beside_them_is_told_so(task):
    task("base_config: {env_type: GYM}\nfast: {}\n")
    assert "write `default:` above everything" in only(refusal("gym/task")).fix
    task("fast: {}\n")
    assert only(refusal("gym/task")).fix == "sections: fast"


def test_an_unknown_environment_names_similar_ones(task):
    task(PENDULUM, name="gym/pendulum")
    assert "did you mean `gym/pendulum`" in only(refusal("gym/pendulm")).fix
    assert "did you mean `gym/pendulum`" in only(refusal("pendulum")).fix
    assert "envs/gym has no config.yaml" in only(refusal("gym")).why


TASKS = (  # noqa: SIM905 - a list of names is read more easily so
    "toy/catch toy/hidden_catch toy/queue gym/pendulum gym/cart_pole gym/lunar_lander bullet/hopper "
    "bullet/half_cheetah bullet/walker popgym/stateless_pendulum own"
).split()


@pytest.mark.parametrize(
    "env, meant",
    [
        ("toy/nope", None),
        ("nope", None),
        ("toy", None),
        ("zzz/zzz", None),
        ("toy/quue", "toy/queue"),
        ("toy/hidden_cach", "toy/hidden_catch"),
        ("tyo/catch", "toy/catch"),
        ("bullet/catch", "toy/catch"),
        ("bullet/pendulum", "gym/pendulum"),
        ("gym/hoper", None),
        ("hoper", "bullet/hopper"),
        ("gym/pendulum/", "gym/pendulum"),
        ("Gym/Pendulum", "gym/pendulum"),
        ("LunarLander-v3", "gym/lunar_lander"),
        ("gym/CartPole-v1", "gym/cart_pole"),
        ("cheetah", "bullet/half_cheetah"),
        ("envs/gym/pendulm", "gym/pendulum"),
        ("ownn", "own"),
    ],
)
def test_a_task_that_is_suggested_is_near(env, meant):
    assert nearest_task(env, TASKS) == meant


def test_the_tasks_of_a_folder_are_listed_and_no_others(task):
    for name in ("toy/catch", "toy/queue", "bullet/hopper"):
        task(PENDULUM, name=name)
    assert (
        only(refusal("toy/nope")).fix
        == "tasks in toy: catch, corridor, hallway, hidden_catch, hybrid, identity, queue, recall, two_cameras"
    )
    assert only(refusal("toy")).fix.startswith("tasks in toy: catch, corridor")
    assert only(refusal("toy/quue")).fix.startswith("did you mean `toy/queue`? tasks in toy: catch, ")
    assert "bullet/hopper, " in only(refusal("nope")).fix


def test_an_unknown_environment_does_not_hide_a_wrong_override(task):
    task(PENDULUM)
    assert [p.where for p in refusal("nothing", overrides=["sac_config.n_stp=2"]).problems][1:] == [
        "-o sac_config.n_stp=2"
    ]


@pytest.mark.parametrize("text", ["3", "[1]", "just words"])
def test_a_file_that_is_no_mapping(task, text):
    task(text + "\n")
    assert only(refusal("gym/task")).what == f"{FILE} holds no mapping"


def test_a_section_that_is_no_mapping(task):
    task("default: 3\n")
    assert only(refusal("gym/task")).what == "section `default` is not a mapping"


def test_a_file_that_is_not_text(task):
    task("").write_bytes(b"\xff\xfe\x00")
    assert only(refusal("gym/task")).what == f"cannot read {FILE}"


def test_a_missing_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"cannot read config\.yaml"):
        load_config_file(tmp_path / "config.yaml")


@pytest.mark.parametrize(
    "text", ["a=1", "sac_config", "=3", "sac_config.=3", "sac_config.n_step=[1", "sac_config.n_step=1: 2"]
)
def test_wrong_overrides_are_told_with_their_text(task, text):
    task(PENDULUM)
    assert only(refusal("gym/task", overrides=[text])).where == f"-o {text}"


@pytest.mark.parametrize(
    "written, missing",
    [
        ("sac_config: {seed: 1}", "`base_config.env_type` and `base_config.env_name` are missing"),
        ("base_config: {env_name: Pendulum-v1}", "`base_config.env_type` is missing"),
        ("base_config: {env_type: GYM}", "`base_config.env_name` is missing"),
    ],
)
def test_what_only_the_task_can_know_has_no_default(task, written, missing):
    task(f"default:\n  {written}\n")
    changes = {"overrides": ["base_config.n_envs=2"], "defaults": {"base_config.name": "x"}}
    problem = only(refusal("gym/task", require_runnable=True, **changes))
    assert problem.what == missing
    assert problem.where == f"{FILE}, section default"
    assert ("env_type: GYM" in problem.fix) == ("env_type" in missing)
    assert ("env_name: Pendulum-v1" in problem.fix) == ("env_name" in missing)


def test_a_saved_configuration_without_an_environment_names_its_file(task):
    file = task("sac_config: {seed: 1}\n", file="saved.yaml")
    with pytest.raises(ConfigError) as caught:
        load_config_file(file, require_runnable=True)
    assert only(caught.value).where == "envs/gym/task/saved.yaml"


def test_a_missing_environment_hides_nothing_and_is_not_told_of_a_misspelt_one(task):
    task(
        "default: {sac_config: {v_rho: 0.5, gamma: 2}}\nmisspelt: {base_config: {env_typ: GYM, env_name: [x]}}\n"
    )
    assert [problem.what.split()[-1] for problem in refusal("gym/task", require_runnable=True).problems] == [
        *("2`", "other", "missing"),
    ]
    found = refusal("gym/task", "config:misspelt", require_runnable=True)
    assert found.problems and not any("missing" in problem.what for problem in found.problems)


def test_a_required_key_has_no_default_anywhere():
    assert "  # env_type:\n" in reference.default_yaml({}) and "  # env_name:\n" in reference.default_yaml({})
    kinds = "UNITY or GYM or DM_CONTROL or a plug-in's name"
    assert f"| `env_type` | *required* | {kinds} |" in reference.markdown()
    text = json.dumps(reference.json_schema())
    schema = json.loads(text)["$defs"]["BaseConfig"]["properties"]
    assert all("default" not in schema[key] for key in ("env_type", "env_name"))
    assert all("No default" in schema[key]["description"] for key in ("env_type", "env_name"))
    assert '"env_type": null' not in text


def test_main_ds_exits_2(root):
    done = subprocess.run(
        [sys.executable, "main_ds.py", "gym/pendulum", "evolver", "--num_learners=1"],
        cwd=root,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert "needs --num_learners N, at least 2" in done.stderr and "\n  where  " in done.stderr


SEVERAL = {
    # what is written below `default`, what is said of it
    "of one block": (
        "  sac_config: {gamma: 1.5, burn_in_step: 3}",
        ["`sac_config.gamma: 1.5`", "`sac_config.burn_in_step` and `sac_config.seq_encoder` contradict"],
    ),
    "of a block and of the whole": (
        "  sac_config: {v_rho: 0.5}\n  replay_config: {capacity: 100}",
        ["`sac_config.v_rho` and `sac_config.v_c` contradict", "`replay_config.capacity` and `sac_config.batch_size`"],
    ),
    "of blocks and a type elsewhere": (
        "  base_config: {workers: 2, max_iter: few}\n  replay_config: {td_error_min: 2, td_error_max: 1}",
        ["`base_config.max_iter: few`", "`base_config.workers` and", "`replay_config.td_error_min` and"],
    ),
    "with a key that is unknown": (
        "  sac_config: {zzzzzz: 1, v_rho: 0.5}",
        ["unknown key `sac_config.zzzzzz`", "`sac_config.v_rho` and `sac_config.v_c` contradict"],
    ),
    "not of a value that is wrong": (
        "  sac_config: {seq_encoder: GRU, burn_in_step: 3}",
        ["`sac_config.seq_encoder: GRU`"],
    ),
    "not of a key that is misspelt": (
        "  sac_config: {seq_encodr: RNN, burn_in_step: 3}",
        ["unknown key `sac_config.seq_encodr`"],
    ),
    "not of a key elsewhere": (
        "  base_config: {seq_encoder: RNN}\n  sac_config: {burn_in_step: 3}",
        ["unknown key `base_config.seq_encoder`"],
    ),
    "not of a block that is misspelt": (
        "  sac_confg: {batch_size: 64}\n  replay_config: {capacity: 100}",
        ["unknown key `sac_confg`"],
    ),
    "not of a block that is none": (
        "  sac_config: 64\n  replay_config: {capacity: 100}",
        ["`sac_config` has no keys"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("written, said", SEVERAL.values(), ids=SEVERAL)
def test_a_wrong_value_hides_no_contradiction_of_others(task, written, said):
    task("default:\n" + written + "\n")
    found = [problem.what for problem in refusal("gym/task").problems]
    assert len(found) == len(said), found
    for what, expected in zip(found, said, strict=True):
        assert expected in what


@pytest.mark.parametrize(
    "written, meant",
    [
        ("base_config: {env_type: gym}", "GYM"),
        ("base_config: {env_type: Gymm}", "GYM"),
        ("base_config: {on_non_finite: Drop}", "drop"),
        ("sac_config: {seq_encoder: attention}", "ATTN"),
        ("sac_config: {seq_encoder: rnn}", "RNN"),
        ("sac_config: {siamese: none}", "null"),
        ("sac_config: {seed: None}", "null"),
        ("sac_config: {learning_rate_schedule: liner}", "linear"),
        ("checkpoint_config: {replay: Always}", "always"),
    ],
)
def test_the_choice_that_was_meant_is_suggested(task, written, meant):
    task(f"default:\n  {written}\n")
    assert only(refusal("gym/task")).fix.startswith(f"did you mean `{meant}`?")


@pytest.mark.parametrize(
    "written", ["algorithm: Acktr", "sac_config: {siamese: 3}", "sac_config: {n_step: none}"]
)
def test_nothing_is_suggested_that_would_be_refused(task, written):
    task(f"default:\n  {written}\n")
    assert "did you mean" not in only(refusal("gym/task")).fix


REASONS = {
    "sac_config: {gamma: 1.5}": "it must be a number from 0 to 1; 1.5 is too large",
    "sac_config: {n_step: 0}": "it must be a whole number ≥ 1; 0 is too small",
    'sac_config: {n_step: "-1"}': 'it must be a whole number ≥ 1; "-1" is too small',
    "sac_config: {tau: 0}": "it must be a number > 0 and ≤ 1; 0 is too small",
    "sac_config: {n_step: 2.5}": "it must be a whole number ≥ 1; 2.5 has a fraction",
    "sac_config: {n_step: .inf}": "it must be a whole number ≥ 1; .inf is not finite",
    "sac_config: {tau: .nan}": "it must be a number > 0 and ≤ 1; .nan is not finite",
    "sac_config: {n_step: true}": "it must be a whole number ≥ 1; true is a boolean",
    "sac_config: {use_priority: 1}": "it must be true or false; 1 is a whole number",
    "sac_config: {n_step: null}": "it must be a whole number ≥ 1; null is nothing",
    "sac_config: {n_step: [1]}": "it must be a whole number ≥ 1; [1] is a list",
    "sac_config: {siamese: SIM}": "it must be ATC or BYOL or null; SIM is none of these",
    "sac_config: {threads: 0}": "it must be a whole number ≥ 1 or auto; 0 is too small",
    "sac_config: {action_noise: [0.1]}": "it must be a list of 2 numbers from 0 to 1 or null; it has 1 value",
    "sac_config: {action_noise: [0, 1.5]}": "it must be a list of 2 numbers from 0 to 1 or null; 1.5 in it is too large",
    "sac_config: {action_noise: 0.1}": "it must be a list of 2 numbers from 0 to 1 or null; 0.1 is a number",
    "checkpoint_config: {milestones: [1e3, x]}": "it must be a list of whole numbers; x in it is text",
    'base_config: {name: ""}': 'it must be text that is not empty; "" is empty',
    "nn_config: {rep: conv}": "it must be a mapping or null; conv is text",
    "base_config: {max_step: 0}": "it must be -1 or a whole number ≥ 1; 0 would allow nothing at all; no limit is written -1",
}


@pytest.mark.parametrize("written, why", REASONS.items(), ids=REASONS)
def test_the_reason_is_said_in_plain_words(task, written, why):
    task(f"default:\n  {written}\n")
    assert only(refusal("gym/task")).why.replace("'", '"') == why


WRONG = (
    None, True, 1, -7, 0, 2.5, 10**30, float("inf"), float("-inf"), float("nan"), "", "text", "-3", "nan", "1e999", [],
    [None], ["text"], [0.5], [-1, 2.5], [0, 1, 2], [[1], 2], [{"a": 1}], {}, {"a": 1}, {"a": {"b": [None]}},
)  # fmt: skip
PYDANTIC = re.compile(
    r"input should|valid (integer|number|boolean|string|list|tuple|dictionary|dict)|unable to|parse|literal|union|"
    r"greater than|less than|instance of|permitted|field required|fractional|characters|should have|"
    r"for further information|pydantic|validation|value error|NoneType|type=|\bfloat\b|\bint\b|\bstr\b|\bdict\b|\btuple\b",
    re.IGNORECASE,
)


@pytest.mark.parametrize("path", [path for path, _ in fields()], ids=".".join)
def test_no_message_has_words_of_the_validator(task, path):
    task("default: {}\n")
    for value in WRONG:
        try:
            load_config("gym/task", flags={".".join(path): value})
        except ConfigError as error:
            for problem in error.problems:
                found = PYDANTIC.search(f"{problem.what} {problem.why} {problem.fix}")
                assert not found, f"{found[0]!r} in: {problem}"
                assert problem.why and problem.fix
        else:
            assert Config.model_validate(nested(path, value)), f"{path} may be {value}"


def test_every_kind_of_refusal_was_among_them():
    """The walk above is worth what it meets: each kind of error that the schema can give."""
    met = set()
    for path, _ in fields():
        for value in WRONG:
            try:
                Config.model_validate(nested(path, value))
            except ValidationError as error:
                met |= {item["type"] for item in error.errors()}
    assert met >= {
        *("int_type", "float_type", "bool_type", "string_type", "string_too_short"),
        *("finite_number", "greater_than", "greater_than_equal", "less_than_equal", "literal_error", "limit"),
        *("dict_type", "tuple_type", "missing", "too_long"),
    }


def nested(path, value):
    """The mapping with ``value`` at ``path`` and nothing else."""
    for key in reversed(path):
        value = {key: value}
    return value
