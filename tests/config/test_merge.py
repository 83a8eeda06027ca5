"""Merging: layers, sections, files, anchors, overrides, flags."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from algorithm.config import ConfigError, find_env, load_config
from algorithm.config.tree import from_value, merge, to_value
from tests.config.conftest import PENDULUM, refusal

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

leaves = st.integers() | st.booleans() | st.none() | st.lists(st.integers(), max_size=2)
SHAPE = {"a": None, "b": {"c": None, "d": {"e": None, "f": None}}, "g": {"h": None}}


def partial(shape):
    """Mappings that agree on which names hold mappings, as layers of one schema do."""
    return st.fixed_dictionaries(
        {}, optional={k: leaves if v is None else partial(v) for k, v in shape.items()}
    )


def merged(*layers):
    tree = from_value({}, "")
    for layer in layers:
        tree = merge(tree, from_value(layer, ""))
    return to_value(tree)


@given(partial(SHAPE), partial(SHAPE), partial(SHAPE))
def test_merging_layers_of_one_shape_is_associative(a, b, c):
    assert merged(a, merged(b, c)) == merged(merged(a, b), c)


@given(partial(SHAPE), partial(SHAPE))
def test_merging_is_idempotent_and_the_upper_layer_wins(a, b):
    both = merged(a, b)
    assert merged(both, b) == both == merged(both, both)
    assert merged({}, a) == merged(a, {}) == a
    for key, value in b.items():
        assert isinstance(value, dict) or both[key] == value


def test_mappings_merge_and_everything_else_replaces():
    base = {"map": {"x": 1, "y": 2}, "list": [1, 2], "null": {"z": 1}, "value": 1}
    over = {"map": {"y": 3}, "list": [3], "null": None, "value": {"w": 1}}
    assert merged(base, over) == {"map": {"x": 1, "y": 3}, "list": [3], "null": None, "value": {"w": 1}}
    assert base["map"] == {"x": 1, "y": 2}


def test_layers_lie_in_the_documented_order(task):
    task(LAYERS)
    sac = load_config("gym/task", "chosen", ["sac_config.gamma=0.5"]).config.sac_config
    # default 2, one 3 (by way of three) · one 0.2, two 0.3 · three 0.25, two 0.5 · chosen 64 · -o 0.5
    assert (sac.n_step, sac.tau, sac.v_c, sac.batch_size, sac.gamma) == (3, 0.3, 0.5, 64, 0.5)
    assert load_config("gym/task").config.sac_config.n_step == 2


def test_free_mappings_merge_and_null_clears_them(task):
    task(LAYERS)
    assert load_config("gym/task", "chosen").config.nn_config.rep == {"dense_n": 8, "dense_depth": 2}
    assert load_config("gym/task", "cleared").config.nn_config.rep is None


@pytest.mark.parametrize("section", ["hollow", "empty"])
def test_a_section_or_block_without_content_changes_nothing(task, section):
    task(LAYERS)
    assert load_config("gym/task", section, seed=1).config == load_config("gym/task", seed=1).config


def test_anchors_and_merge_keys_work(task):
    task("""\
        default:
          base_config: &base {env_type: GYM, env_name: Pendulum-v1, n_envs: 2}
        other:
          base_config:
            <<: *base
            n_envs: 3
        """)
    base = load_config("gym/task", "other").config.base_config
    assert (base.env_name, base.n_envs) == ("Pendulum-v1", 3)


def test_config_names_a_section_before_a_file(task):
    task(PENDULUM + "config:\n  base_config: {n_envs: 2}\nfast:\n  base_config: {n_envs: 3}\n")
    other = task(
        PENDULUM + "  replay_config: {capacity: 999}\nfast:\n  base_config: {n_envs: 4}\n", file="other.yaml"
    )
    assert load_config("gym/task", "config").config.base_config.n_envs == 2
    assert load_config("gym/task", "config.yaml").config.base_config.n_envs == 1
    assert load_config("gym/task", "fast").config.base_config.n_envs == 3
    for name in ("other", "other.yaml", "other:default"):
        loaded = load_config("gym/task", name)
        assert (loaded.file, loaded.section) == (other, "default")
        assert loaded.config.replay_config.capacity == 999
    loaded = load_config("gym/task", "other.yaml:fast").config
    assert (loaded.base_config.n_envs, loaded.replay_config.capacity) == (4, 999)


def test_config_config_is_the_file_with_its_default_section(task):
    task(PENDULUM)
    loaded = load_config("gym/task", "config")
    assert (loaded.file.name, loaded.section, loaded.env_label) == ("config.yaml", "default", "gym/task")


def test_an_environment_is_a_name_or_any_folder(task, tmp_path):
    inside = task(PENDULUM).parent
    outside = tmp_path / "elsewhere" / "mine"
    outside.mkdir(parents=True)
    (outside / "config.yaml").write_text(PENDULUM)
    for env in ("gym/task", "gym/task/", "envs/gym/task", str(inside)):
        assert (find_env(env).path, find_env(env).label) == (inside, "gym/task")
    assert (find_env("elsewhere/mine").path, find_env(str(outside)).label) == (outside, "mine")


def test_overrides_are_typed_by_the_schema(task):
    task(PENDULUM)
    given = [
        "sac_config.learning_rate=1e-3",
        "replay_config.capacity=1e6",
        "sac_config.use_priority=false",
        "base_config.name=123",
        "base_config.env_name={time}",
        "base_config.env_args={g: 9.8}",
        "base_config.env_args.deep.er=[1, 2]",
        "sac_config.seed=7",
        "nn_config.rep.dense_n=32",
        "sac_config.nn='quoted'",
    ]
    loaded = load_config("gym/task", overrides=given)
    config = loaded.config
    assert (config.sac_config.learning_rate, config.replay_config.capacity) == (1e-3, 1_000_000)
    assert isinstance(config.replay_config.capacity, int)
    assert (config.sac_config.use_priority, config.base_config.name) == (False, "123")
    assert config.base_config.env_name == "{time}"
    assert config.base_config.env_args == {"g": 9.8, "deep": {"er": [1, 2]}}
    assert (loaded.seed, config.nn_config.rep, config.sac_config.nn) == (7, {"dense_n": 32}, "quoted")
    assert loaded.overrides == tuple(given)


def test_flags_win_over_overrides(task):
    task(PENDULUM)
    loaded = load_config("gym/task", overrides=["base_config.n_envs=2"], flags={"base_config.n_envs": 4})
    assert loaded.config.base_config.n_envs == 4
    assert loaded.raw["base_config"] == {"env_type": "GYM", "env_name": "Pendulum-v1", "n_envs": 4}


def test_the_seed_comes_from_the_argument_the_file_or_nowhere(task):
    task(PENDULUM + "  sac_config: {seed: 5}\nfresh:\n  sac_config: {seed: null}\n")
    assert load_config("gym/task").seed == 5
    assert load_config("gym/task", seed=9).seed == 9
    drawn = {load_config("gym/task", "fresh").seed for _ in range(3)}
    assert len(drawn) == 3 and all(isinstance(seed, int) for seed in drawn)


def test_differences_name_what_is_not_the_default(task):
    task(PENDULUM + "  sac_config: {n_step: 5, tau: 0.01}\n  ma_config: {B: {sac_config: {n_step: 4}}}\n")
    assert load_config("gym/task").differences() == {
        "base_config.env_type": "GYM",
        "base_config.env_name": "Pendulum-v1",
        "sac_config.n_step": 5,
        "ma_config.B.sac_config.n_step": 4,
    }


def test_the_two_files_of_a_cycle_free_diamond_load(task):
    task("""\
        default: {base_config: {env_type: GYM}}
        top: {sac_config: {n_step: 2}}
        left: {inherited: top}
        right: {inherited: top}
        bottom: {inherited: [left, right]}
        """)
    assert load_config("gym/task", "bottom").config.sac_config.n_step == 2


def test_an_unused_section_is_not_judged(task):
    task(PENDULUM + "later:\n  algorithm: ACKTR\n")
    assert load_config("gym/task").config.algorithm == "SAC"
    assert "not available" in str(refusal("gym/task", "later"))


def test_what_says_nothing_with_the_algorithm_is_not_shown(task):
    task(
        "default:\n  sac_config: {tau: 0.02, gamma: 0.9}\nppo:\n  algorithm: PPO\n  ppo_config: {clip: 0.1}\n"
    )
    shown = load_config("gym/task", "ppo").differences()
    assert {"algorithm", "sac_config.gamma", "ppo_config.clip"} <= shown.keys()
    assert "sac_config.tau" not in shown and "sac_config.tau" in load_config("gym/task").differences()


def test_what_is_inherited_may_say_nothing(task):
    task(
        PENDULUM + "  nn_config: {q: {dense_n: 8}, rep: {random_shift: 4}}\n  sac_config: {n_step: 3}\n"
        "ppo:\n  algorithm: PPO\n"
    )
    assert load_config("gym/task", "ppo").config.algorithm == "PPO"


def test_another_algorithm_can_be_tried_with_a_task_of_sac(task):
    task(PENDULUM + "  sac_config: {tau: 0.02}\n")
    assert load_config("gym/task", overrides=["algorithm=PPO"]).config.algorithm == "PPO"
    with pytest.raises(ConfigError, match=r"`sac_config.tau` has no effect"):
        load_config("gym/task", overrides=["algorithm=PPO", "sac_config.tau=0.1"])
