"""Trainings with the scripted player, from the command line: what is stored equals the players' ledgers."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any

import pytest
import yaml

from algorithm.replay.buffer import ReplayBuffer
from main import main
from tests.env.unity.test_link import free_port
from tests.unity_player import ROOT, make_build
from tests.unity_player.compare import REMEMBERING, Comparison, compare, read_ledgers
from tests.unity_player.tasks import LEARNABLE

BEHAVIOURS = {6: "Echo", 7: "EchoChoice"}
"""Numbers in the observation -> name."""


@pytest.fixture
def replays(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, ReplayBuffer]]:
    """The replays of a training in this process, by behaviour; only those that were used."""
    made: list[ReplayBuffer] = []
    found: dict[str, ReplayBuffer] = {}
    make = ReplayBuffer.__init__

    def remember(self: ReplayBuffer, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        made.append(self)
        found[BEHAVIOURS.get(sum(map(prod, self._storage.spec.obs.shapes)), "")] = self

    monkeypatch.setattr(ReplayBuffer, "__init__", remember)
    yield found
    made.clear()


def write_task(
    folder: Path, env_name: str, *, more: dict[str, Any] | None = None, bare: bool = False, **env_args: Any
) -> Path:
    """Write ``envs/own/task`` with a build, and return where its players keep their ledgers.

    bare: only what is in ``more``, for all else the defaults
    """
    task = folder / "envs" / "own" / "task"
    task.mkdir(parents=True)
    ledger = folder / "ledger"
    build = make_build(folder)
    config: dict[str, Any] = {
        "inherited": "raw",
        "base_config": {
            "env_type": "UNITY",
            "env_name": env_name,
            "env_args": {"ledger": str(ledger), **env_args},
            "env_timeout": 20,
            "unity_args": {"build_path": {sys.platform: str(build)}},
            "max_step": 600,
        },
        "nn_config": {"q": {"dense_n": 16}, "policy": {"dense_n": 16}},
        "replay_config": {"capacity": 200_000},
        "sac_config": {
            "start_step": 200,
            "batch_size": 8,
            "replay_ratio": 0.02,
            "write_summary_per_step": 200,
            "save_model_per_step": 100_000,
        },
        "eval_config": {"per_step": 100_000},
    }
    if bare:
        config = {"base_config": config["base_config"], "sac_config": {}, "eval_config": {}}
    for part, keys in (more or {}).items():
        if part == "ma_config":
            config[part] = keys
        else:
            config.setdefault(part, {}).update(keys)
    (task / "config.yaml").write_text(yaml.safe_dump({"default": config}))
    return ledger


BOTH = {"Echo": {}, "EchoChoice": {}}
REMEMBER = {"nn": "nn", "seq_encoder": "RNN", "burn_in_step": 2, "learn_step": 4}


def check_ledgers(replays: dict[str, ReplayBuffer], ledger: Path, *, remembering: bool) -> list[Comparison]:
    """Compare all behaviours; nothing is wrong, and missing is only what a last message or a reset took."""
    results = []
    for name, replay in replays.items():
        if name:
            result = compare(replay, ledger, name, remembering=remembering)
            assert result.wrong == [], f"{name}: {len(result.wrong)} of {result.stored}: {result.wrong[:5]}"
            results.append(result)
    return results


def train_remembering(
    folder: Path, env_name: str, more: dict[str, Any], capsys: pytest.CaptureFixture[str], **args: Any
) -> Path:
    """Train with networks that remember, in this process; return where the ledgers are."""
    ledger = write_task(folder, env_name, more=more, **args)
    (folder / "envs" / "own" / "task" / "nn.py").write_text(REMEMBERING)
    assert main(["own/task", "-n", "run", "--seed=1", "--device=cpu", "--quiet"]) == 0, capsys.readouterr()
    return ledger


def editor(*words: str) -> subprocess.Popen[bytes]:
    """Start a player by hand, which waits for the trainer."""
    return subprocess.Popen([sys.executable, "-m", "tests.unity_player", "--wait=60", *words], cwd=ROOT)


@pytest.mark.parametrize(
    ("env_name", "args", "base"),
    [
        pytest.param("echo", {}, {}, marks=pytest.mark.slow),
        pytest.param("echo", {"agents": 3, "period": 5, "offsets": True}, {}, marks=pytest.mark.slow),
        ("echoes", {"agents": 3, "period": 4, "offsets": True, "destroy": 0.01}, {"n_envs": 2}),
        pytest.param(
            "echoes",
            {"agents": 2, "period": 5, "respawn": True, "max-step": 30},
            {},
            marks=pytest.mark.slow,
        ),
        (
            "echoes",
            {"agents": 2, "period": 4, "offsets": True},
            {"max_step_each_iter": 50, "reset_on_iteration": True},
        ),
    ],
)
def test_every_stored_transition_is_the_ledger_s(
    env_name: str,
    args: dict[str, Any],
    base: dict[str, Any],
    tmp_path: Path,
    replays: dict[str, ReplayBuffer],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    more = {"base_config": base, "sac_config": REMEMBER, "ma_config": BOTH if env_name == "echoes" else None}
    ledger = train_remembering(tmp_path, env_name, more, capsys, **args)
    results = check_ledgers(replays, ledger, remembering=True)
    assert len(results) == (2 if env_name == "echoes" else 1)
    stored = sum(result.stored for result in results)
    assert 600 <= stored < 600 + 40
    agents = 2 * 3 * 2
    assert sum(len(result.missing) for result in results) <= agents, "those of the last message"
    result_file = tmp_path / "models" / "own" / "task" / "run" / "result.json"
    assert json.loads(result_file.read_text())["steps"] == stored


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_hundred_thousand_steps_equal_the_ledgers(
    tmp_path: Path,
    replays: dict[str, ReplayBuffer],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    base = {"max_step": 100_000, "n_envs": 2}
    sac = {**REMEMBER, "replay_ratio": 0.001, "write_summary_per_step": 10_000}
    more = {"base_config": base, "sac_config": sac, "ma_config": BOTH}
    args = {"agents": 8, "period": 4, "offsets": True, "destroy": 0.002}
    ledger = train_remembering(tmp_path, "echoes", more, capsys, **args)
    results = check_ledgers(replays, ledger, remembering=True)
    assert sum(result.stored for result in results) >= 100_000
    assert sum(len(result.missing) for result in results) <= 2 * 2 * 8, "those of the last message"


def test_episodes_of_players_that_crash_are_all_accounted_for(
    tmp_path: Path,
    replays: dict[str, ReplayBuffer],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Each process crashes at its 150th step; spaces, ledgers and ids survive it."""
    monkeypatch.chdir(tmp_path)
    more = {"base_config": {"max_step": 1000, "n_envs": 2, "env_restarts": 50}, "ma_config": BOTH}
    ledger = write_task(tmp_path, "echoes", more=more, agents=2, fault="crash@step:150", period=2)
    assert main(["own/task", "-n", "run", "--seed=1", "--device=cpu", "--quiet"]) == 0, capsys.readouterr()
    results = check_ledgers(replays, ledger, remembering=False)
    starts = [lines[0]["seed"] for lines in read_ledgers(ledger)]
    assert len(starts) >= 4 and len(set(starts)) == len(starts), "each start has a seed of its own"
    assert sum(result.truncated_here for result in results) > 0
    assert sum(len(result.missing) for result in results) <= 8 * len(starts)


