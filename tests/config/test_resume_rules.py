"""What a resumed run may change, and what becomes of it."""

import pytest

from algorithm.config import ConfigError, load_config
from algorithm.config.resume_rules import changes, effect_of, refuse, table
from algorithm.config.schema import Config, fields
from algorithm.core.fields import facts_of
from tests.config.conftest import PENDULUM

pytestmark = pytest.mark.fault("F25")

REFUSED = """algorithm base_config.preset sac_config.use_target_network sac_config.value_head
sac_config.quantile_num sac_config.categorical_num sac_config.categorical_range
base_config.env_type base_config.env_name base_config.env_args base_config.wrappers
base_config.reward_scale nn_config.rep nn_config.policy nn_config.q replay_config.alpha replay_config.beta
replay_config.sampler
sac_config.nn sac_config.seed sac_config.use_replay_buffer sac_config.use_priority
sac_config.ensemble_q_num sac_config.seq_encoder sac_config.init_log_alpha sac_config.use_auto_alpha
sac_config.discrete_dqn_like sac_config.siamese sac_config.use_normalization sac_config.critic_observations
sac_config.reward_scaling sac_config.use_prediction sac_config.curiosity sac_config.use_rnd
nn_config.v ppo_config.rollout_step a2c_config.rollout_step a2c_config.use_tf_rms ppo_config.shared
a2c_config.shared a3c_config.rollout_step a3c_config.use_tf_rms a3c_config.shared acktr_config.rollout_step
acktr_config.shared acer_config.rollout_step reward_signals.gail.form reward_signals.gail.use_actions
reward_signals.gail.dense_n
reward_signals.curiosity.gamma reward_signals.curiosity.ends reward_signals.rnd.gamma reward_signals.rnd.ends
reward_signals.gail.gamma reward_signals.gail.ends
reward_signals.gail.dense_depth demonstrations.min_return demonstrations.max_episodes
demonstrations.offline demonstrations.warm_up_policy
base_config.pettingzoo_args.share base_config.pettingzoo_args.teams self_play.initial_elo"""

OTHER_NETWORKS = "the networks would differ from the trained ones"


def effects(old, new):
    return {change.path: change.effect for change in changes(old, new)}


def test_every_key_has_an_effect_and_exactly_these_are_refused():
    """``resume`` of a key reads as one of the few kinds; anything else raises KeyError."""
    for path, field in fields():
        effect = effect_of(field, Config(), Config())
        assert (effect is None) == (path[1:] in {("name",), ("init_from",)}), "what was begun is not changed"
        assert not (effect and effect.refused and not effect.note), "a refusal has a reason"
    assert {".".join(path) for path, field in fields() if facts_of(field).fixed} == set(REFUSED.split())


def test_the_same_configuration_has_no_changes(loaded):
    assert changes(loaded(), loaded("base_config.name=b", "sac_config.gamma=0.99")) == []
    refuse([])


def test_changes_are_shown_with_what_happens(loaded):
    old = loaded("sac_config.action_noise=[0, 0.5]")
    new = loaded("base_config.n_envs=4", "sac_config.learning_rate=0.001", "sac_config.ensemble_q_num=4")
    assert table(changes(old, new)) == [
        ("base_config.n_envs", "1 → 4, applied: the open episodes end as truncated"),
        ("sac_config.ensemble_q_num", f"2 → 4, refused: {OTHER_NETWORKS}"),
        ("sac_config.learning_rate", "0.0007 → 0.001, applied"),
        ("sac_config.action_noise", "[0.0, 0.5] → null, applied"),
    ]


def test_all_that_is_refused_is_told_at_once_and_the_way_back_leads_back(loaded):
    old = loaded("base_config.env_args={g: 9.8}", "nn_config.rep={dense_n: 8}", "sac_config.gamma=0.9")
    wrong = ("nn_config.rep=null", "sac_config.init_log_alpha=0", "sac_config.gamma=0.9")
    with pytest.raises(ConfigError) as caught:
        refuse(changes(old, loaded(*wrong, seed=2)))
    back = [problem.fix.splitlines()[0].removeprefix("leave it: ") for problem in caught.value.problems]
    assert len(back) == 4 and "'base_config.env_args={g: 9.8}'" in back
    assert changes(old, loaded(*wrong, *(text.strip("'") for text in back), seed=None)) == []


PPO = "algorithm=PPO"
NOVEL = ["reward_signals.rnd.strength=1", "reward_signals.rnd.gamma=0.9"]
FAR, NEAR = "sac_config.gamma=0.999", "sac_config.gamma=0.9"
CURIOUS = "sac_config.use_prediction=true"
FEW, MANY_ENVS = "base_config.n_envs=2", "base_config.n_envs=4"


