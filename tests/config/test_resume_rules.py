"""What a resumed run may change, and what becomes of it."""

from __future__ import annotations

import pytest

from algorithm.config import ConfigError, load_config
from algorithm.config.resume_rules import Effect, changes, effect_of, refuse, table
from algorithm.config.schema import Config, fields
from algorithm.core.fields import facts_of
from tests.config.conftest import PENDULUM

pytestmark = pytest.mark.fault("F25")

REFUSED = """algorithm base_config.preset sac_config.use_target_network sac_config.value_head
sac_config.quantile_num sac_config.categorical_num sac_config.categorical_range
base_config.env_type base_config.env_name base_config.env_args base_config.wrappers
base_config.reward_scale nn_config.rep nn_config.policy nn_config.q replay_config.alpha replay_config.beta
sac_config.nn sac_config.seed sac_config.use_replay_buffer sac_config.use_priority sac_config.start_step
sac_config.ensemble_q_num sac_config.seq_encoder sac_config.init_log_alpha sac_config.use_auto_alpha
sac_config.discrete_dqn_like sac_config.siamese sac_config.use_normalization
sac_config.reward_scaling sac_config.use_prediction sac_config.curiosity sac_config.use_rnd
nn_config.v ppo_config.rollout_step a2c_config.rollout_step a2c_config.use_tf_rms ppo_config.shared
a2c_config.shared reward_signals.gail.form reward_signals.gail.use_actions reward_signals.gail.dense_n
reward_signals.gail.dense_depth demonstrations.min_return demonstrations.max_episodes"""

APPLIED = Effect(False)
OTHER_NETWORKS = "the networks would be others than those that were trained"


@pytest.fixture
def loaded(task):
    """``loaded("a.b=1", …)``: the task with these overrides."""
    task(PENDULUM)

    def load(*overrides, seed=1):
        return load_config("gym/task", overrides=overrides, seed=seed)

    return load


def effects(old, new):
    return {change.path: change.effect for change in changes(old, new)}


@pytest.mark.parametrize(("path", "field"), [pytest.param(*key, id=".".join(key[0])) for key in fields()])
def test_every_key_has_an_effect(path, field):
    """``resume`` of a key reads as one of the few kinds; anything else raises KeyError."""
    effect = effect_of(field, Config(), Config())
    assert (effect is None) == (path == ("base_config", "name")), "the folder has the name of a run"
    assert not (effect and effect.refused and not effect.note), "a refusal has a reason"


def test_exactly_these_keys_are_refused():
    assert {".".join(path) for path, field in fields() if facts_of(field).fixed} == set(REFUSED.split())


def test_the_same_configuration_has_no_changes(loaded):
    assert changes(loaded(), loaded()) == []
    assert changes(loaded("base_config.name=a"), loaded("base_config.name=b")) == []
    assert changes(loaded(), loaded("sac_config.gamma=0.99", "replay_config.td_error_max=10")) == []
    refuse([])


def test_changes_are_shown_with_what_happens(loaded):
    old = loaded("sac_config.action_noise=[0, 0.5]")
    new = loaded(
        "base_config.n_envs=4", "sac_config.learning_rate=0.001", "sac_config.ensemble_q_num=4",
        "reset_config={level: 2}",
    )  # fmt: skip
    assert table(changes(old, new)) == [
        ("base_config.n_envs", "1 → 4, applied: the open episodes end as truncated"),
        (
            "reset_config",
            "null → {level: 2}, applied: from each environment's next reset on; open episodes may end as "
            "truncated",
        ),
        ("sac_config.ensemble_q_num", f"2 → 4, refused: {OTHER_NETWORKS}"),
        ("sac_config.learning_rate", "0.0007 → 0.001, applied"),
        ("sac_config.action_noise", "[0.0, 0.5] → null, applied"),
    ]


