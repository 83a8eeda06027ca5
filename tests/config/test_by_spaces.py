"""Sections by what the spaces are: which, what they set, what stays, and when one is left out."""

import pytest
import yaml

from algorithm.config import by_spaces, load_config
from algorithm.config.by_spaces import MEANING, for_spaces
from algorithm.config.schema import DISTRIBUTED_DEFAULTS, Config, value_at
from algorithm.config.sections import shipped
from algorithm.config.tree import from_value
from algorithm.core import ActionSpec, AgentSpec, ObsSpec
from tests.config.conftest import PENDULUM, again

VECTOR = ObsSpec(("obs",), ((3,),), ("float32",))
SEEN = ObsSpec(("obs", "eye"), ((3,), (9, 8, 1)), ("float32", "uint8"))
NUMBERS, CHOICES, HYBRID = ActionSpec(continuous=2), ActionSpec((3,)), ActionSpec((2, 3), 2)
RUNNER, WALKER = AgentSpec(VECTOR, NUMBERS), AgentSpec(VECTOR, CHOICES)

SECTIONS = """
continuous:
  nn_config: {q: {norm: batch}}
  sac_config: {use_target_network: false, use_priority: false, n_step: 1, batch_size: 300}
discrete:
  sac_config: {n_step: 7}
images_discrete:
  sac_config: {n_step: 4, batch_size: 64}
images:
  nn_config: {rep: {random_shift: 3}}
  sac_config: {n_step: 2, batch_size: 64}
"""
CONTRADICTING = [
    ["sac_config.clip_epsilon=0.2"],
    ["sac_config.siamese=ATC"],
    ["sac_config.batch_size=15"],
    ["replay_config.capacity=280"],
    ["sac_config.tau=0.1"],
    ["nn_config.q.norm=layer"],
    ["nn_config.q.block=residual"],
    ["nn_config.q=null"],
]
"""Settings of a task that `continuous` cannot lie below."""

FITTING = [
    ["nn_config.q={dense_n: 8, norm: batch}"],
    ["nn_config.policy={noisy: true}"],
    ["replay_config.alpha=0.7"],
    ["sac_config.batch_size=8", "sac_config.seq_encoder=RNN", "sac_config.learn_step=2"],
]
KEYS = ("nn_config.q", "nn_config.rep", "sac_config.use_target_network", "sac_config.n_step")


@pytest.fixture
def bare(task):
    """A task that sets nothing but its environment."""
    task(PENDULUM)


@pytest.fixture
def ours(bare, monkeypatch):
    """Three sections that might ship: the real ones follow what is measured."""
    tree = from_value(yaml.safe_load(SECTIONS), "shipped")
    monkeypatch.setattr(by_spaces, "shipped", lambda: tree)


def laid(specs=RUNNER, *overrides, own=(), **given):
    loaded = load_config("gym/task", overrides=overrides, seed=1, **given)
    specs = specs if isinstance(specs, dict) else {"default": specs}
    return for_spaces(loaded, specs, lambda config: own)


def values(config, keys=KEYS):
    return tuple(value_at(config, tuple(key.split("."))) for key in keys)


def told(loaded):
    """Names of the sections, and whether they are left out."""
    return [(one.name, bool(one.why_not)) for one in loaded.laid]


# ---- which, and what they set


@pytest.mark.parametrize(
    ("obs", "action", "section", "expected"),
    [
        (VECTOR, NUMBERS, "continuous", ({"norm": "batch"}, None, False, 1)),
        (VECTOR, HYBRID, "continuous", ({"norm": "batch"}, None, False, 1)),
        (VECTOR, CHOICES, "discrete", (None, None, True, 7)),
        (SEEN, CHOICES, "images_discrete", (None, None, True, 4)),
        (SEEN, NUMBERS, "images", (None, {"random_shift": 3}, True, 2)),
    ],
)
def test_the_spaces_choose(ours, obs, action, section, expected):
    loaded = laid(AgentSpec(obs, action))
    assert values(loaded.config) == expected
    assert told(loaded) == [(section, False)] and not loaded.by_spaces
    back = again(loaded)
    assert back.config == loaded.config and not back.by_spaces
    later = for_spaces(back, {"default": AgentSpec(SEEN, CHOICES)}, lambda config: ())
    assert later == back, "a run has what was set, whatever the sections are now"


def test_a_memory_lies_above(task, ours):
    task(PENDULUM + "  sac_config: {seq_encoder: RNN}\n")
    sac = laid().config.sac_config
    assert (sac.batch_size, sac.n_step) == (32, 1)


