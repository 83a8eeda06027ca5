"""Every key and flag that the project began with is implemented, with its default."""

import re
from pathlib import Path

import pytest
import yaml

from algorithm.app.cli import ds as cli_ds
from algorithm.app.cli import train as cli
from algorithm.config import Config, ConfigError, load_config, load_config_file
from algorithm.config.schema import DISTRIBUTED_DEFAULTS, MERGE_KEYS, field_at, fields
from algorithm.config.sections import MEMORY, SEED, leaves, reasons
from algorithm.config.tree import from_value
from algorithm.config.validation import build
from algorithm.core.fields import facts_of
from algorithm.runs.listing import listing as page
from tests.config.conftest import PENDULUM

GOLDEN = Path(__file__).parents[1] / "golden"
MAIN_FLAGS = """--config CONFIG -c CONFIG --run --logger_in_file --render --env_args {a:1} --agents 2
--max_iter 3 --port 1 -p 1 --editor --name NAME -n NAME --disable_sample --use_env_nn --device cpu
--device gpu --ckpt 5 --nn NN --repeat 2"""
DS_FLAGS = """--config CONFIG -c CONFIG --run --logger_in_file --learner_host HOST --learner_port 1 --render
--env_args {a:1} --agents 2 --unity_port 1 -p 1 --editor --name NAME -n NAME --device cpu --ckpt 5 --nn NN"""


def flat(value, path=()):
    if isinstance(value, dict) and value:
        for key, child in value.items():
            yield from flat(child, (*path, key))
    else:
        yield path, value


def listing(name):
    return yaml.safe_load((GOLDEN / name).read_text("utf-8"))


@pytest.mark.parametrize("name", ["seed_default.yaml", "seed_distributed.yaml"])
def test_every_key_of_the_listings_is_known_with_its_default_or_in_the_seed(name):
    others = leaves(SEED)
    for path, value in flat(listing(name)):
        if path == ("ma_config",):
            assert "ma_config" in MERGE_KEYS
            continue
        field = field_at(path)
        assert field is not None, path
        if path[-1] in ("env_type", "env_name"):
            assert facts_of(field).required, "only the task can know its environment"
        # There 100000; and the task chooses its end.
        elif (name, path[-1]) != ("seed_distributed.yaml", "save_model_per_step") and path[-1] != "max_step":
            assert others.get(".".join(path), field.default) == value, path


def test_the_seed_order_is_kept():
    seed = [path for path, _ in flat(listing("seed_default.yaml"))]
    assert [path for path, _ in fields() if path in set(seed)] == seed[:-1]  # less ma_config


@pytest.mark.parametrize("name", ["seed_default.yaml", "seed_distributed.yaml"])
def test_the_listings_load_as_a_whole_configuration_and_as_they_are_pasted(task, name):
    loaded = load_config_file(GOLDEN / name)
    task((GOLDEN / name).read_text("utf-8"))
    pasted = load_config("gym/task", overrides=["sac_config.n_step=5"], seed=loaded.seed)
    assert pasted.config.sac_config.n_step == 5 and pasted.source == "config.yaml, one section"
    assert pasted.config.replay_config == loaded.config.replay_config
    for choice in ("config", "default", "config:default"):
        assert load_config("gym/task", choice, seed=loaded.seed).config == loaded.config
    with pytest.raises(ConfigError, match="there are no sections; files: "):
        load_config("gym/task", "other")
    assert "none  the file is one section" in page("gym/task", Path("models"))
    written = {".".join(path): value for path, value in flat(listing(name))}
    expected = {key: value for key, value in written.items() if value != default_of(key)}
    assert loaded.differences() == {k: v for k, v in expected.items() if k != "ma_config"}


def default_of(dotted):
    field = field_at(tuple(dotted.split(".")))
    return None if field is None else field.default


@pytest.mark.parametrize("memory", [None, "RNN", "ATTN"])
@pytest.mark.parametrize("name", ["seed_default.yaml", "seed_distributed.yaml"])
def test_the_seeds_values_come_back(task, name, memory):
    task(PENDULUM.replace("default:", "default:\n  inherited: seed"))
    defaults = DISTRIBUTED_DEFAULTS if "distributed" in name else {}
    overrides = [f"sac_config.seq_encoder={memory or 'null'}"]
    if memory == "ATTN":  # without burn_in_step it would see nothing of the past, which is refused
        overrides.append("sac_config.burn_in_step=9")
    loaded = load_config("gym/task", overrides=overrides, seed=1, defaults=defaults)
    assert loaded.shipped == (SEED,)
    values = dict(flat(loaded.config.model_dump()))
    of_the_task = {"env_type", "env_name", "max_step", "seed", "seq_encoder"}
    of_the_task |= {"burn_in_step"} if memory == "ATTN" else set()
    for path, value in flat(listing(name)):
        if path != ("ma_config",) and path[-1] not in of_the_task:
            assert values[path] == value, path


def test_every_value_of_the_seed_that_is_another_one_has_a_reason():
    of_memory, why = leaves(MEMORY), reasons(SEED)
    for key, value in leaves(SEED).items():
        if {default_of(key), of_memory.get(key, value)} != {value}:
            assert len(why.get(key, "")) > 20, key


def test_every_field_says_what_it_does():
    for path, field in fields():
        assert field.description and field.description[-1] in ".}].", path
        assert len(field.description) < 200, path


def usages(text):
    """Each flag with its value, if it has one."""
    return [match.split() for match in re.findall(r"-[^\s]+(?: (?!-)\S+)?", " ".join(text.split()))]


@pytest.mark.parametrize("flag", usages(MAIN_FLAGS), ids=" ".join)
def test_every_flag_of_main_is_read(flag):
    changed = cli.parse_args(["gym/task", *flag])
    assert (changed != cli.TrainOptions(env="gym/task")) or flag == ["--device", "auto"]


@pytest.mark.parametrize(
    "role, read", {"learner": "learner", "l": "learner", "actor": "actor", "a": "actor"}.items()
)
def test_every_role_of_main_ds_is_read(role, read):
    assert cli_ds.parse_distributed(["test", role]).role == read


@pytest.mark.parametrize("role", ["evolver", "e"])
def test_the_evolver_is_a_role(role):
    assert cli_ds.parse_distributed(["test", role, "--num_learners=2"]).role == "evolver"


@pytest.mark.parametrize("flag", usages(DS_FLAGS), ids=" ".join)
def test_every_flag_of_main_ds_is_read(flag):
    changed = cli_ds.parse_distributed(["test", "learner", *flag])
    assert changed != cli_ds.parse_distributed(["test", "learner"]) or flag == ["--device", "auto"]


def test_the_defaults_do_not_contradict_themselves():
    problems = []
    named = {"base_config": {"env_type": "GYM", "env_name": "Pendulum-v1"}}
    config = build(from_value(named, ""), problems, runnable="")
    assert not problems
    assert config == Config.model_validate(config.model_dump())
    assert config.model_copy(update={"base_config": Config().base_config}) == Config()