def test_all_that_is_refused_is_told_at_once_with_the_way_back(loaded):
    old = loaded("base_config.env_args={g: 9.8}", "sac_config.gamma=0.9")
    with pytest.raises(ConfigError) as caught:
        refuse(changes(old, loaded("base_config.env_name=CartPole-v1", seed=2)))
    assert caught.value.exit_code == 2
    message = str(caught.value)
    assert message.startswith("configuration refused, 3 problems:")
    for part in (
        "`base_config.env_name` cannot change when a run is resumed",
        "it was Pendulum-v1 and is now CartPole-v1",
        "-o base_config.env_name=Pendulum-v1",
        "-o 'base_config.env_args={g: 9.8}'",
        "reset_config may change",
        "-o sac_config.seed=1",
        "or train a new run: -n NAME without --resume",
    ):
        assert part in message
    assert "gamma" not in message


def test_the_way_back_leads_back(loaded):
    old = loaded(
        "base_config.env_args={g: 9.8}", "nn_config.rep={dense_n: 8}", "sac_config.init_log_alpha=-1"
    )
    wrong = ("base_config.env_args=null", "nn_config.rep=null", "sac_config.init_log_alpha=0")
    with pytest.raises(ConfigError) as caught:
        refuse(changes(old, loaded(*wrong)))
    back = [problem.fix.splitlines()[0].removeprefix("leave it: -o ") for problem in caught.value.problems]
    assert changes(old, loaded(*wrong, *(text.strip("'") for text in back))) == []


def test_a_replay_may_grow_and_not_shrink(loaded):
    small, large = loaded("replay_config.capacity=1000"), loaded("replay_config.capacity=2000")
    assert effects(small, large) == {"replay_config.capacity": APPLIED}
    assert effects(large, small)["replay_config.capacity"].refused


def test_a_signal_may_be_stronger_but_not_come_or_go(loaded):
    def signals(gail, rnd, path="a.npz"):
        return loaded(
            "algorithm=PPO",
            f"reward_signals.gail.strength={gail}",
            f"reward_signals.rnd.strength={rnd}",
            f"behavioral_cloning.strength={gail}",
            f"demonstrations.path={path}",
        )

    changed = effects(signals(1, 0.1), signals(0.5, 0.2, "b.npz"))
    assert changed == {
        "reward_signals.rnd.strength": APPLIED,
        "reward_signals.gail.strength": APPLIED,
        "demonstrations.path": Effect(False, "it must hold the same episodes"),
        "behavioral_cloning.strength": APPLIED,
    }
    for old, new in ((signals(1, 0), signals(0, 1, "null")), (signals(0, 1, "null"), signals(1, 0))):
        changed = effects(old, new)
        assert len(changed) == 4 and all(one.refused for one in changed.values())


def test_a_rollout_may_grow_and_not_shrink(loaded):
    few, many = (loaded("algorithm=PPO", f"base_config.n_envs={n}") for n in (2, 4))
    applied = effects(few, many)["base_config.n_envs"]
    assert not applied.refused and "a rollout has more steps" in applied.note
    with pytest.raises(ConfigError, match=r"rollout_step · n_envs steps, and fewer environments") as caught:
        refuse(changes(many, few))
    assert caught.value.problems[0].fix.startswith("leave it: -o base_config.n_envs=4\n")
    few, many = (loaded(f"base_config.n_envs={n}") for n in (2, 4))
    assert not effects(many, few)["base_config.n_envs"].refused, "a replay of SAC is one of any size"


def test_with_another_algorithm_nothing_else_is_told(loaded):
    sac, ppo = loaded(), loaded("algorithm=PPO", "ppo_config.rollout_step=64", "nn_config.rep={dense_n: 8}")
    for old, new, before in ((sac, ppo, "SAC"), (ppo, sac, "PPO")):
        with pytest.raises(ConfigError) as caught:
            refuse(changes(old, new))
        (problem,) = caught.value.problems
        assert problem.what == "`algorithm` cannot change when a run is resumed"
        assert problem.fix.startswith(f"leave it: -o algorithm={before}\n")