@pytest.mark.parametrize("ma_config", ["", "  ma_config: {Walker: {sac_config: {gamma: 0.5}}, Runner: }\n"])
def test_each_behaviour_has_those_of_its_own_spaces(task, ours, ma_config):
    """With a part of ``ma_config`` or without."""
    task(PENDULUM + ma_config)
    loaded = laid({"Runner": RUNNER, "Walker": WALKER})
    runner, walker = map(loaded.for_behaviour, ("Runner", "Walker"))
    assert values(runner) == ({"norm": "batch"}, None, False, 1)
    assert values(walker) == (None, None, True, 7)
    assert walker.sac_config.gamma == (0.5 if ma_config else Config().sac_config.gamma)
    back = again(loaded)
    assert [back.for_behaviour(name) for name in ("Runner", "Walker")] == [runner, walker]


def test_behaviours_of_one_kind_share_the_common_configuration(ours):
    loaded = laid({"A?team=0": RUNNER, "A?team=1": RUNNER})
    assert loaded.behaviours == {} and values(loaded.config)[2] is False
    assert [one.behaviours for one in loaded.laid] == [("A?team=0", "A?team=1")]


# ---- what stays


def test_what_is_set_anywhere_stays(task, ours):
    task(
        PENDULUM + "  sac_config: {n_step: 3, random_params: {batch_size: {in: [99]}}}\n"
        "  nn_config: {rep: {dense_n: 5}}\n"
        "  ma_config:\n    Walker: {sac_config: {n_step: 4}}\n    Jumper: {sac_config: }\n"
        "    Runner: {sac_config: {use_target_network: true}}\n"
    )
    specs = {"default": AgentSpec(SEEN, NUMBERS), "Walker": WALKER, "Jumper": RUNNER, "Runner": RUNNER}
    found = laid(specs)
    assert values(found.config) == (None, {"dense_n": 5, "random_shift": 3}, True, 3)
    assert found.config.sac_config.batch_size == 99
    assert found.behaviours["Walker"].sac_config.n_step == 4
    assert values(found.behaviours["Jumper"])[2:] == (False, 3)
    assert values(found.behaviours["Runner"]) == ({"norm": "batch"}, {"dense_n": 5}, True, 3)
    by_name = {(one.behaviours[0], one.name): one for one in found.laid}
    assert by_name["default", "images"].taken == {"nn_config.rep.random_shift": 3}
    assert by_name["default", "images"].overridden == ("sac_config.n_step", "sac_config.batch_size")
    assert by_name["Walker", "discrete"].taken == {}
    assert laid(RUNNER, flags={"sac_config.use_target_network": True}).config.sac_config.use_target_network


def test_what_the_run_has_resolved_stays(task, ours):
    """Also for a behaviour that the run has resolved nothing for."""
    task(PENDULUM + "  ma_config: {Runner: {sac_config: {gamma: 0.5}}}\n")
    loaded = load_config("gym/task", seed=1)
    loaded = loaded.resolved("sac_config", lambda of: {} if of.run.gamma == 0.5 else {"batch_size": 77})
    found = for_spaces(loaded, {"default": RUNNER, "Runner": RUNNER}, lambda config: ())
    sizes = [found.for_behaviour(name).run.batch_size for name in ("default", "Runner")]
    assert sizes == [77, Config().run.batch_size] and "sac_config.batch_size" not in found.differences()
    assert [one.overridden for one in found.laid] == [("sac_config.batch_size",)] * 2


@pytest.mark.parametrize(
    "given",
    [
        {"flags": {"base_config.preset": "plain"}},
        {"flags": {"base_config.preset": "lean"}},
        {"flags": {"algorithm": "TD3"}},
        {"flags": {"algorithm": "PPO", "base_config.preset": "plain"}},
        {"flags": {"sac_config.discrete_dqn_like": True}},
    ],
)
def test_another_preset_or_algorithm_has_none(bare, given):
    loaded = laid(WALKER, **given)
    assert loaded.laid == () and loaded.config == load_config("gym/task", seed=1, **given).config


def test_plain_goes_with_every_algorithm_that_a_flag_chooses(task):
    task(PENDULUM + "    preset: plain\n")
    loaded = load_config("gym/task", flags={"algorithm": "PPO"})
    assert loaded.left_out == () and loaded.config.base_config.preset == "plain"


# ---- left out


@pytest.mark.parametrize("overrides", CONTRADICTING, ids=" ".join)
def test_one_that_contradicts_what_is_set_is_left_out_whole(ours, overrides):
    """The golden file of messages has the reason."""
    loaded = laid(RUNNER, *overrides)
    assert told(loaded) == [("continuous", True)]
    assert loaded.config == load_config("gym/task", overrides=overrides, seed=1).config


