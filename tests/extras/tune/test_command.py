"""``--tune`` from the command line: what a study leaves, its resumption, its refusals."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from algorithm.app.command import main
from algorithm.config import load_config
from algorithm.config.tree import to_value
from algorithm.config.yaml_io import parse_tree, read_yaml
from algorithm.extras.tune.command import section_text
from algorithm.extras.tune.records import TrialRecord, verdict
from algorithm.extras.tune.study import Study
from tests.extras.tune.conftest import Made

SECTION = """\
own:
  base_config: {max_step: 300}
  eval_config: {per_step: 100}
  tune_config:
    params:
      sac_config.learning_rate: {truncated: [0.01, 1.0], log: true}
      algorithm: {in: [SAC, TD3]}
    trials: 5
    startup: 2
    final_seeds: 4
"""
STUDY = Path("models/Pendulum-v1/s")


@pytest.fixture
def study(made: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """A command line for the task, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    Path("t.yaml").write_text(SECTION)
    Path("models").mkdir()
    return lambda *words: main(["Pendulum-v1", *words])


def test_a_study_by_hand(study: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    assert study("-c", "t.yaml:own", "--tune", "s", "--seed", "1", "-o", "batch_size=32") == 0
    said = capsys.readouterr().out
    assert "5 trials and 8 runs on fresh seeds are 13 runs, 1 at a time" in said and "Better by" in said
    trials = json.loads((STUDY / "trials.json").read_text())["trials"]
    assert [trial["number"] for trial in trials] == [1, 2, 3, 4, 5]
    best = max((trial for trial in trials if trial["state"] == "complete"), key=lambda trial: trial["score"])
    tuned = read_yaml(STUDY / "tuned.yaml", [])
    assert tuned is not None
    assert tuned.value_at("tuned", "inherited") == "own"
    assert tuned.value_at("tuned", "algorithm") == best["values"]["algorithm"]
    assert tuned.value_at("tuned", "sac_config", "batch_size") == 32, "what the command line has set"
    assert tuned.value_at("tuned", "base_config") is None
    snapshot = read_yaml(STUDY / "config.study.yaml", [])
    assert snapshot is not None and snapshot.value_at("default", "tune_config") is None
    assert snapshot.value_at("default", "base_config", "max_step") == 300
    Path("pasted.yaml").write_text(SECTION + (STUDY / "tuned.yaml").read_text())
    loaded = load_config("Pendulum-v1", "pasted.yaml:tuned", seed=1)
    assert loaded.config.algorithm == best["values"]["algorithm"] and loaded.config.run.batch_size == 32
    assert study("--list") == 0
    assert "studies\n  s" in capsys.readouterr().out


def test_a_study_goes_on_as_it_was_begun(
    study: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert study("-c", "t.yaml:own", "--tune", "s", "--seed", "1") == 0
    before = json.loads((STUDY / "trials.json").read_text())["trials"]
    Path("t.yaml").write_text(SECTION.replace("0.01, 1.0", "0.5, 0.6"))  # which has no effect any more
    assert study("--tune", "--resume", "-o", "tune_config.trials=7") == 0
    after = json.loads((STUDY / "trials.json").read_text())["trials"]
    assert after[:5] == before and len(after) == 7
    assert study("--tune", "s", "--resume", "-o", "tune_config.seeds=2", "-o", "learning_rate=0.1") == 2
    said = capsys.readouterr().err
    assert "another tune_config.seeds, learning_rate could not be compared" in said
    assert study("--tune", "s", "--resume", "--seed", "2") == 2
    assert "another --seed could not be compared" in capsys.readouterr().err
    assert study("--tune", "t", "--resume") == 2
    assert "studies there: s" in capsys.readouterr().err


def test_a_verdict_outlives_a_resume_that_is_interrupted(
    study: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert study("-c", "t.yaml:own", "--tune", "s", "--seed", "1", "-o", "tune_config.trials=2") == 0
    before = (STUDY / "tuned.yaml").read_text()
    assert "fresh seeds" in before.splitlines()[1]
    monkeypatch.setattr(Study, "search", lambda self, stop, ended: stop.set("a signal", interrupted=True))
    assert study("--tune", "--resume", "-o", "tune_config.trials=3") != 0
    assert (STUDY / "tuned.yaml").read_text() == before


@pytest.mark.parametrize(
    ("task", "section", "flags", "block"),
    [
        ("gym/cart_pole", "ppo", {}, "ppo_config"),
        ("bullet/half_cheetah", "td3", {}, "sac_config"),
        ("gym/acrobot", "default", {"algorithm": "PPO"}, "ppo_config"),
        ("bullet/hopper", "default", {"base_config.preset": "tqc"}, "sac_config"),
    ],
)
def test_runs_of_a_study_have_the_settings_of_the_section(
    study: Callable[..., int], task: str, section: str, flags: dict[str, str], block: str
) -> None:
    drawn = {f"{block}.learning_rate": 0.0011}
    settings = {
        "tune_config.params": f"{{{block}.learning_rate: {{in: [0.0011]}}}}",
        "tune_config.trials": 1,
        "tune_config.final_seeds": 0,
    }
    words = [f"--{key.rpartition('.')[2]}={value}" for key, value in flags.items()]
    words += [word for key, value in settings.items() for word in ("-o", f"{key}={value}")]
    assert main([task, "-c", section, "--tune", "s", "--seed", "1", "--directory", "co:lon", *words]) == 0
    folder = Path("co:lon", task, "s").absolute()
    assert json.loads((folder / "trials.json").read_text())["trials"][0]["state"] == "complete"
    own = load_config(task, section, flags={**flags, **drawn}, seed=1)
    assert load_config(task, f"{folder}/config.study.yaml:study", drawn, seed=1).differences() == (
        own.differences()
    )


def test_the_section_to_paste_fits_the_best_algorithm(
    made: Callable[..., Made],
) -> None:
    study = made(params={"algorithm": {"in": ["PPO"]}, "ppo_config.clip": {"in": [0.1]}})
    begun = {
        "algorithm": "SAC",
        "section": "own",
        "given": {"sac_config": {"start_step": 9}, "base_config": {"name": "s", "max_step": 7}},
    }
    best = TrialRecord(1, {"algorithm": "PPO", "ppo_config.clip": 0.1}, "complete", 1.0)
    tree = parse_tree(section_text(best, begun, study.tune, ""), "tuned.yaml", [])
    assert tree is not None
    assert to_value(tree) == {
        "tuned": {
            "inherited": "own",
            "base_config": {"max_step": 7},
            "algorithm": "PPO",
            "ppo_config": {"clip": 0.1},
        }
    }


def test_only_a_study_has_runs_below_it(
    study: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert study("-n", "a/b", "--max_step", "10") == 2
    assert study("-c", "t.yaml:own", "--tune", "a/b") == 2
    assert "cannot be the name of a folder" in capsys.readouterr().err
    assert study("-c", "t.yaml:own", "--tune", "s", "-o", "tune_config.final_seeds=0") == 0
    assert study("--tune", "s", "-c", "t.yaml:own") == 2
    said = capsys.readouterr().err
    assert "a study named 's' exists already" in said and "--tune s --resume" in said
    assert study("-n", "s/trial_009", "--eval", "1") == 6
    assert "did you mean -n s/trial_00" in capsys.readouterr().err


def test_a_verdict_is_what_the_interval_says() -> None:
    better = {"tuned": [3.0, 4.0, 5.0, 6.0], "default": [1.0, 2.0, 3.5, 4.0]}
    # Differences 2, 2, 1.5, 2: 1.875 ± t(3) · 0.25 / 2 with t = 3.182.
    assert verdict(better, "maximize") == (
        "The tuned values are better on fresh seeds. Better by 1.88 [1.48, 2.27]."
    )
    assert "are worse" in verdict(better, "minimize")
    assert "no difference" in verdict({"tuned": [1.0, 2.0, 3.0], "default": [2.0, 1.0, 3.0]}, "maximize")
    assert verdict({"tuned": [1.0, None], "default": [0.5, 1.0]}, "maximize") == "", "one pair"
