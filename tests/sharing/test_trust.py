"""Exports never run code that nobody has trusted."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import asac
from algorithm.config.schema import Config
from algorithm.errors import UsageError, UserError
from algorithm.sharing.trust import code_named
from main import main
from tests.sharing.exports import SHORT, forge, with_config


def named(base: dict | None = None, **blocks: object) -> list[str]:
    whole = {"env_type": "GYM", "env_name": "CartPole-v1"} | (base or {})
    return code_named(Config.model_validate({"base_config": whole, **blocks}))


@pytest.mark.parametrize(
    "base, key",
    [
        ({"env_name": "evil:X"}, "base_config.env_name"),
        ({"env_name": "evil.py:X"}, "base_config.env_name"),
        ({"env_name": "../evil.py:X"}, "base_config.env_name"),
        ({"env_name": "algorithm.env./../evil.py:X"}, "base_config.env_name"),
        ({"env_name": "algorithm.env.evil.py:X"}, "base_config.env_name"),
        ({"env_name": "algorithmic.env:X"}, "base_config.env_name"),
        ({"wrappers": ["evil:Wrapper"]}, "base_config.wrappers"),
        ({"wrappers": [{"RecordVideo": {"video_folder": "/home/me"}}]}, "base_config.wrappers"),
        ({"wrappers": [{"TransformObservation": {"func": "os:system"}}]}, "base_config.wrappers"),
        ({"callbacks": ["evil:Call"]}, "base_config.callbacks"),
        ({"env_args": {"id": "evil:X"}}, "base_config.env_args"),
        ({"env_args": {"xml_file": "../../x.xml"}}, "base_config.env_args"),
        ({"env_args": {"deep": [{"a\\b": 1}]}}, "base_config.env_args"),
        ({"unity_args": {"side_channels": ["evil:Channel"]}}, "base_config.unity_args.side_channels"),
        ({"env_type": "UNITY"}, "base_config.env_type"),
    ],
    ids=str,
)
def test_what_would_run_code_or_read_a_path_is_named(base, key):
    (found,) = named(base)
    assert found.startswith(key)


def test_wrappers_of_evaluations_and_options_of_resets_are_looked_at_too():
    assert named(eval_config={"wrappers": ["evil:W"]}) == ["eval_config.wrappers: 'evil:W'"]
    assert named(reset_config={"map": "a/b"}) == ["reset_config: 'a/b'"]


@pytest.mark.parametrize(
    "base",
    [
        {},
        {"env_type": "DM_CONTROL", "env_name": "cartpole/swingup"},
        {"env_name": "ALE/Pong-v5", "wrappers": [{"FrameStackObservation": {"stack_size": 4}}]},
        {"env_name": "algorithm.env.toys:ToyRecall-v0"},
        {"wrappers": ["algorithm.env.partial_obs:PartialObs"], "env_args": {"map_name": "4x4", "g": 9.8}},
    ],
    ids=str,
)
def test_names_of_what_is_installed_and_registered_are_none(base):
    assert named(base) == []


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
        ("env_name: CartPole-v1", "env_name: 'evil_env:X'"),
        ("env_name: CartPole-v1", "env_name: 'evil_env.py:X'"),
        ("wrappers: []", "wrappers: ['evil_env:W']"),
        ("callbacks: []", "callbacks: ['evil_env.py:C']"),
        ("  wrappers: null", "  wrappers: ['evil_env:W']"),
        ("side_channels: []", "side_channels: ['evil_env:S']"),
    ],
)
def test_a_name_in_a_configuration_imports_nothing(exported, evil, old, new):
    file = forge(exported, evil.with_name("evil.zip"), with_config(old, new))
    for load in (asac.load, lambda it: asac.Run(it).evaluate(1)):
        with pytest.raises(UsageError, match="nothing says that you trust it") as caught:
            load(file)
        assert "evil_env" in caught.value.why and "trust=True" in caught.value.fix
    assert main(["CartPole-v1", "-n", "evil.zip", "--eval=1", "--device=cpu"]) == 2
    assert "evil_env" not in sys.modules and not evil.exists()


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


def test_networks_of_an_own_file_go_along_and_run_only_when_they_are_trusted(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    marker, task = tmp_path / "ran", tmp_path / "task"
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
    assert "python -m zipfile -e own.zip FOLDER" in caught.value.fix
    assert main(["./task", "-n", "own.zip", "--eval=1", "--device=cpu"]) == 2
    assert not marker.exists()
    assert "--trust" in capfd.readouterr().err
    assert asac.load(file, trust=True).step == 120
    assert marker.exists()
    assert main(["./task", "-n", "own.zip", "--eval=2", "--device=cpu", "--trust", "--quiet"]) == 0
    assert run.evaluate(2, "latest") == asac.Run(file, trust=True).evaluate(2)
    assert 'asac.Run("own.zip", trust=True)' in Path("own.zip").read_bytes().decode("utf-8", "ignore")


def test_an_extension_of_this_machine_is_code():
    extensions = [{"evil:make": {"file": "/etc/passwd"}}]
    assert named(sac_config={"extensions": extensions}) == [
        "sac_config.extensions: 'evil:make'",
        "sac_config.extensions: '/etc/passwd'",
    ]
