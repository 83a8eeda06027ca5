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

from algorithm.extras.unity import testing
from algorithm.extras.unity.testing import ROOT, make_build
from algorithm.extras.unity.testing.tasks import LEARNABLE
from algorithm.replay.buffer import ReplayBuffer
from main import main
from tests.extras.unity.ledgers import REMEMBERING, Comparison, compare, read_ledgers
from tests.extras.unity.recorder import record
from tests.extras.unity.test_link import free_port

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


RUN = ["own/task", "-n", "run", "--device=cpu"]
BOTH = {"Echo": {}, "EchoChoice": {}}
REMEMBER = {"nn": "nn", "seq_encoder": "RNN", "burn_in_step": 2, "learn_step": 4}


def check_ledgers(replays: dict[str, ReplayBuffer], ledger: Path, *, remembering: bool) -> list[Comparison]:
    """Compare all behaviours; nothing is wrong."""
    results = []
    for name, replay in replays.items():
        if name:
            result = compare(replay, ledger, name, remembering=remembering)
            assert result.wrong == [], f"{name}: {len(result.wrong)} of {result.stored}: {result.wrong[:5]}"
            results.append(result)
    return results


def train_remembering(folder: Path) -> None:
    """Train with networks that remember, in this process."""
    (folder / "envs" / "own" / "task" / "nn.py").write_text(REMEMBERING)
    assert main([*RUN, "--seed=1", "--quiet"]) == 0


@pytest.mark.parametrize(
    ("args", "base"),
    [
        ({"agents": 3, "period": 4, "offsets": True, "destroy": 0.01}, {"n_envs": 2}),
        ({"agents": 2, "period": 4, "offsets": True}, {"max_step_each_iter": 50, "reset_on_iteration": True}),
        pytest.param({"agents": 2, "period": 5, "respawn": True, "max-step": 30}, {}, marks=pytest.mark.slow),
    ],
)
def test_every_stored_transition_is_the_ledger_s(
    args: dict[str, Any], base: dict[str, Any], folder: Path, replays: dict[str, ReplayBuffer]
) -> None:
    more = {"base_config": {"max_step": 400, **base}, "sac_config": REMEMBER, "ma_config": BOTH}
    ledger = write_task(folder, "echoes", more=more, **args)
    train_remembering(folder)
    results = check_ledgers(replays, ledger, remembering=True)
    stored = sum(result.stored for result in results)
    assert len(results) == 2 and 400 <= stored < 400 + 40
    assert sum(len(result.missing) for result in results) <= 2 * 3 * 2, "those of the last message"
    result_file = folder / "models" / "own" / "task" / "run" / "result.json"
    assert json.loads(result_file.read_text())["steps"] == stored
    replay = replays["Echo"]
    replay._storage.acted[: len(replay), replay._storage.layout.reward] += 0.1
    wrong = compare(replay, ledger, "Echo", remembering=True).wrong
    assert len(wrong) == replay.num_transitions, "each change is noticed"


def test_episodes_of_players_that_crash_are_all_accounted_for(
    folder: Path, replays: dict[str, ReplayBuffer], capsys: pytest.CaptureFixture[str]
) -> None:
    """Each process crashes at its 100th step; spaces, ledgers and ids survive it."""
    more = {"base_config": {"max_step": 500, "n_envs": 2, "env_restarts": 50}, "ma_config": BOTH}
    ledger = write_task(folder, "echoes", more=more, agents=2, fault="crash@step:100", period=2)
    assert main([*RUN, "--seed=1", "--quiet"]) == 0, capsys.readouterr()
    results = check_ledgers(replays, ledger, remembering=False)
    starts = [lines[0]["seed"] for lines in read_ledgers(ledger)]
    assert len(starts) >= 4 and len(set(starts)) == len(starts), "each start has a seed of its own"
    assert sum(result.truncated_here for result in results) > 0
    assert sum(len(result.missing) for result in results) <= 8 * len(starts)


@pytest.mark.parametrize("played", [["--run"], ["--eval=1000"]])
def test_what_is_trained_or_played_in_the_editor_ends_with_it(
    played: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The player is started by hand, and says goodbye."""
    write_task(folder, "continuous")
    run = folder / "models" / "own" / "task" / "run"
    for words, steps in (([], 250), (played, 30)):
        port = free_port()
        command = [sys.executable, "-m", testing.__name__, "--wait=60", f"--mlagents-port={port}"]
        with subprocess.Popen([*command, f"--fault=quit@step:{steps}"], cwd=ROOT) as player:
            assert main([*RUN, "--editor", f"--port={port}", *words]) == 130
            assert player.wait(10) == 0
    said = capsys.readouterr().out
    assert "the Unity Editor has stopped playing" in said and "SIGINT" not in said
    result = json.loads((run / "result.json").read_text())
    assert 200 < result["steps"] <= 250 and result["last_eval"] is None
    returns = json.loads((run / "evaluation.json").read_text())["behaviours"]["Continuous"]["returns"]
    assert 0 < len(returns) <= 30


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("task", "steps"), [("camera", 4000), ("two", 8000)])
def test_a_task_with_a_known_optimum_is_learned(
    task: str, steps: int, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sac: dict[str, Any] = {
        "start_step": 300,
        "batch_size": 128,
        "replay_ratio": 1.0,
        "learning_rate": 0.001,
        "tau": 0.05,
        "init_log_alpha": -4,
    }
    more: dict[str, Any] = {
        "base_config": {"max_step": steps},
        "sac_config": sac,
        "nn_config": {"q": {"dense_n": 64}, "policy": {"dense_n": 64}},
        "eval_config": {"per_step": 1000, "episodes": 200},
    }
    write_task(folder, task, more=more, agents=2)
    graphics = "base_config.unity_args.no_graphics=false"  # without a window, as this player has none
    assert main([*RUN, "--seed=1", "--quiet", "-o", graphics]) == 0, capsys.readouterr()
    result = json.loads((folder / "models" / "own" / "task" / "run" / "result.json").read_text())
    _, optima = LEARNABLE[task]
    for name, optimum in optima.items():
        last = (result["behaviours"][name] if len(optima) > 1 else result)["last_eval"]
        assert last["mean"] >= 0.95 * optimum, f"{name}: {last}"


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("task", "episodes"), [("two", 600), ("camera", 1500)])
def test_the_players_own_policy_is_recorded_and_cloned(
    task: str, episodes: int, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From ``.demo`` files, without a step of the environment: 90 % of the return of whom it copies."""
    shown = record(folder, task, episodes)
    cloning = {"strength": 1.0, "pretrain": 1000, "batch_size": 128}
    more: dict[str, Any] = {
        "base_config": {"max_step": 64},
        "sac_config": {"learning_rate": 0.001, "write_summary_per_step": 64},
        "eval_config": {"per_step": 1000, "episodes": 200},
        "ma_config": {
            name: {
                "algorithm": "PPO",
                "behavioral_cloning": cloning,
                "demonstrations": {"path": str(folder / f"{name}.demo")},
            }
            for name in shown
        },
    }
    write_task(folder, task, more=more, bare=True)
    graphics = "base_config.unity_args.no_graphics=false"
    assert main([*RUN, "--seed=1", "--quiet", "-o", graphics, "--algorithm=PPO"]) == 0, capsys.readouterr()
    rows = (folder / "models" / "own" / "task" / "run" / "metrics.jsonl").read_text().splitlines()
    first = json.loads(rows[0])
    assert first["step"] == 0
    for name, best in shown.items():
        assert first[f"{name}/eval/return_mean"] >= 0.9 * best, f"{name}: {first} of {best}"