def signals(gail, rnd):
    path = f"demonstrations.path={f'{gail}.npz' if gail else 'null'}"
    strengths = {"reward_signals.gail": gail, "reward_signals.rnd": rnd, "behavioral_cloning": gail}
    return [PPO, path, *(f"{key}.strength={value}" for key, value in strengths.items())]


def windows(kind, burn_in, learn):
    keys = {"seq_encoder": kind, "burn_in_step": burn_in, "learn_step": learn}
    return [f"sac_config.{key}={value}" for key, value in keys.items()]


OF_SIGNALS = {
    "reward_signals.rnd.strength",
    "reward_signals.gail.strength",
    "demonstrations.path",
    "behavioral_cloning.strength",
}


@pytest.mark.parametrize(
    ("old", "new", "applied", "refused"),
    [
        (["replay_config.capacity=1000"], ["replay_config.capacity=2000"], {"replay_config.capacity"}, set()),
        (["replay_config.capacity=2000"], ["replay_config.capacity=1000"], set(), {"replay_config.capacity"}),
        ([PPO, FEW], [PPO, MANY_ENVS], {"base_config.n_envs"}, set()),
        ([PPO, MANY_ENVS], [PPO, FEW], set(), {"base_config.n_envs"}),
        ([MANY_ENVS], [FEW], {"base_config.n_envs"}, set()),
        (signals(1, 0.1), signals(0.5, 0.2), OF_SIGNALS, set()),
        (signals(1, 0), signals(0, 1), set(), OF_SIGNALS),
        (signals(0, 1), signals(1, 0), set(), OF_SIGNALS),
        (
            windows("RNN", 4, 4),
            windows("RNN", 2, 8),
            {"sac_config.burn_in_step", "sac_config.learn_step"},
            set(),
        ),
        (windows("ATTN", 4, 4), windows("ATTN", 4, 8), {"sac_config.learn_step"}, set()),
        (windows("ATTN", 4, 4), windows("ATTN", 2, 4), set(), {"sac_config.burn_in_step"}),
        (NOVEL, [*NOVEL, FAR], {"sac_config.gamma"}, set()),
        (NOVEL, [*NOVEL, NEAR], set(), {"sac_config.gamma"}),
        ([*NOVEL, NEAR], NOVEL, set(), {"sac_config.gamma"}),
        ([], ["reward_signals.updates=2"], {"reward_signals.updates"}, set()),
        ([], ["sac_config.use_extra_data=false"], {"sac_config.use_extra_data"}, set()),
        ([CURIOUS], [CURIOUS, "sac_config.use_extra_data=false"], set(), {"sac_config.use_extra_data"}),
    ],
)
def test_what_is_applied_and_what_is_refused(loaded, old, new, applied, refused):
    found = effects(loaded(*old), loaded(*new))
    assert {path for path, effect in found.items() if effect.refused} == refused
    assert found.keys() == applied | refused


def test_with_another_algorithm_nothing_else_is_told(loaded):
    sac, ppo = loaded(), loaded("algorithm=PPO", "ppo_config.rollout_step=64", "nn_config.rep={dense_n: 8}")
    for old, new, before in ((sac, ppo, "SAC"), (ppo, sac, "PPO")):
        with pytest.raises(ConfigError) as caught:
            refuse(changes(old, new))
        (problem,) = caught.value.problems
        assert problem.fix.startswith(f"leave it: algorithm={before}\n")


def test_what_says_nothing_with_the_algorithm_may_change(task):
    """What another family's runs cannot change: the default section was edited since."""
    ppo = "ppo:\n  algorithm: PPO\n"
    task(PENDULUM + "  sac_config: {use_priority: true}\n" + ppo)
    old = load_config("gym/task", "ppo", seed=1)
    task(PENDULUM + "  sac_config: {use_priority: false}\n  nn_config: {q: {dense_n: 4}}\n" + ppo)
    assert changes(old, load_config("gym/task", "ppo", seed=1)) == []


def test_a_new_end_moves_the_step_size_and_what_beta_grows_to(loaded):
    def note(*given):
        old, new = (loaded(f"base_config.max_step={end}", *given) for end in (10, 20))
        return effects(old, new)["base_config.max_step"].note

    assert "beta grows to 1 at the new end" in note()
    assert (
        note("replay_config.beta_increment_per_sampling=0.1") == note("sac_config.use_priority=false") == ""
    )
    for schedule in ("linear", "cosine"):
        assert "decays to the new end" in note(f"sac_config.learning_rate_schedule={schedule}")


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
    own = {"ma_config.left.nn_config.q", "ma_config.left.sac_config.gamma"}
    assert {change.path for change in changes(old, alone)} == own
