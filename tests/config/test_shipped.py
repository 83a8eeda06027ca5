"""Sections that ship with the framework: inherited, chosen, and the one that lies below a memory."""

from __future__ import annotations

import pytest

from algorithm.config import dump_config, load_config, load_config_file
from algorithm.config.schema import BEHAVIOUR_KEYS, Config, field_at
from algorithm.config.sections import MEMORY, leaves, shipped
from algorithm.config.tree import from_value_at, merge
from algorithm.config.validation import build
from tests.config.conftest import PENDULUM, refusal

OF_MEMORY = leaves(MEMORY)


def values(loaded, keys=OF_MEMORY, *, behaviour=None):
    config = loaded.config if behaviour is None else loaded.behaviours[behaviour]
    found = {}
    for key in keys:
        value = config
        for name in key.split("."):
            value = getattr(value, name)
        found[key] = value
    return found


PLAIN = values(type("Loaded", (), {"config": Config()}))


@pytest.mark.parametrize("name", shipped().children)
def test_each_is_checked_like_any_other(name):
    problems = []
    tree = shipped().children[name]
    if name == MEMORY:
        tree = merge(tree, from_value_at(("sac_config", "seq_encoder"), "RNN", "here"))
    build(tree, problems)
    assert problems == []
    keys = [tuple(key.split(".")) for key in leaves(name)]
    assert all(field_at(key[:2] if key[0] == "nn_config" else key) for key in keys)


def test_an_unknown_key_in_one_would_be_told_with_its_place(task, monkeypatch):
    from algorithm.config import shipped_sections

    broken = shipped().with_child(
        "seed", from_value_at(("sac_config", "tua"), 1, "algorithm/sections.yaml:9")
    )
    monkeypatch.setattr(shipped_sections, "sections", lambda: broken)
    task(PENDULUM + "  inherited: seed\n")
    (problem,) = refusal("gym/task").problems
    assert (problem.what, problem.where) == ("unknown key `sac_config.tua`", "algorithm/sections.yaml:9")


def test_it_lies_below_what_inherits_it_and_above_the_default(task):
    task(
        PENDULUM + "  sac_config: {tau: 0.5, gamma: 0.5}\n"
        "calm:\n  inherited: seed\n  sac_config: {clip_epsilon: 0.125}\n"
    )
    loaded = load_config("gym/task", "calm")
    sac = loaded.config.sac_config
    assert (sac.tau, sac.gamma, sac.clip_epsilon) == (0.005, 0.5, 0.125)
    assert loaded.shipped == ("seed",)
    assert load_config("gym/task").shipped == ()


def test_a_list_of_parents_may_have_both_kinds(task):
    task(PENDULUM + "mine:\n  sac_config: {tau: 0.5}\nboth:\n  inherited: [seed, mine]\n")
    sac = load_config("gym/task", "both").config.sac_config
    assert (sac.tau, sac.clip_epsilon) == (0.5, 0.2)


def test_a_section_of_the_tasks_own_goes_first(task):
    task(PENDULUM + "seed:\n  sac_config: {tau: 0.5}\nfast:\n  inherited: seed\n")
    for name in ("fast", "seed"):
        loaded = load_config("gym/task", name)
        assert (loaded.config.sac_config.tau, loaded.shipped) == (0.5, ())
        assert loaded.config.sac_config.clip_epsilon == Config().sac_config.clip_epsilon


def test_it_can_be_chosen(task, tmp_path):
    task(PENDULUM + "  sac_config: {gamma: 0.5}\n")
    loaded = load_config("gym/task", "seed")
    assert (loaded.config.sac_config.tau, loaded.config.sac_config.gamma) == (0.005, 0.5)
    assert (loaded.section, loaded.shipped) == ("seed", ("seed",))
    bare = load_config("CartPole-v1", "seed")
    assert (bare.config.sac_config.tau, bare.shipped, bare.source) == (0.005, ("seed",), "section seed")
    assert bare.config.base_config.env_name == "CartPole-v1"


