"""``--check`` of what steps many agents at once: findings from the results of a few steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from algorithm.core.spec import ActionSpec, AgentSpec, ObsSpec
from algorithm.env.base import Observation, ResetResult, StepResult
from algorithm.extras.check.context import CheckLimits
from algorithm.extras.check.finding import Finding, Level
from algorithm.extras.check.vec_env import BehaviourRecord
from main import main


def findings(record: BehaviourRecord) -> dict[str, Finding]:
    """The first finding of each check."""
    return {result.title: result.findings[0] for result in record.results()}


def test_black_images_and_bad_numbers_are_found() -> None:
    obs = ObsSpec(("eye", "a"), ((4, 4, 3), (1,)), ("uint8", "float32"), axes=("HWC", ""))
    spec = AgentSpec(obs, ActionSpec((), 1))
    record, one = BehaviourRecord("Ball", spec), np.ones(1, np.bool_)
    seen = Observation(ids=np.zeros(1, np.int64), obs=obs.zeros(1), action_mask=spec.action.all_allowed(1))
    record.begin(ResetResult(**vars(seen)))
    nan = np.full(1, np.nan, np.float32)
    ends: dict[str, Any] = {"terminated": one, "truncated": ~one, "final": seen, "left": one}
    assert not len(record.add(StepResult(**vars(seen), reward=nan, **ends)))
    found = findings(record)
    assert found["observations"].level is Level.WARNING and "all black" in found["observations"].what
    assert found["rewards"].level is Level.ERROR


def test_an_id_with_only_a_vector_class_is_checked_in_it(cwd: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setattr("algorithm.extras.check.command.CheckLimits", lambda: CheckLimits(seconds=0.2))
    assert main(["tests.lib.toys_vector:DiaryVector-v0", "--check", "-o", "n_envs=2"]) == 0
    assert "2 in DiaryVector" in capsys.readouterr().out


def test_lanes_are_checked_by_name(cwd: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setattr("algorithm.extras.check.command.CheckLimits", lambda: CheckLimits(seconds=0.2))
    words = ["benchmarks.pendulum:Pendulum", "-o", "base_config.env_type=TENSOR", "-o", "n_envs=4"]
    assert main([*words, "--check"]) == 0
    assert "with 4.0 steps each" in capsys.readouterr().out
