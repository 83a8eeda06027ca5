"""A run as one file: what is in it, and that it plays as the run does."""

import json
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
import yaml

import asac
from algorithm.core.errors import StorageError, UsageError
from algorithm.run.context import RunContext
from main import main
from tests.extras.sharing.exports import forge, members_of, with_config
from tests.run.test_behaviours import CONFIG, TwoKinds


def test_it_holds_what_acting_needs_and_nothing_of_this_machine(run, exported):
    files = members_of(exported)
    named = {"config.yaml", "manifest.json", "model.safetensors"}
    assert files.keys() == named | {"result.json"}
    networks = run.folder / "checkpoints" / "step_000000120" / "model.safetensors"
    assert files["model.safetensors"] == networks.read_bytes()
    assert json.loads(files["result.json"]) == {
        k: v for k, v in run.result.items() if k not in ("paths", "init_from")
    }
    manifest = json.loads(files["manifest.json"])
    assert manifest["env"] == "CartPole-v1" and manifest["step"] == 120
    assert manifest["spaces"]["default"]["obs"] == [["obs", [4], "float32"]]
    for name, data in files.items():
        assert str(run.folder.parents[2]).encode() not in data, name
    first = exported.read_bytes()
    assert run.export(exported, 120, replace=True).read_bytes() == first, "the same run, the same bytes"


def test_networks_that_are_none_name_the_export(exported, tmp_path):
    broken = forge(exported, tmp_path / "broken.zip", lambda files: files.update({"model.safetensors": b"?"}))
    with pytest.raises(StorageError) as caught:
        asac.load(broken)
    assert caught.value.where == str(broken) and "its networks cannot be read" in caught.value.why


def test_it_acts_and_evaluates_as_the_run_does(run, exported):
    shared = asac.Run("first.zip")
    assert shared.evaluate(3) == run.evaluate(np.int64(3), np.int64(120))
    assert shared.result["steps"] == 120
    policy, env = asac.load(exported), shared.make_env()
    assert policy.step == 120 and policy.action_space == env.action_space
    obs, _ = env.reset(seed=3)
    assert policy.act(obs)[0] == run.policy(120).act(obs)[0]
    assert isinstance(policy.act(np.stack([obs, obs]))[0], np.ndarray)


def test_the_command_line_plays_it_as_it_plays_the_run(run, exported, tmp_path, monkeypatch, capfd):
    (tmp_path / "unpacked").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "unpacked"))
    models = str(run.folder.parents[1])
    common = ["CartPole-v1", "--eval=3", "--device=cpu", "--quiet", "--directory"]
    assert main([*common, models, "-n", "first", "--ckpt=120"]) == 0
    assert main([*common, "mine", "-n", "first.zip"]) == 0
    own = json.loads((run.folder / "evaluation.json").read_text())
    (run.folder / "evaluation.json").unlink()
    assert json.loads(Path("mine/CartPole-v1/first.zip/evaluation.json").read_text()) == own
    for which, code in (("best", 0), ("latest", 0), ("120", 0), ("60", 6)):
        assert main([*common, "mine", "-n", "first.zip", "--ckpt", which]) == code
    assert main(["CartPole-v1", "-n", "first.zip", "--run", "--max_iter=1", "--device=cpu"]) == 0
    assert main(["Acrobot-v1", "-n", "first.zip", "--eval=1", "--device=cpu"]) == 0
    module = "gymnasium.envs.classic_control:CartPole-v1"
    assert main([module, "-n", "first.zip", "--eval=1", "--device=cpu"]) == 0
    said = capfd.readouterr()
    assert "trained on CartPole-v1, not on Acrobot-v1; it plays in CartPole-v1" in said.out
    assert said.out.count("was trained on") == 2, "once more at the end, and not where the names agree"
    assert "an export has one, and this one is of step 120" in said.err
    assert "first.zip, step 120, sampled actions" in said.out
    assert not list((tmp_path / "unpacked").iterdir()), "it was left behind"


def test_the_command_exports_the_newest_run_and_replaces_nothing_untold(run, cwd, capfd):
    command = ["CartPole-v1", "--directory", str(run.folder.parents[1]), "--export", "a.zip"]
    assert main([*command, "--quiet"]) == 0
    assert "-n a.zip --eval=10" in capfd.readouterr().out
    best = json.loads((run.folder / "checkpoints" / "best.json").read_text())["step"]
    assert asac.load("a.zip").step == best, "the best is the default"
    Path("a.zip").write_bytes(b"mine")
    assert main(command) == 2 and Path("a.zip").read_bytes() == b"mine"
    assert main([*command, "--replace", "-n", "first", "--ckpt=60"]) == 0
    assert asac.load("a.zip").step == 60
    assert [path.name for path in cwd.iterdir()] == ["a.zip"], "no draft is left"