def test_the_editor_is_trained_until_it_stops(tmp_path: Path) -> None:
    """The player is started by hand and connects to port 5004; it says goodbye after 300 steps."""
    write_task(tmp_path, "echo")
    output = tmp_path / "output"
    with output.open("w") as file:
        trainer = subprocess.Popen(
            [
                sys.executable,
                str(ROOT / "main.py"),
                "own/task",
                "-n",
                "run",
                "--seed=1",
                "--device=cpu",
                "--editor",
            ],
            cwd=tmp_path,
            stdout=file,
            stderr=subprocess.STDOUT,
        )
    player = editor("--task=echo", "--fault=quit@step:300")
    try:
        assert trainer.wait(120) == 130, output.read_text()  # as after a first SIGINT
        assert player.wait(10) == 0
    finally:
        for process in (player, trainer):
            process.kill()
    result = json.loads((tmp_path / "models" / "own" / "task" / "run" / "result.json").read_text())
    assert 200 < result["steps"] <= 300 and result["last_eval"] is None


@pytest.mark.parametrize(("words", "said"), [(["--run"], "mean return"), (["--eval=1000"], "ended by")])
def test_what_is_played_in_the_editor_ends_with_it_and_its_summary(
    words: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    write_task(tmp_path, "continuous", more={"base_config": {"max_step": 50}})
    assert main(["own/task", "-n", "run", "--seed=1", "--device=cpu", "--quiet"]) == 0, capsys.readouterr()
    port = str(free_port())
    player = editor(f"--mlagents-port={port}", "--fault=quit@step:30")
    try:
        assert main(["own/task", "-n", "run", "--device=cpu", "--editor", f"--port={port}", *words]) == 130
        assert player.wait(10) == 0
    finally:
        player.kill()
    shown = capsys.readouterr()
    assert said in shown.out and shown.err == ""
    run = tmp_path / "models" / "own" / "task" / "run"
    played = json.loads((run / "evaluation.json").read_text())["behaviours"]
    assert 0 < len(played["Continuous"]["returns"]) <= 30


LEARNING = {
    "continuous": {"max_step": 3000},
    "branches": {"max_step": 6000},
    "hybrid": {"max_step": 6000},
    "camera": {"max_step": 4000},
    "recall": {"max_step": 3000},
    "two": {"max_step": 8000},
}


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("task", sorted(LEARNING))
def test_a_task_with_a_known_optimum_is_learned(
    task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    sac: dict[str, Any] = {
        "start_step": 300,
        "batch_size": 128,
        "replay_ratio": 1.0,
        "learning_rate": 0.001,
        "tau": 0.05,
        "init_log_alpha": -4,
    }
    args: dict[str, Any] = {"agents": 2}
    more: dict[str, Any] = {
        "base_config": {"max_step": LEARNING[task]["max_step"]},
        "sac_config": sac,
        "nn_config": {"q": {"dense_n": 64}, "policy": {"dense_n": 64}},
        "eval_config": {"per_step": 1000, "episodes": 200},
    }
    if task == "recall":  # with the settings above one of four cues is never learned
        more["sac_config"] = {"seq_encoder": "RNN"}
        del more["nn_config"]
        args |= {"period": 2}
    write_task(tmp_path, task, more=more, bare=task == "recall", **args)
    words = ["own/task", "-n", "run", "--seed=1", "--device=cpu", "--quiet"]
    words += ["-o", "base_config.unity_args.no_graphics=false"]  # without a window, as this player has none
    assert main(words) == 0, capsys.readouterr()
    run = tmp_path / "models" / "own" / "task" / "run"
    result = json.loads((run / "result.json").read_text())
    _, optima = LEARNABLE[task]
    for name, optimum in optima.items():
        last = (result["behaviours"][name] if len(optima) > 1 else result)["last_eval"]
        assert last["mean"] >= 0.95 * optimum, f"{name}: {last}"