def test_a_file_of_that_name_goes_first(task):
    task(PENDULUM)
    task("default: {base_config: {env_name: Other-v0}}", file="seed.yaml")
    assert load_config("gym/task", "seed").config.base_config.env_name == "Other-v0"


def test_they_are_named_where_a_name_is_wrong(task):
    task(PENDULUM + "  inherited: sed\n")
    (problem,) = refusal("gym/task").problems
    assert "did you mean `seed`?" in problem.fix
    task(PENDULUM)
    (problem,) = refusal("gym/task", "sed").problems
    assert (
        "did you mean `seed`? sections for every task: cross, droq, lean, memory, raw, seed, simba, tqc, xqc"
        in problem.fix
    )
    (problem,) = refusal("CartPole-v1", "sed").problems
    assert (
        "did you mean `seed`? sections for every task: cross, droq, lean, memory, raw, seed, simba, tqc, xqc"
        in problem.fix
    )


def test_without_a_memory_nothing_of_it_counts(task):
    task(PENDULUM)
    loaded = load_config("gym/task")
    assert (values(loaded), loaded.for_memory) == (PLAIN, {})


@pytest.mark.parametrize("kind", ["RNN", "ATTN"])
@pytest.mark.parametrize("how", ["default", "section", "override", "drawn"])
def test_with_a_memory_it_lies_below_everything(task, kind, how):
    line = f"  sac_config: {{seq_encoder: {kind}}}\n"
    if how == "drawn":
        line = f"  sac_config: {{random_params: {{seq_encoder: {{in: [{kind}]}}}}}}\n"
    file = PENDULUM + {"section": f"one:\n{line}", "override": ""}.get(how, line)
    task(file)
    overrides = [f"sac_config.seq_encoder={kind}"] if how == "override" else []
    loaded = load_config("gym/task", "one" if how == "section" else None, overrides)
    assert values(loaded) == OF_MEMORY
    assert dict(loaded.for_memory) == OF_MEMORY


def test_what_is_set_anywhere_stays(task):
    task(PENDULUM + "  sac_config: {batch_size: 7}\nrnn:\n  sac_config: {seq_encoder: RNN}\n")
    loaded = load_config("gym/task", "rnn", ["sac_config.learn_step=3"])
    assert values(loaded) == {**OF_MEMORY, "sac_config.batch_size": 7, "sac_config.learn_step": 3}
    assert loaded.for_memory.keys() == OF_MEMORY.keys() - {"sac_config.batch_size", "sac_config.learn_step"}


def test_a_draw_is_made_around_it(task):
    task(
        PENDULUM + "  sac_config: {seq_encoder: RNN, random_params: {learn_step: {std: 0}, "
        "batch_size: {in: [5]}}}\n"
    )
    loaded = load_config("gym/task")
    assert loaded.drawn["sac_config.learn_step"] == OF_MEMORY["sac_config.learn_step"]
    assert loaded.for_memory.keys() == OF_MEMORY.keys() - loaded.drawn.keys()


def test_each_behaviour_has_it_for_itself(task):
    task(
        PENDULUM + "  sac_config: {batch_size: 9}\n  ma_config:\n"
        "    Runner: {sac_config: {seq_encoder: RNN}}\n    Walker: {sac_config: {gamma: 0.5}}\n"
    )
    loaded = load_config("gym/task", overrides=["ma_config.Runner.sac_config.burn_in_step=2"])
    learn_step = OF_MEMORY["sac_config.learn_step"]
    runner = {"sac_config.burn_in_step": 2, "sac_config.learn_step": learn_step, "sac_config.batch_size": 9}
    assert values(loaded, runner, behaviour="Runner") == runner
    assert dict(loaded.for_memory) == {"ma_config.Runner.sac_config.learn_step": learn_step}
    assert values(loaded, behaviour="Walker") == {**PLAIN, "sac_config.batch_size": 9}