def test_an_export_that_could_not_be_read_is_not_written(run, exported, monkeypatch):
    size = exported.stat().st_size
    for module in ("archive", "export"):
        monkeypatch.setattr(f"algorithm.extras.sharing.{module}.LARGEST", size)
    assert asac.load(run.export(exported, 120, replace=True)).step == 120, "as large as one may be"
    monkeypatch.setattr("algorithm.extras.sharing.export.LARGEST", size - 1)
    with pytest.raises(StorageError, match="too large for an export"):
        run.export("b.zip", 120)
    assert not Path("b.zip").exists()


@pytest.mark.parametrize(
    "words, said",
    [
        ("--export a.tar", "an export is a zip"),
        ("--export nowhere/a.zip", "a file cannot be written"),
        ("--export a.zip --ckpt 77", "no checkpoint of step 77"),
        ("--export a.zip -n nothing", "there is no run 'nothing'"),
        ("-n a.zip --eval 1", "the export cannot be read"),
    ],
)
def test_an_export_that_cannot_be_made_or_found_is_told(run, cwd, capfd, words, said):
    assert main(["CartPole-v1", "--directory", str(run.folder.parents[1]), *words.split()]) in (2, 6)
    assert said in capfd.readouterr().err
    assert not list(cwd.glob("*.zip"))


def test_what_an_export_does_not_have_is_told(exported):
    shared = asac.Run(exported)
    for wanted in (
        shared.resume,
        lambda: shared.metrics,
        lambda: shared.report,
        lambda: shared.export("b.zip"),
    ):
        with pytest.raises(UsageError, match="an export has no") as caught:
            wanted()
        assert "first" in caught.value.fix


def test_an_environment_with_other_spaces_is_told(exported, tmp_path):
    change = with_config("env_name: CartPole-v1", "env_name: Acrobot-v1")
    known = forge(exported, tmp_path / "known.zip", change)
    for play in (asac.load, lambda it: asac.Run(it).evaluate(1)):
        with pytest.raises(UsageError, match="other observations or actions"):
            play(known)
    assert main(["CartPole-v1", "-n", "known.zip", "--eval=1", "--device=cpu"]) == 2
    with pytest.raises(StorageError, match="networks of the export do not fit"):
        asac.load(forge(exported, tmp_path / "unknown.zip", change, spaces={}))


def test_another_version_with_other_keys_is_told(exported, tmp_path):
    change = with_config("sac_config:\n", "sac_config:\n  brand_new: 3\n")
    newer = forge(exported, tmp_path / "newer.zip", change, version="9.9.1")
    with pytest.raises(UsageError, match="cannot be used by this version") as caught:
        asac.load(newer)
    assert "9.9.1" in caught.value.why and "brand_new" in caught.value.why
    assert "asac-" not in str(caught.value), "no folder that is gone"
    other = forge(exported, tmp_path / "other.zip", lambda files: None, version="9.9.1")
    assert asac.load(other).step == 120, "another version alone is no fault"


def test_every_behaviour_goes_along(cwd, monkeypatch):
    monkeypatch.setattr(RunContext, "env", lambda *args, **options: TwoKinds())
    (cwd / "task").mkdir()
    (cwd / "task" / "config.yaml").write_text(CONFIG)
    assert main(["./task", "-n", "a", "--device=cpu", "--quiet"]) == 0
    assert main(["./task", "-n", "a", "--export", "two.zip", "--quiet"]) == 0
    assert {"walker/model.safetensors", "runner/model.safetensors"} <= members_of(Path("two.zip")).keys()
    assert main(["./task", "-n", "a", "--export", "two.onnx", "--quiet"]) == 0
    assert sorted(file.name for file in Path("two.onnx").iterdir()) == [
        f"{name}.{ending}" for name in ("runner", "walker") for ending in ("json", "onnx")
    ]
    for name in ("a", "two.zip"):
        assert main(["./task", "-n", name, "--eval=2", "--device=cpu", "--quiet"]) == 0
    own, shared = (Path("models/task", name, "evaluation.json").read_text() for name in ("a", "two.zip"))
    assert own == shared


def test_addresses_accounts_and_callbacks_stay_here(run, tmp_path):
    copy = shutil.copytree(run.folder, tmp_path / "models" / "CartPole-v1" / "mine")
    config = yaml.safe_load((copy / "config.yaml").read_text())
    config["base_config"] |= {
        "callbacks": ["mine.py:Mine"],
        "init_from": "/home/me/old",
        "init_parts": ["rep"],
    }
    config["demonstrations"] |= {
        "path": ["mine/*.npz"],
    }
    config["net_config"]["learner_host"] = "10.1.2.3"
    config["wandb_config"]["entity"] = "my-team"
    (copy / "config.yaml").write_text(f"# CartPole-v1: changed\n{yaml.safe_dump(config)}")
    result = json.loads((copy / "result.json").read_text()) | {"init_from": {"source": "/home/me/old"}}
    (copy / "result.json").write_text(json.dumps(result))
    exported = asac.Run(copy).export(tmp_path / "a.zip", "latest")
    for name, data in members_of(exported).items():
        for word in (b"mine.py", b"mine/", b"10.1.2.3", b"my-", b"/home/me"):
            assert word not in data, name
    assert asac.load(exported).step == 120, "no code is named any more"
