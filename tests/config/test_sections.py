"""Sections that ship with the framework: inherited, chosen, presets, below a memory; the seed's values."""

from pathlib import Path

import pytest
import yaml

from algorithm.config import load_config, load_config_file
from algorithm.config.resolve import build
from algorithm.config.schema import (
    DISTRIBUTED_DEFAULTS,
    MERGE_KEYS,
    Config,
    field_at,
    fields,
    value_at,
)
from algorithm.config.sections import MEMORY, SEED, shipped, text_of
from algorithm.config.tree import from_value_at, merge
from algorithm.core.fields import facts_of
from algorithm.store.listing import listing as page
from tests.config.conftest import PENDULUM, again

GOLDEN = Path(__file__).parents[1] / "golden"
LISTINGS = ("seed_default.yaml", "seed_distributed.yaml")
PRESETS = [name for name in shipped().children if name not in ("seed", "raw", MEMORY)]


def leaves(section):
    return {".".join(path): node.value for path, node in shipped().children[section].leaves()}


OF_MEMORY = leaves(MEMORY)


def values(config, keys=OF_MEMORY):
    return {key: value_at(config, tuple(key.split("."))) for key in keys}


PLAIN = values(Config())


@pytest.mark.parametrize("name", shipped().children)
def test_each_is_checked_like_any_other(name):
    problems = []
    tree = shipped().children[name]
    if name == MEMORY:
        tree = merge(tree, from_value_at(("sac_config", "seq_encoder"), "RNN", "here"))
    build(tree, problems)
    assert problems == []
    assert list(yaml.safe_load(text_of(name))) == [name], "the reference page shows it"


def test_inherited_and_chosen(task):
    task(
        PENDULUM + "  sac_config: {tau: 0.5, gamma: 0.5}\nmine:\n  sac_config: {v_c: 0.25}\n"
        "calm:\n  inherited: [seed, mine]\n  sac_config: {clip_epsilon: 0.125}\n"
    )
    loaded = load_config("gym/task", "calm")
    sac = loaded.config.sac_config
    assert (sac.tau, sac.gamma, sac.v_c, sac.clip_epsilon) == (0.005, 0.5, 0.25, 0.125)
    assert (loaded.shipped, load_config("gym/task").shipped) == (("seed",), ())
    loaded = load_config("gym/task", "seed")
    assert (loaded.config.sac_config.tau, loaded.config.sac_config.gamma) == (0.005, 0.5)
    assert (loaded.section, loaded.shipped) == ("seed", ("seed",))
    bare = load_config("CartPole-v1", "seed")
    assert (bare.config.sac_config.tau, bare.shipped, bare.source) == (0.005, ("seed",), "section seed")
    assert bare.config.base_config.env_name == "CartPole-v1"


def test_what_the_task_has_of_that_name_goes_first(task):
    task(PENDULUM + "seed:\n  sac_config: {tau: 0.5}\nfast:\n  inherited: seed\n")
    for name in ("fast", "seed"):
        loaded = load_config("gym/task", name)
        assert (loaded.config.sac_config.tau, loaded.shipped) == (0.5, ())
        assert loaded.config.sac_config.clip_epsilon == Config().sac_config.clip_epsilon
    task(PENDULUM)
    task("default: {base_config: {env_name: Other-v0}}", file="seed.yaml")
    assert load_config("gym/task", "seed").config.base_config.env_name == "Other-v0"


# ---- the memory


@pytest.mark.parametrize("how", ["default", "section", "override", "drawn"])
def test_with_a_memory_it_lies_below_everything(task, how):
    line = "  sac_config: {seq_encoder: RNN}\n"
    if how == "drawn":
        line = "  sac_config: {random_params: {seq_encoder: {in: [ATTN]}}}\n"
    task(PENDULUM + {"section": f"one:\n{line}", "override": ""}.get(how, line))
    overrides = ["sac_config.seq_encoder=ATTN"] if how == "override" else []
    loaded = load_config("gym/task", "one" if how == "section" else None, overrides)
    assert values(loaded.config) == OF_MEMORY == dict(loaded.for_memory)


def test_what_is_set_anywhere_stays(task):
    """Also in the run's own file."""
    task(
        PENDULUM + "  sac_config: {batch_size: 7}\n"
        "rnn:\n  sac_config: {seq_encoder: RNN, random_params: {burn_in_step: {std: 0}}}\n"
    )
    loaded = load_config("gym/task", "rnn", ["sac_config.learn_step=3"])
    assert values(loaded.config) == {**OF_MEMORY, "sac_config.batch_size": 7, "sac_config.learn_step": 3}
    assert loaded.for_memory == {}, "all is set or drawn"
    back = again(loaded)
    assert (back.config, back.for_memory) == (loaded.config, {})