def test_what_says_nothing_with_the_algorithm_may_change(task):
    """What another family's runs cannot change: the default section was edited since."""
    ppo = "ppo:\n  algorithm: PPO\n"
    task(PENDULUM + "  sac_config: {start_step: 100}\n" + ppo)
    old = load_config("gym/task", "ppo", seed=1)
    task(PENDULUM + "  sac_config: {start_step: 200}\n  nn_config: {q: {dense_n: 4}}\n" + ppo)
    assert changes(old, load_config("gym/task", "ppo", seed=1)) == []


def test_windows_may_change_but_not_how_far_back_attention_sees(loaded):
    def windows(kind, burn_in, learn):
        return loaded(
            f"sac_config.seq_encoder={kind}",
            f"sac_config.burn_in_step={burn_in}",
            f"sac_config.learn_step={learn}",
        )

    assert set(effects(windows("RNN", 4, 4), windows("RNN", 2, 8)).values()) == {APPLIED}
    assert set(effects(windows("ATTN", 4, 4), windows("ATTN", 4, 8)).values()) == {APPLIED}
    refused = effects(windows("ATTN", 4, 4), windows("ATTN", 2, 4))["sac_config.burn_in_step"]
    assert refused == Effect(True, "attention was trained to see 4 steps back, burn_in_step")


def test_extra_data_may_change_where_no_model_is_given_it(loaded):
    def extra(use_prediction, on):
        overrides = f"sac_config.use_prediction={use_prediction}", f"sac_config.use_extra_data={on}"
        return loaded(*overrides)

    key = "sac_config.use_extra_data"
    assert effects(extra("false", "true"), extra("false", "false")) == {
        key: Effect(False, "without use_prediction it says nothing")
    }
    assert effects(extra("true", "true"), extra("true", "false"))[key].refused
    both = effects(extra("true", "true"), extra("false", "false"))
    assert both["sac_config.use_prediction"].refused


def test_the_end_of_a_falling_step_size_is_worth_a_word(loaded):
    falling = "sac_config.learning_rate_schedule=linear"
    noted = effects(loaded(falling, "base_config.max_step=10"), loaded(falling, "base_config.max_step=20"))
    assert "step size falls to 0 at the new end" in str(noted["base_config.max_step"])


def test_a_new_end_moves_what_beta_grows_to(loaded):
    key, given = "base_config.max_step", "replay_config.beta_increment_per_sampling=0.1"
    steps = "base_config.max_step=10", "base_config.max_step=20"
    assert "beta reaches 1 at the new end" in str(effects(loaded(steps[0]), loaded(steps[1]))[key])
    for other in (given, "sac_config.use_priority=false"):
        assert effects(*(loaded(other, end) for end in steps))[key] == APPLIED


MANY = """\
default:
  base_config: {env_type: GYM, env_name: Pendulum-v1}
  ma_config:
    left: {sac_config: {gamma: 0.9}, nn_config: {q: {dense_n: 8}}}
    right: {}
moved:
  sac_config: {tau: 0.5}
  ma_config:
    left: {sac_config: {gamma: 0.8}, nn_config: {q: {dense_n: 16}}}
alone:
  ma_config: {left: {sac_config: {gamma: 0.99}, nn_config: {q: null}}}
"""


def test_a_behaviour_is_compared_with_itself(task):
    task(MANY)
    old, moved, alone = (load_config("gym/task", section, seed=1) for section in (None, "moved", "alone"))
    assert [(change.path, change.before, change.after) for change in changes(old, moved)] == [
        ("sac_config.tau", 0.01, 0.5),
        ("ma_config.left.nn_config.q", {"dense_n": 8}, {"dense_n": 16}),
        ("ma_config.left.sac_config.gamma", 0.9, 0.8),
    ]
    assert [change.path for change in changes(old, alone)] == [
        "ma_config.left.nn_config.q",
        "ma_config.left.sac_config.gamma",
    ]
    with pytest.raises(ConfigError, match=r"`ma_config.left.nn_config.q` cannot change"):
        refuse(changes(old, moved))