def test_a_behaviour_may_have_none_where_the_others_do(task):
    task(
        PENDULUM + "  sac_config: {seq_encoder: RNN}\n  ma_config:\n"
        "    Blind: {sac_config: {seq_encoder: null}}\n"
    )
    loaded = load_config("gym/task")
    assert (values(loaded), values(loaded, behaviour="Blind")) == (OF_MEMORY, PLAIN)


def test_it_stands_in_the_runs_configuration(task, tmp_path):
    task(PENDULUM + "  sac_config: {seq_encoder: RNN}\n")
    loaded = load_config("gym/task", seed=1)
    (tmp_path / "run.yaml").write_text(dump_config(loaded))
    back = load_config_file(tmp_path / "run.yaml")
    assert (back.config, back.for_memory) == (loaded.config, {})


def test_it_hides_no_fault(task):
    task(PENDULUM + "  replay_config: 3\n  sac_config: {seq_encoder: RNN, learn_step: x}\n")
    problems = refusal("gym/task").problems
    assert [p.what for p in problems] == [
        "`replay_config` has no keys",
        "wrong value `sac_config.learn_step: x`",
    ]


def test_it_has_only_what_a_behaviour_may_have():
    assert {key.partition(".")[0] for key in OF_MEMORY} <= set(BEHAVIOUR_KEYS)


# ---- presets

PRESETS = [name for name in shipped().children if name not in ("seed", "raw", MEMORY)]


def test_the_key_names_every_preset():
    literal = str(field_at(("base_config", "preset")).annotation)
    assert all(f"'{name}'" in literal for name in PRESETS) and literal.count("'") == 2 * len(PRESETS)


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_lies_below_all_that_the_task_sets(task, name):
    task(
        PENDULUM + "  nn_config: {q: {dense_n: 32}}\n  sac_config: {policy_update_per_step: 7}\n"
        "fast:\n  sac_config: {use_priority: true}\n"
    )
    loaded = load_config("gym/task", "fast", flags={"base_config.preset": name})
    expected = leaves(name)
    assert loaded.preset.name == name
    assert loaded.preset.taken | loaded.preset.overridden == expected
    mine = {"sac_config.policy_update_per_step", "nn_config.q.dense_n", "sac_config.use_priority"}
    assert loaded.preset.overridden.keys() == mine & expected.keys()
    sac, q = loaded.config.sac_config, loaded.config.nn_config.q
    assert (sac.policy_update_per_step, sac.use_priority, q["dense_n"]) == (7, True, 32)
    for path, value in loaded.preset.taken.items():
        block, key, *inner = path.split(".")
        found = getattr(getattr(loaded.config, block), key)
        assert (found[inner[0]] if inner else found) == value, path


def test_a_task_may_name_its_preset_and_a_run_keeps_what_it_says(task, tmp_path):
    task(PENDULUM)
    loaded = load_config("gym/task", overrides=["base_config.preset=cross"])
    file = tmp_path / "config.yaml"
    file.write_text(dump_config(loaded))
    back = load_config_file(file)
    assert back.config == loaded.config and back.preset is None
    assert back.config.sac_config.use_target_network is False


def test_without_one_nothing_changes(task):
    task(PENDULUM)
    assert load_config("gym/task").preset is None


def test_an_unknown_preset_is_told_with_what_is_like_it(task):
    task(PENDULUM)
    (problem,) = refusal("gym/task", overrides=["base_config.preset=crss"]).problems
    assert "did you mean `cross`" in problem.fix
    (problem,) = refusal("gym/task", overrides=["base_config.preset=seed"]).problems
    assert problem.what == "wrong value `base_config.preset: seed`"


def test_a_preset_is_of_sac(task):
    task(PENDULUM)
    (problem,) = refusal("gym/task", overrides=["base_config.preset=lean", "algorithm=PPO"]).problems
    assert "presets are of SAC's critics" in problem.why
