"""Exports never run code that nobody has trusted."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Literal, get_args, get_origin

import pytest
from pydantic import ValidationError

import asac
from algorithm.config.schema import Config, fields
from algorithm.core.errors import StorageError, UsageError, UserError
from algorithm.extras.sharing.trust import unlisted_keys
from main import main
from tests.extras.sharing.exports import forge, with_config
from tests.extras.short_run import SHORT

TEXTS = ("evil:X", "../evil.py:X", "/etc/passwd", "evil.X")


def shapes(text: str) -> Iterator[object]:
    """Every form in which a key of the schema may hold a text."""
    yield from (text, [text], {text: 1}, {"a": text}, {"a": [{"b": text}]}, {"a": [{text: 1}]})
    yield from ([{text: {}}], [{"RepeatAction": {"a": text}}], [{"RepeatAction": {"a": {"b": [text]}}}])


PLAIN = {
    "base_config.interventions.actions",
    "base_config.interventions.executed",
    "base_config.interventions.flag",
    "base_config.name",
    "base_config.unity_args.build_path.darwin",
    "base_config.unity_args.build_path.linux",
    "base_config.unity_args.build_path.win32",
    "base_config.unity_args.side_channels",
    "tune_config.metric",
    "wandb_config.tags",
}
"""Keys that may hold any plain word: playing an export reads none of them, or a player's alone.

