"""``eval_config.wrappers``: wrappers that shape the training only."""

import json
from pathlib import Path

import pytest

from algorithm.core.spec import DEFAULT_BEHAVIOUR
from main import main

TASK = """\
default:
  base_config:
    env_type: GYM
    env_name: tests.lib.toys:Counting-v0
    max_step: 60
    wrappers: [{ClipReward: {min_reward: -1, max_reward: 0}}]
  sac_config: {start_step: 50, batch_size: 8, write_summary_per_step: 30}
  replay_config: {capacity: 200}
  eval_config: {per_step: -1, episodes: 2, wrappers: WRAPPERS}
"""


@pytest.fixture
def task(cwd):
    """Trains the task with wrappers of its evaluations; returns the exit code."""

    def run(wrappers: str, *flags: str) -> int:
        folder = cwd / "task"
        folder.mkdir(exist_ok=True)
        (folder / "config.yaml").write_text(TASK.replace("WRAPPERS", wrappers))
        return main(["./task", "-n=a", "--seed=1", "--quiet", "--device=cpu", *flags])

    return run


def evaluation() -> float:
    (result,) = Path("models").rglob("result.json")
    return json.loads(result.read_text())["last_eval"]["mean"]


@pytest.mark.parametrize(("wrappers", "shaped"), [("null", True), ("[]", False)])
def test_rewards_of_the_training_only_are_clipped(task, capsys, wrappers, shaped):
    """A step of the toy pays at least 1."""
    assert task(wrappers) == 0, capsys.readouterr().err
    assert (evaluation() <= 0) == shaped
    rows = [json.loads(line) for line in next(Path("models").rglob("metrics.jsonl")).read_text().splitlines()]
    returns = [row["rollout/return_mean"] for row in rows if "rollout/return_mean" in row]
    assert returns and max(returns) <= 0
    assert main(["./task", "-n=a", "--eval=1", "--quiet"]) == 0
    (played,) = Path("models").rglob("evaluation.json")
    mean = json.loads(played.read_text())["behaviours"][DEFAULT_BEHAVIOUR]["mean"]
    assert (mean <= 0) == shaped


@pytest.mark.parametrize("flags", [(), ("--dry_run",)])
def test_evaluations_that_see_something_else_are_refused(task, capsys, flags):
    assert task("[{FrameStackObservation: {stack_size: 3}}]", *flags) == 2
    assert "eval_config.wrappers" in capsys.readouterr().err
    assert not list(Path("models").rglob("config.yaml"))
