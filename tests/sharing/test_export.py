"""A run as one file: what is in it, and that it plays as the run does."""

from __future__ import annotations

import hashlib
import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
import yaml

import asac
from algorithm.app.sharing.export import build
from algorithm.core.errors import StorageError, UsageError
from algorithm.runs.rundir import RunDir
from main import main
from tests.sharing.exports import SHORT, forge, members_of, with_config


def front_matter(card: str):
    return yaml.safe_load(card.split("---\n")[1])


def test_it_holds_what_acting_needs_and_nothing_of_this_machine(run, exported, tmp_path):
    files = members_of(exported)
    assert sorted(files) == [
        "README.md",
        "config.yaml",
        "manifest.json",
        "model.safetensors",
        "plots/return.png",
        "result.json",
    ]
    networks = run.folder / "checkpoints" / "step_000000120" / "model.safetensors"
    assert files["model.safetensors"] == networks.read_bytes()
    assert json.loads(files["result.json"]) == {k: v for k, v in run.result.items() if k != "paths"}
    manifest = json.loads(files["manifest.json"])
    assert manifest["env"] == "CartPole-v1" and manifest["step"] == 120
    assert manifest["spaces"]["default"]["obs"] == [["obs", [4], "float32"]]
    for name, data in files.items():
        assert str(run.folder.parents[2]).encode() not in data, name
    first = exported.read_bytes()
    assert run.export(exported, 120, replace=True).read_bytes() == first, "the same run, the same bytes"


def test_the_card_says_what_the_policy_is_worth_and_how_to_load_it(run, exported):
    card = members_of(exported)["README.md"].decode()
    matter = front_matter(card)
    assert matter["library_name"] == "advanced-soft-actor-critic"
    assert matter["tags"] == ["reinforcement-learning", "CartPole-v1"]
    (index,) = matter["model-index"]
    (result,) = index["results"]
    assert index["name"] == "SAC" and result["dataset"]["type"] == "CartPole-v1"
    (metric,) = result["metrics"]
    evaluation = run.result["last_eval"]
    half = evaluation["ci95"]
    assert metric["value"] == f"{evaluation['mean']:.2f} +/- {half:.2f}"
    assert metric["args"] == {"episodes": 2}
    sha256 = hashlib.sha256(members_of(exported)["model.safetensors"]).hexdigest()
    for told in (
        'asac.Run("first.zip")',
        "![Evaluation return](plots/return.png)",
        "| `sac_config.batch_size` | `16` | `256` |",
        "| default | while training |",
        "| torch |",
        f"`{sha256}`",
    ):
        assert told in card


def test_the_hub_s_own_library_reads_the_card(exported):
    hub = pytest.importorskip("huggingface_hub")
    card = hub.ModelCard(members_of(exported)["README.md"].decode())
    assert card.data.library_name == "advanced-soft-actor-critic"
    (found,) = card.data.eval_results
    assert found.task_type == "reinforcement-learning" and found.metric_type == "mean_reward"
    assert card.data.model_name == "SAC"


def test_a_later_evaluation_of_that_checkpoint_counts(run, exported, tmp_path):
    note = run.folder / "evaluation.json"
    content = {
        "step": 120,
        "acting": "deterministic",
        "behaviours": {"default": {"returns": [1.0, 3.0, 5.0]}},
    }
    note.write_text(json.dumps(content))
    try:
        run.export(tmp_path / "later.zip", 120)
        run.export(tmp_path / "other.zip", 60)
        note.write_text(json.dumps({**content, "acting": "sampled"}))
        run.export(tmp_path / "sampled.zip", 120)
    finally:
        note.unlink()
    files = members_of(tmp_path / "later.zip")
    (metric,) = front_matter(files["README.md"].decode())["model-index"][0]["results"][0]["metrics"]
    assert metric["value"].startswith("3.00 +/- ") and metric["args"] == {"episodes": 3}
    assert "| default | `--eval 3` | 3.00 ± 4.97 | 3 |" in files["README.md"].decode()
    other = members_of(tmp_path / "other.zip")
    assert "evaluation.json" in files and "evaluation.json" not in other
    assert "has not been evaluated" in other["README.md"].decode()
    assert "model-index" not in front_matter(other["README.md"].decode())
    assert "evaluation.json" not in members_of(tmp_path / "sampled.zip")


