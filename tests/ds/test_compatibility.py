"""What learner and actor must have in common, and how a person is told that they have not."""

import json
from pathlib import Path

import pytest

from algorithm.config.loader import LoadedConfig
from algorithm.config.schema import Config
from algorithm.config.tree import Node
from algorithm.core.spec import ActionSpec, AgentSpec, ObsSpec
from ds.compatibility import agreed, differences, settings

SPEC = AgentSpec(ObsSpec(("obs",), ((3,),), ("float32",)), ActionSpec((2,), 1, "push or pull"))


def loaded(behaviours=None, **blocks):
    made = {name: Config.model_validate(values) for name, values in (behaviours or {}).items()}
    return LoadedConfig(
        env_dir=Path(),
        env_label="gym/x",
        file=Path("config.yaml"),
        section="",
        config=Config.model_validate(blocks),
        behaviours=made,
        overrides=(),
        tree=Node({}),
        drawn={},
    )


def said(config=None, specs=None, files=None):
    return agreed(config or loaded(), specs or {"default": SPEC}, files or {"default": None})


SHARED = """algorithm algorithm_args
base_config.env_type base_config.env_name base_config.env_args base_config.wrappers
base_config.max_step_each_iter base_config.reset_on_iteration base_config.noise_increasing_rate
base_config.noise_max base_config.max_episode_length reset_config environment_parameters nn_config.rep
nn_config.policy nn_config.q nn_config.v td3_config.exploration_noise reward_signals.rnd.strength
sac_config.nn
reward_signals.curiosity.gamma reward_signals.curiosity.ends reward_signals.rnd.gamma reward_signals.rnd.ends
reward_signals.gail.gamma reward_signals.gail.ends
sac_config.start_repeat_c sac_config.start_repeat_d
sac_config.ensemble_q_num sac_config.burn_in_step sac_config.learn_step sac_config.seq_encoder
sac_config.discrete_dqn_like sac_config.discrete_dqn_epsilon sac_config.use_rnd sac_config.rnd_n_sample
sac_config.use_normalization sac_config.critic_observations sac_config.action_noise sac_config.extensions
sac_config.value_head sac_config.quantile_num sac_config.categorical_num sac_config.categorical_range"""


def test_exactly_the_shared_keys_must_be_the_same():
    """``shared=True`` stands at what acting, the networks or the environment depend on."""
    assert settings(Config()).keys() == set(SHARED.split())


def test_it_is_json_whose_order_means_nothing():
    first = said(loaded(base_config={"wrappers": [{"A": None}], "env_args": {"b": 1, "a": (1, 2)}}))
    again = json.loads(json.dumps(first, allow_nan=False))
    assert again == first and first["base_config.env_args"] == {"b": 1, "a": [1, 2]}
    backwards = dict(reversed(first.items())) | {"base_config.env_args": {"a": [1, 2], "b": 1}}
    assert differences(backwards, first) == ()


@pytest.mark.fault("F19")
@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"reset_config": {"level": 2}}, 'reset_config: the learner has null, the actor {"level": 2}'),
        (
            {"sac_config": {"discrete_dqn_epsilon": 0.5}},
            "sac_config.discrete_dqn_epsilon: the learner has 0.1, the actor 0.5",
        ),
    ],
)
def test_a_difference_is_told_with_both_values(changes, line):
    theirs, ours = said(loaded(**changes)), said()
    assert differences(theirs, ours) == (line,)


def test_a_whole_number_may_be_written_as_any_number():
    """What a task's file has as 0, the file of a run that is resumed has as 0.0."""
    as_it_was = said(loaded(base_config={"noise_max": 1, "env_args": {"a": 2, "b": [3.0, 0.5]}}))
    as_it_is = said(loaded(base_config={"noise_max": 1.0, "env_args": {"a": 2.0, "b": [3, 0.5]}}))
    assert differences(as_it_was, as_it_is) == ()
    yes = said(loaded(base_config={"noise_max": 1, "env_args": {"a": True, "b": [3.0, 0.5]}}))
    assert len(differences(yes, as_it_is)) == 1, "true is no number"


def test_behaviours_and_their_own_settings():
    ours = said(loaded({"wolf": {}}))
    theirs = said(loaded({"wolf": {"sac_config": {"discrete_dqn_like": True}}}))
    assert differences(theirs, ours) == (
        "ma_config.wolf.sac_config.discrete_dqn_like: the learner has false, the actor true",
    )


def test_specs_count_without_their_words_and_networks_by_their_content(tmp_path):
    other = AgentSpec(ObsSpec(("obs",), ((4,),), ("float32",)), ActionSpec((2,), 1, "other words"))
    assert differences(said(specs={"default": other}), said()) == (
        "obs_spec.default.shapes: the learner has [[3]], the actor [[4]]",
    )
    one, same, other = (tmp_path / name for name in ("a.py", "b.py", "c.py"))
    one.write_bytes(b"x = 1\n"), same.write_bytes(b"x = 1\n"), other.write_bytes(b"x = 2\n")
    assert said(files={"default": one}) == said(files={"default": same})
    for wrong in (other, None):
        (line,) = differences(said(files={"default": wrong}), said(files={"default": one}))
        assert line.startswith("nn_file.default: the learner has a file with SHA-256 ")


def test_a_value_of_an_unknown_kind_is_told_of_too():
    """An actor may say anything: nothing in it may raise."""
    assert len(differences({"more": [None, {"x": 1.5}]}, {})) == 1
    assert len(differences({"nn_file.x": [7]}, {"nn_file.x": None})) == 1