def test_each_behaviour_has_it_for_itself(task):
    task(
        PENDULUM + "  sac_config: {batch_size: 9}\n  ma_config:\n"
        "    Runner: {sac_config: {seq_encoder: RNN}}\n    Walker: {sac_config: {gamma: 0.5}}\n"
    )
    loaded = load_config("gym/task", overrides=["ma_config.Runner.sac_config.burn_in_step=2"])
    learn_step = OF_MEMORY["sac_config.learn_step"]
    runner = {"sac_config.burn_in_step": 2, "sac_config.learn_step": learn_step, "sac_config.batch_size": 9}
    assert values(loaded.behaviours["Runner"], runner) == runner
    assert dict(loaded.for_memory) == {"ma_config.Runner.sac_config.learn_step": learn_step}
    assert values(loaded.behaviours["Walker"]) == {**PLAIN, "sac_config.batch_size": 9}


# ---- presets


def test_the_key_names_every_preset():
    literal = str(field_at(("base_config", "preset")).annotation)
    names = [*PRESETS, "auto", "plain"]
    assert all(f"'{name}'" in literal for name in names) and literal.count("'") == 2 * len(names)


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_lies_below_all_that_the_task_sets(task, name):
    task(PENDULUM + "  nn_config: {q: {dense_n: 32}}\n  sac_config: {policy_update_per_step: 7}\n")
    loaded = load_config("gym/task", flags={"base_config.preset": name})
    preset, mine = loaded.preset, {"sac_config.policy_update_per_step": 7, "nn_config.q.dense_n": 32}
    assert preset.name == name and preset.taken.items() <= leaves(name).items()
    assert preset.taken.keys() | set(preset.overridden) == leaves(name).keys()
    assert set(preset.overridden) == mine.keys() & leaves(name).keys()
    whole = dict(flat(loaded.config.model_dump()))
    for path, value in (preset.taken | mine).items():
        assert whole[tuple(path.split("."))] == value, path
    back = again(loaded)
    assert back.config == loaded.config and back.preset is None, "a run's file has what was set, key by key"


# ---- the seed


def flat(value, path=()):
    if isinstance(value, dict) and value:
        for key, child in value.items():
            yield from flat(child, (*path, key))
    else:
        yield path, value


def listing(name):
    return yaml.safe_load((GOLDEN / name).read_text("utf-8"))


@pytest.mark.parametrize("name", LISTINGS)
def test_every_key_of_the_listings_is_known_with_its_default_or_in_the_seed(name):
    others = leaves(SEED)
    for path, value in flat(listing(name)):
        if path == ("ma_config",):
            assert "ma_config" in MERGE_KEYS
        elif path[-1] in ("env_type", "env_name"):
            assert facts_of(field_at(path)).required, "every task needs its own environment"
        # There 100000; and the task chooses its end.
        elif (name, path[-1]) != ("seed_distributed.yaml", "save_model_per_step") and path[-1] != "max_step":
            assert others.get(".".join(path), field_at(path).default) == value, path
    seed = [path for path, _ in flat(listing("seed_default.yaml"))]
    assert {path for path, _ in fields() if path in set(seed)} == set(seed[:-1])  # less ma_config


@pytest.mark.parametrize("name", LISTINGS)
def test_the_listings_load_as_a_whole_configuration_and_as_they_are_pasted(task, name):
    loaded = load_config_file(GOLDEN / name)
    task((GOLDEN / name).read_text("utf-8"))
    for choice in ("config", "default", "config:default"):
        assert load_config("gym/task", choice, seed=loaded.seed).config == loaded.config
    assert "none  the file is one section" in page("gym/task", Path("models"))


@pytest.mark.parametrize("memory", [None, "RNN", "ATTN"])
@pytest.mark.parametrize("name", LISTINGS)
def test_the_seeds_values_come_back(task, name, memory):
    task(PENDULUM.replace("default:", "default:\n  inherited: seed"))
    defaults = DISTRIBUTED_DEFAULTS if "distributed" in name else {}
    overrides = [f"sac_config.seq_encoder={memory or 'null'}"]
    of_the_task = {"env_type", "env_name", "max_step", "seed", "seq_encoder", "ma_config"}
    if memory == "ATTN":  # without burn_in_step it would see nothing of the past, which is refused
        overrides.append("sac_config.burn_in_step=9")
        of_the_task.add("burn_in_step")
    loaded = load_config("gym/task", overrides=overrides, seed=1, defaults=defaults)
    assert loaded.shipped == (SEED,)
    found = dict(flat(loaded.config.model_dump()))
    for path, value in flat(listing(name)):
        assert path[-1] in of_the_task or found[path] == value, path
