"""What is written: run folders' configurations, the generated files; and what importing costs."""

import json
import math
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from algorithm.config import ConfigError, dump_config, load_config, load_config_file, reference
from algorithm.config.json_schema import json_schema
from algorithm.config.schema import Config, fields
from algorithm.config.tree import to_value
from algorithm.config.yaml_io import inline, parse_tree, parse_value, write_yaml
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
free = st.none() | st.dictionaries(texts, values, max_size=3)
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


@given(config=configs, other=configs)
def test_dump_and_load_return_the_same_configuration(origin, config, other):
    other = config.model_copy(update={"sac_config": other.sac_config, "replay_config": other.replay_config})
    loaded = replace(origin, config=config, behaviours={"Ball?team=0": other})
    file = origin.env_dir / "run.yaml"
    file.write_text(dump_config(loaded), encoding="utf-8")
    back = load_config_file(file)
    assert (back.config, dict(back.behaviours)) == (config, {"Ball?team=0": other})


def test_infinite_arguments_of_an_environment_are_dumped_as_they_are(origin):
    base = origin.config.base_config.model_copy(update={"env_args": {"low": -math.inf}})
    loaded = replace(origin, config=origin.config.model_copy(update={"base_config": base}))
    file = origin.env_dir / "run.yaml"
    file.write_text(dump_config(loaded), encoding="utf-8")
    assert load_config_file(file).config.base_config.env_args == {"low": -math.inf}


def test_a_dump_says_where_it_comes_from_and_holds_every_key(task):
    file = task(PENDULUM + "fast:\n  sac_config: {random_params: {tau: {in: [0.25]}}}\n")
    changes = ["sac_config.n_step=2", "base_config.name=a\nb: c"]
    loaded = load_config("gym/task", "fast", changes, seed=5)
    text = dump_config(loaded)
    assert text.startswith(
        "# gym/task: every key, resolved from config.yaml, section fast\n"
        "# override: sac_config.n_step=2\n# override: base_config.name=a b: c\n"
        "# drawn: sac_config.tau = 0.25\n"
    )
    written = read(text)
    assert written["sac_config"]["tau"] == 0.25 and written["sac_config"]["seed"] == 5
    assert set(written) == {*Config.model_fields, "ma_config"}
    saved = file.with_name("saved.yaml")
    saved.write_text(text)
    back = load_config_file(saved, ["sac_config.tau=0.5"], {"base_config.n_envs": 2}, seed=6)
    assert (back.config.sac_config.tau, back.config.base_config.n_envs, back.seed) == (0.5, 2, 6)
    assert (back.section, back.env_dir, back.drawn) == ("", file.parent, {})


@pytest.mark.fault("F21")
def test_a_saved_configuration_is_read_strictly(task):
    file = task("sac_config: {n_stp: 3}\ninherited: x\n", file="saved.yaml")
    with pytest.raises(ConfigError) as caught:
        load_config_file(file)
    assert [p.where for p in caught.value.problems] == [f"envs/gym/task/saved.yaml:{n}" for n in (1, 2)]


def test_the_generated_files_are_up_to_date(tmp_path, monkeypatch, capsys):
    assert reference.main(["--check"]) == 0, "run python -m algorithm.config.reference --write"
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
    page, schema = reference.markdown(), json_schema()
    for path, field in fields():
        below = path[1:] if len(path) > 1 else path
        assert f"| `{'.'.join(below)}` |" in page
        assert field.description and field.description[-1] in ".}]." and len(field.description) < 200, path
    assert "| `env_type` | *required* | UNITY or GYM or DM_CONTROL or a plug-in's name |" in page
    assert "  # env_type:\n" in reference.default_yaml({})
    assert json.loads(json.dumps(schema)) == schema
    section = schema["$defs"]["Section"]
    assert set(section["properties"]) == {*Config.model_fields, "ma_config", "inherited"}
    assert section["additionalProperties"] is False
    sac_schema = schema["$defs"]["SacConfig"]["properties"]
    assert sac_schema["gamma"]["minimum"] == 0 and sac_schema["seed"]["anyOf"][0]["minimum"] == 0
    assert set(sac_schema["random_params"]["properties"]) == set(sac_schema) - {"random_params"}
    assert "random_params" not in schema["$defs"]["NnConfig"]["properties"]
    base = schema["$defs"]["BaseConfig"]["properties"]
    assert all("default" not in base[key] for key in ("env_type", "env_name")) and "default" in base["name"]


def test_every_example_of_the_page_loads(task):
    examples = re.findall(r"```yaml\n(.*?)```", reference.markdown(), re.S)
    assert len(examples) == 6
    for example in examples:
        sections = read(example)
        task(example if "env_name" in example else PENDULUM + example)
        for section in sections:
            load_config("gym/task", section, require_runnable=True)


def test_importing_imports_neither_torch_nor_a_simulator():
    modules = "algorithm.config, algorithm.app.cli.parsing, algorithm.app.cli.ds, algorithm.config.reference"
    code = f"import sys, {modules}; print({{'torch', 'gymnasium', 'numpy'}} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


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
    assert len(parse_value(f"[{', '.join(['1'] * 2_000)}]")) == 2_000
    for text in (
        "default:\n  base_config: {name: a\x00b}\n",
        "a: &a {b: *a}",
        "[" * 1000,
        f"a: {'1' * 5000}",
    ):
        problems = []
        assert parse_tree(text, "config.yaml", problems) is None
        assert [problem.what for problem in problems] == ["the file is not valid YAML"]
