"""What is written: run folders' configurations, the generated files; and what importing costs."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from algorithm.config import dump_config, load_config, load_config_file
from algorithm.config.schema import Config, fields
from algorithm.config.tree import to_value
from algorithm.config.yaml_io import inline, parse_tree, parse_value, write_yaml
from algorithm.env.kinds import KINDS
from scripts import reference
from tests.config.conftest import PENDULUM

ROOT = Path(__file__).parents[2]

texts = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"])) | st.sampled_from(
    [
        "1e5",
        "3E-4",
        "null",
        "yes",
        "0x1",
        "2024-01-01",
        "12:30",
        "{time}",
        "- a",
        "a: b",
        "#",
        "<<",
        "=",
        "1_0",
        ".5",
    ]
)
numbers = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False)
values = st.recursive(
    texts | numbers | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


def read(text):
    problems = []
    tree = parse_tree(text, "x", problems)
    assert not problems, problems[0]
    return to_value(tree)


@given(st.dictionaries(texts.filter(lambda key: key != "<<"), values, max_size=3))
def test_written_yaml_reads_back_equal(value):
    back = read(write_yaml(value))
    assert back == value and repr(back) == repr(value)
    assert repr(parse_value(inline(value))) == repr(value), "on the command line, too"


sac = st.fixed_dictionaries(
    {},
    optional={
        "learning_rate": st.floats(1e-300, 10),
        "n_step": st.integers(1, 50),
        "tau": st.floats(1e-9, 1),
        "clip_epsilon": st.floats(-1e9, 1e9),
        "use_priority": st.booleans(),
        "nn": texts,
    },
)
free = st.none() | st.dictionaries(texts, values, max_size=2)
configs = st.builds(
    lambda s, rep, reset, args, name: Config.model_validate(
        {
            "base_config": {"env_type": "GYM", "env_name": "x", "env_args": args, "name": name or "x"},
            "reset_config": reset,
            "nn_config": {"rep": rep},
            "sac_config": {**s, "seed": 1},
        }
    ),
    sac, free, free, free, texts,
)  # fmt: skip


@pytest.fixture(scope="module")
def origin(tmp_path_factory):
    folder = tmp_path_factory.mktemp("task")
    (folder / "config.yaml").write_text(PENDULUM)
    return load_config(str(folder), seed=1)


def reread(loaded):
    file = loaded.env_dir / "run.yaml"
    file.write_text(dump_config(loaded), encoding="utf-8")
    return load_config_file(file)


@settings(max_examples=10)
@given(config=configs)
def test_dump_and_load_return_the_same_configuration(origin, config):
    back = reread(replace(origin, config=config, behaviours={"Ball?team=0": config}))
    assert (back.config, dict(back.behaviours)) == (config, {"Ball?team=0": config})


def test_a_dump_says_where_it_comes_from_and_holds_every_key(task):
    file = task(PENDULUM + "fast:\n  sac_config: {random_params: {tau: {in: [0.25]}}}\n")
    loaded = load_config("gym/task", "fast", ["sac_config.n_step=2", "base_config.name=a\nb: c"], seed=5)
    text = dump_config(loaded)
    assert text.startswith(
        "# gym/task: every key, resolved from config.yaml, section fast\n"
        "# override: sac_config.n_step=2\n# override: base_config.name=a b: c\n"
        "# drawn: sac_config.tau = 0.25\n"
    )
    written = read(text)
    assert written["sac_config"]["tau"] == 0.25 and written["sac_config"]["seed"] == 5
    assert set(written) == {*Config.model_fields, "ma_config"} - {"tune_config"}, "no run needs it"
    saved = file.with_name("saved.yaml")
    saved.write_text(text)
    back = load_config_file(saved, ["sac_config.tau=0.5"], {"base_config.n_envs": 2}, seed=6)
    assert (back.config.sac_config.tau, back.config.base_config.n_envs, back.seed) == (0.5, 2, 6)
    assert (back.section, back.env_dir, back.drawn) == ("", file.parent, {})


def test_the_generated_files_are_up_to_date(tmp_path, monkeypatch, capsys):
    assert reference.main(["--check"]) == 0, "run python scripts/reference.py --write"
    monkeypatch.setattr(reference, "_ROOT", tmp_path)
    assert reference.main(["--check"]) == 1
    assert "docs/configuration.md is out of date" in capsys.readouterr().err
    (tmp_path / "algorithm").mkdir()
    assert (reference.main(["--write"]), reference.main(["--check"])) == (0, 0)


def test_the_default_listing_loads_and_is_the_default():
    file = ROOT / "algorithm" / "default_config.yaml"
    assert load_config_file(file).differences() == {}
    assert set(read(file.read_text("utf-8"))) == {*Config.model_fields, "ma_config"}


def test_the_generated_files_have_every_key_and_no_default_of_a_required_one():
    page = reference.markdown()
    for path, field in fields():
        name = ".".join(path[1:] or path)
        assert f"- `{name}` (" in page or f"`{name}: " in page.partition("## Every key")[2]
        assert field.description and field.description[-1] in ".}]." and len(field.description) < 200, path
    assert f"- `env_type` (*required*, {', '.join(KINDS)}, module:NAME): " in page
    assert "  # env_type:\n" in reference.default_yaml({})


# ---- small files that would take all memory or time

BOMB = ["  x0: &x0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
BOMB += [f"  x{n}: &x{n} [{', '.join([f'*x{n - 1}'] * 10)}]" for n in range(1, 12)]
MERGES = ["  y0: &y0 {a: 1}"]
MERGES += [f"  y{n}: &y{n} {{<<: [{', '.join([f'*y{n - 1}'] * 10)}]}}" for n in range(1, 12)]
NESTED = ["  z0: &z0 {a: 1}"]
NESTED += [f"  z{n}: &z{n} {{{', '.join(f'k{k}: *z{n - 1}' for k in range(10))}}}" for n in range(1, 12)]


@pytest.mark.fault("F43")
@pytest.mark.parametrize("bomb", [BOMB, MERGES, NESTED], ids=["lists", "merges", "mappings"])
def test_aliases_that_grow_without_end_are_refused_before_they_do(bomb):
    problems = []
    assert parse_tree("\n".join(["default:", *bomb]), "file", problems) is None
    (problem,) = problems
    assert "more than 100,000 values once its aliases are written out" in problem.why
    assert problem.where.startswith("file:")


@pytest.mark.fault("F43")
def test_what_is_large_or_wrong_in_another_way():
    for text in (
        "default:\n  base_config: {name: a\x00b}\n",
        "a: &a {b: *a}",
        "[" * 1000,
        f"a: {'1' * 5000}",
    ):
        problems = []
        assert parse_tree(text, "config.yaml", problems) is None
        assert [problem.what for problem in problems] == ["the file is not valid YAML"]