A new key stands here once it is certain that a word in it loads and starts nothing.
"""


def test_no_key_of_the_schema_may_hold_what_is_not_listed():
    plain = set()
    for path, _ in fields():
        for text in TEXTS:
            for value in shapes(text):
                assert text in "".join(_unlisted(path, value, text)), (path, value)
        if any(_unlisted(path, value, "") == [] for value in ("evil", ["evil"])):
            plain.add(".".join(path))
    named = {"base_config.env_name", "base_config.info_keys", "sac_config.critic_observations"}
    assert plain - named == PLAIN


def _unlisted(path: tuple[str, ...], value: object, otherwise: str) -> list[str]:
    """Return what is named of a value of this key, where the schema takes it."""
    tree = value
    for name in reversed(path):
        tree = {name: tree}
    try:
        return list(unlisted_keys(Config.model_validate(tree)))
    except ValidationError:
        return [otherwise]


def test_what_the_schema_lists_itself_are_plain_words():
    for _, key in fields():
        for value in _literals(key.annotation):
            wrong = list(unlisted_keys(Config().model_copy(update={"environment_parameters": {"x": value}})))
            assert not isinstance(value, str) or not wrong, value


def _literals(annotation: object) -> Iterator[object]:
    for one in get_args(annotation):
        yield from [one] if get_origin(annotation) is Literal else _literals(one)


@pytest.mark.parametrize(
    "base, key",
    [
        ({"env_type": "UNITY"}, "base_config.env_type"),
        ({"env_name": "algorithm.env.evil.py:X"}, "base_config.env_name"),
        ({"env_name": "algorithm.env./../evil.py:X"}, "base_config.env_name"),
        ({"env_name": "algorithmic.env:X"}, "base_config.env_name"),
        ({"env_type": "PETTINGZOO", "env_name": "wipe"}, "base_config.env_name"),
        ({"env_type": "PETTINGZOO", "env_name": "evil.pettingzoo.x"}, "base_config.env_name"),
        ({"env_args": {"deep": [{"a\\b": 1}]}}, "base_config.env_args"),
        ({"env_args": {"module": "evil"}}, "base_config.env_args"),
        ({"wrappers": [{"RecordVideo": {"video_folder": "films"}}]}, "base_config.wrappers"),
        ({"wrappers": ["Evil"]}, "base_config.wrappers"),
        ({"unity_args": {"build_path": {"linux": "./evil"}}}, "base_config.unity_args.build_path.linux"),
    ],
    ids=str,
)
def test_what_is_none_of_the_list_is_named(base, key):
    (found,) = unlisted_keys(Config.model_validate({"base_config": base}))
    assert found.startswith(key)


def test_parameters_are_numbers_and_names_but_for_what_is_set():
    end = {"measure": "reward", "threshold": 1.0, "behavior": "Robot"}
    given = {
        "wall height": {"curriculum": [{"name": "low-1", "value": 1, "completion_criteria": end}]},
        "mass": {"sampler_type": "uniform", "sampler_parameters": {"min_value": 1, "max_value": 2}},
    }
    assert list(unlisted_keys(Config.model_validate({"environment_parameters": given}))) == []
    lesson = {"name": "/etc/x", "value": 1}
    for evil in ({"g": {"value": 1, "set": "close"}}, {"g": {"curriculum": [lesson]}}, {"../g": 1}):
        (found,) = unlisted_keys(Config.model_validate({"environment_parameters": given | evil}))
        assert found.startswith("environment_parameters")


@pytest.mark.parametrize(
    "base",
    [
        {},
        {"env_type": "DM_CONTROL", "env_name": "cartpole/swingup"},
        {"env_type": "PETTINGZOO", "env_name": "pettingzoo.classic.connect_four_v3"},
        {"env_name": "ALE/Pong-v5", "wrappers": [{"FrameStackObservation": {"stack_size": 4}}]},
        {"env_name": "algorithm.env.toys:ToyRecall-v0"},
        {"wrappers": ["algorithm.env.wrappers:PartialObs"], "env_args": {"map_name": "4x4", "g": 9.8}},
    ],
    ids=str,
)
def test_names_of_what_is_installed_and_registered_are_none(base):
    whole = {"env_type": "GYM", "env_name": "CartPole-v1"} | base
    assert list(unlisted_keys(Config.model_validate({"base_config": whole}))) == []


EVIL = "from pathlib import Path\nPath({marker!r}).touch()\n"


@pytest.fixture
def evil(tmp_path, monkeypatch):
    """A module that leaves a file behind when it is imported, and its name."""
    (tmp_path / "evil_env.py").write_text(EVIL.format(marker=str(tmp_path / "ran")))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "evil_env", raising=False)
    return tmp_path / "ran"


@pytest.mark.parametrize(
    "old, new",
    [
        ("env_type: GYM", "env_type: 'evil_env:X'"),
        ("env_name: CartPole-v1", "env_name: 'evil_env.py:X'"),
        ("wrappers: []", "wrappers: ['evil_env:W']"),
        ("callbacks: []", "callbacks: ['evil_env.py:C']"),
    ],
)
def test_a_name_in_a_configuration_imports_nothing(exported, evil, old, new):
    file = forge(exported, evil.with_name("evil.zip"), with_config(old, new))
    with pytest.raises(UsageError, match="you have not said that you trust it") as caught:
        asac.load(file)
    assert "evil_env" in caught.value.why
    assert main(["CartPole-v1", "-n", "evil.zip", "--eval=1", "--device=cpu"]) == 2
    assert "evil_env" not in sys.modules and not evil.exists()


def test_nothing_that_lies_beside_an_export_is_imported(exported, evil):
    """As what torch or a simulator looks for in vain; a folder with networks is on the path otherwise."""
    here = exported.parent
    (here / "nn.py").write_text("import evil_env")
    (here / "config.yaml").write_text("default: {base_config: {env_type: GYM, env_name: CartPole-v1}}")
    sys.path.remove(str(here))  # where the fixture has put it
    assert asac.load(exported).step == asac.Run(exported).policy().step
    assert (
        main([".", "-n", str(forge(exported, here / "x.zip", len, env=here.name)), "--eval=1", "--quiet"])
        == 0
    )
    assert str(here) not in sys.path and not evil.exists()


def test_an_export_draws_nothing(exported, evil):
    draws = "env_type: GYM\n  random_params: {env_type: {in: [GYM, 'evil_env:X']}}"
    file = forge(exported, evil.with_name("evil.zip"), with_config("env_type: GYM", draws))
    with pytest.raises(StorageError, match=r"its config.yaml draws base_config.env_type"):
        asac.load(file, trust=True)
    assert not evil.exists()


def test_what_is_trusted_runs(exported, evil):
    file = forge(
        exported, evil.with_name("evil.zip"), with_config("wrappers: []", "wrappers: ['evil_env:W']")
    )
    with pytest.raises(UserError, match="there is no wrapper"):
        asac.load(file, trust=True)
    assert evil.exists()


NN = """\
from pathlib import Path

import algorithm.nn as m

Path({marker!r}).touch()


class ModelRep(m.ModelRep):
    pass
"""


def test_networks_of_an_own_file_go_along_and_run_only_when_they_are_trusted(cwd):
    marker, task = cwd / "ran", cwd / "task"
    task.mkdir()
    (task / "config.yaml").write_text("default:\n  base_config: {env_type: GYM, env_name: CartPole-v1}\n")
    (task / "nn.py").write_text(NN.format(marker=str(marker)))
    run = asac.train("./task", name="own", **SHORT)
    file = run.export("own.zip", "latest")
    (task / "nn.py").unlink()
    marker.unlink()
    with pytest.raises(UsageError, match="would run code") as caught:
        asac.load(file)
    assert "nn.py" in caught.value.why
    play = ["./task", "-n", "own.zip", "--eval=1", "--device=cpu", "--quiet"]
    assert main(play) == 2 and not marker.exists()
    assert main([*play, "--trust"]) == 0 and marker.exists()
    assert run.evaluate(2, "latest") == asac.Run(file, trust=True).evaluate(2)