@pytest.mark.parametrize("overrides", FITTING, ids=" ".join)
def test_one_that_goes_with_what_is_set_lies_there(ours, overrides):
    loaded = laid(RUNNER, *overrides)
    assert told(loaded) == [("continuous", False)]
    sac = loaded.config.sac_config
    assert (sac.use_target_network, sac.use_priority) == (False, "alpha" in overrides[0])


def test_the_widths_of_each_layer_stand_for_their_size(bare):
    """As `hidden` and `dense_n` cannot stand beside each other."""
    loaded = laid(RUNNER, "nn_config.q.hidden=[400, 300]")
    assert told(loaded) == [("continuous", False)]
    assert dict(loaded.config.nn_config.q) == {"hidden": [400, 300], "norm": "batch"}


def test_learning_from_recordings_needs_no_densities(bare):
    keys = ["demonstrations.path=a.npz", "demonstrations.share=0.5"]
    sac = laid(RUNNER, *keys).config.sac_config
    assert (sac.n_step, sac.ensemble_q_reduce, sac.use_target_network) == (1, "min", False)
    assert laid(RUNNER, *keys, "sac_config.n_step=3").config.sac_config.n_step == 3


@pytest.mark.parametrize(
    ("keys", "random"),
    [
        (["base_config.max_step=2000"], 200),
        (["base_config.max_step=100000"], 1000),
        (["base_config.max_step=-1"], 1000),
        (["base_config.max_step=2000", "sac_config.start_step=500"], 500),
        (["base_config.max_step=2000", "demonstrations.offline=true", "demonstrations.path=a.npz"], 1000),
        (["base_config.max_step=2000", "demonstrations.warm_up_policy=100"], 1000),
    ],
)
def test_random_steps_are_at_most_a_tenth_of_a_training(bare, keys, random):
    loaded = laid(RUNNER, *keys)
    assert told(loaded) == [("continuous", False)] and loaded.config.sac_config.start_step == random


@pytest.mark.parametrize(
    ("key", "schedule", "end"),
    [
        ("base_config.max_step=9000", "cosine", 0.1),
        ("base_config.max_step=-1", "cosine", 0.1),
        ("sac_config.learning_rate_schedule=constant", "constant", 0.0),
        ("sac_config.learning_rate_schedule=linear", "linear", 0.1),
        ("sac_config.learning_rate_end=0.5", "cosine", 0.5),
    ],
)
def test_step_sizes_fall_unless_they_shall_not(bare, key, schedule, end):
    sac = laid(RUNNER, key).config.sac_config
    assert (sac.learning_rate_schedule, sac.learning_rate_end, sac.adam_beta_1) == (schedule, end, 0.5)
    assert sac.learning_rate_hold == (10_000 if "schedule" not in key else 0)


@pytest.mark.parametrize(("own", "is_out"), [("ModelQ", True), ("ModelPolicy", False)])
def test_networks_of_ones_own_keep_what_they_define(ours, own, is_out):
    """The section sets nothing of a policy."""
    assert told(laid(RUNNER, own=(own,))) == [("continuous", is_out)]


# ---- named, and the file


@pytest.mark.parametrize("how", ["preset", "chosen", "inherited"])
def test_one_that_is_named_is_laid_whatever_the_spaces_are(task, how):
    task(
        PENDULUM.replace(
            "default:", "default:\n  inherited: continuous" if how == "inherited" else "default:"
        )
    )
    given = {
        "preset": {"flags": {"base_config.preset": "continuous"}},
        "chosen": {"config": "continuous"},
        "inherited": {},
    }[how]
    loaded = laid({"Runner": RUNNER, "Walker": WALKER}, **given)
    assert [one.name for one in loaded.laid] == ([] if how == "preset" else ["discrete"])
    assert loaded.for_behaviour("Runner").sac_config.use_target_network is False


@pytest.mark.parametrize("name", [name for name in MEANING if name in shipped().children])
def test_what_ships_changes_nothing_about_the_environment_and_fits_a_bare_task(bare, name):
    leaves = dict(shipped().children[name].leaves())
    assert {path[0] for path in leaves} <= {"nn_config", "sac_config", "replay_config"} and leaves
    assert not {".".join(path) for path in leaves} & set(DISTRIBUTED_DEFAULTS)
    spec = AgentSpec(SEEN if "images" in name else VECTOR, CHOICES if "discrete" in name else NUMBERS)
    assert (name, False) in told(laid(spec))