def test_it_acts_and_evaluates_as_the_run_does(run, exported):
    shared = asac.Run("first.zip")
    assert shared.evaluate(3) == run.evaluate(3, 120)
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
    said = capfd.readouterr()
    assert "an export has one, and this one is of step 120" in said.err
    assert "first.zip, step 120, sampled actions" in said.out
    assert not list((tmp_path / "unpacked").iterdir()), "it was left behind"


def test_the_command_exports_the_newest_run_and_replaces_nothing_untold(run, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    models = str(run.folder.parents[1])
    command = ["CartPole-v1", "--directory", models, "--export", "a.zip"]
    assert main([*command, "--quiet"]) == 0
    assert "-n a.zip --eval=10" in capfd.readouterr().out
    best = json.loads((run.folder / "checkpoints" / "best.json").read_text())["step"]
    assert asac.load("a.zip").step == best, "the best is the default"
    before = Path("a.zip").read_bytes()
    Path("a.zip").write_bytes(b"mine")
    assert main(command) == 2
    assert "add --replace" in capfd.readouterr().err and Path("a.zip").read_bytes() == b"mine"
    assert main([*command, "--replace", "-n", "first", "--ckpt=60"]) == 0
    assert asac.load("a.zip").step == 60 and Path("a.zip").read_bytes() != before
    assert [path.name for path in tmp_path.iterdir()] == ["a.zip"], "no draft is left"


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
def test_an_export_that_cannot_be_made_or_found_is_told(run, tmp_path, monkeypatch, capfd, words, said):
    monkeypatch.chdir(tmp_path)
    models = str(run.folder.parents[1])
    assert main(["CartPole-v1", "--directory", models, *words.split()]) in (2, 6)
    assert said in capfd.readouterr().err
    assert not list(tmp_path.glob("*.zip"))


@pytest.mark.parametrize(
    "words, said",
    [
        ("-n a.zip", "names an export, not a run"),
        ("-n a.zip --resume", "neither optimiser nor replay"),
        ("-n hf://me/a --export b.zip", "names an export"),
        ("--trust --eval 1", "--trust needs -n FILE.zip"),
        ("--export a.zip --eval 1", "--run, --eval or --video and --export or --push cannot go together"),
        ("--push me/a --resume", "cannot go together"),
        ("--replace --push me/a", "--replace needs --export"),
        ("--private --export a.zip", "--private needs --push"),
        ("--export a.zip -o sac_config.n_step=2", "a run is shared as it is"),
        ("--export a.zip -c fast", "a run is shared as it is"),
    ],
)
def test_flags_without_a_meaning_are_refused(words, said, capfd):
    with pytest.raises(SystemExit):
        main(["CartPole-v1", *words.split()])
    assert said in capfd.readouterr().err


def test_a_run_without_a_checkpoint_has_nothing_to_share(run, tmp_path):
    folder = tmp_path / "models" / "CartPole-v1" / "empty"
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_bytes((run.folder / "config.yaml").read_bytes())
    with pytest.raises(StorageError, match="no checkpoint") as caught:
        asac.Run(folder).export(tmp_path / "a.zip")
    assert "before it saved one" in caught.value.why
    assert not (tmp_path / "a.zip").exists()


def test_what_an_export_does_not_have_is_told(exported):
    shared = asac.Run(exported)
    for wanted in (
        shared.resume,
        lambda: shared.metrics,
        lambda: shared.report,
        lambda: shared.export("b.zip"),
        lambda: shared.push("me/a"),
    ):
        with pytest.raises(UsageError, match="an export has no") as caught:
            wanted()
        assert "first" in caught.value.fix


def test_another_task_is_told(exported, capfd):
    assert main(["Acrobot-v1", "-n", "first.zip", "--eval=1"]) == 2
    said = capfd.readouterr().err
    assert "is one of CartPole-v1" in said and "CartPole-v1 -n first.zip --eval=10" in said


def test_an_environment_with_other_spaces_is_told(exported, tmp_path, capfd):
    change = with_config("env_name: CartPole-v1", "env_name: Acrobot-v1")
    known = forge(exported, tmp_path / "known.zip", change)
    unknown = forge(exported, tmp_path / "unknown.zip", change, spaces={})
    for play in (asac.load, lambda it: asac.Run(it).evaluate(1)):
        with pytest.raises(UsageError, match="other observations or actions") as caught:
            play(known)
        assert "[4]" in caught.value.why.replace(" ", "") and "[6]" in caught.value.why.replace(" ", "")
    assert main(["CartPole-v1", "-n", "known.zip", "--eval=1", "--device=cpu"]) == 2
    with pytest.raises(StorageError, match="networks of the export do not fit"):
        asac.load(unknown)


def test_another_version_with_other_keys_is_told(exported, tmp_path):
    change = with_config("sac_config:\n", "sac_config:\n  brand_new: 3\n")
    newer = forge(exported, tmp_path / "newer.zip", change, version="9.9.1")
    with pytest.raises(UsageError, match="cannot be used by this version") as caught:
        asac.load(newer)
    assert "9.9.1" in caught.value.why and "brand_new" in caught.value.why
    assert "asac-" not in str(caught.value), "no folder that is gone"
    other = forge(exported, tmp_path / "other.zip", lambda files: None, version="9.9.1")
    assert asac.load(other).step == 120, "another version alone is no fault"


def test_every_behaviour_goes_along(tmp_path, monkeypatch):
    from algorithm.app.cli.parsing import parse_args
    from algorithm.app.training import train
    from algorithm.config.loader import load_config
    from algorithm.train.assembly import Assembly
    from tests.train.test_behaviours import CONFIG, TwoKinds

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Assembly, "env", lambda *args, **options: TwoKinds())
    (tmp_path / "task").mkdir()
    (tmp_path / "task" / "config.yaml").write_text(CONFIG)
    loaded = load_config("./task", flags={"base_config.name": "a"}, seed=1)
    train(parse_args(["./task", "--device=cpu", "--quiet"]), loaded)
    folder = tmp_path / "models" / "task" / "a"
    built = build(RunDir("task", "a", folder, "./task"), "best", source="two.zip", warn=pytest.fail)
    Path("two.zip").write_bytes(built.data)
    assert {"walker/model.safetensors", "runner/model.safetensors"} <= built.files.keys()
    results = front_matter(built.files["README.md"].decode())["model-index"][0]["results"]
    assert [one["dataset"]["config"] for one in results] == ["walker", "runner"]
    assert main(["./task", "-n", "a", "--eval=2", "--device=cpu", "--quiet"]) == 0
    assert main(["./task", "-n", "two.zip", "--eval=2", "--device=cpu", "--quiet"]) == 0
    places = [tmp_path / "models" / "task" / name / "evaluation.json" for name in ("a", "two.zip")]
    assert json.loads(places[0].read_text()) == json.loads(places[1].read_text())


def test_ppo_is_shared_alike_and_addresses_accounts_and_callbacks_stay_here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("import asac\nclass Mine(asac.Callback): pass\n")
    own = {
        "base_config.callbacks": ["mine.py:Mine"],
        "net_config.learner_host": "10.1.2.3",
        "wandb_config.entity": "my-team",
    }
    keys = {"algorithm": "PPO", "ppo_config.rollout_step": 64, "ppo_config.num_minibatch": 2}
    keys |= {"eval_config.per_step": 64, "eval_config.episodes": 2}
    run = asac.train("Pendulum-v1", **{**SHORT, "overrides": keys | own, "max_step": 128})
    shared = asac.Run(run.export("ppo.zip", "latest"))
    assert shared.evaluate(2) == run.evaluate(2, "latest"), "no code is named any more"
    files = members_of(Path("ppo.zip"))
    assert front_matter(files["README.md"].decode())["model-index"][0]["name"] == "PPO"
    for name, data in files.items():
        for word in (b"mine.py", b"10.1.2.3", b"my-team"):
            assert word not in data, name
