"""Evidence: what is killed goes on, what fails or is missing is named, tables say what the figures say."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import gymnasium as gym
import pytest

from algorithm.app.report.theme import TONES
from algorithm.config import load_config
from benchmarks import tables
from benchmarks.evidence import PLAN
from benchmarks.harness import RESULTS
from benchmarks.plans import BARE, Plan
from benchmarks.runs import overriding
from benchmarks.standings import Evidence, read_points, write_points
from benchmarks.worker import WorkerError

# ---- the plan


def test_the_plan_can_be_trained() -> None:
    """Every environment is known, every setting a key, and the last evaluation is that of the last step."""
    plan = Plan.read(PLAN)
    for suite in plan.suites.values():
        for name, task in suite.tasks.items():
            assert task.steps % (4 * suite.evaluations) == 0, name
            words = overriding(task.set)[1::2]
            module, colon, _ = task.env.partition(":")
            if colon and find_spec(module) is None:  # an extra outside of ``all``
                assert module == "gymnasium_robotics"
                continue
            base = load_config(task.env, None, words, require_runnable=True).config.base_config
            assert base.env_name
            if base.env_type == "GYM" and ":" not in base.env_name:
                gym.spec(base.env_name)
    assert {cell.side for cell in plan.cells()} <= {BARE, "plain", "flash64", *plan.peers}
    assert plan.first_peer("bullet") == "SB3 SAC" and plan.first_peer("mujoco") is None


@pytest.mark.parametrize("text", ["[]", "suites: {a: 3}", "suites: {a: {tasks: {x: {size: 3}}}}", ":"])
def test_another_file_is_no_plan(tmp_path: Path, text: str) -> None:
    (tmp_path / "plan.yaml").write_text(text)
    with pytest.raises(WorkerError, match="is no plan"):
        Plan.read(tmp_path / "plan.yaml")


# ---- trainings


# ---- tables and pictures


@pytest.fixture
def figures(tmp_path: Path) -> Iterator[Path]:
    """Two seeds of ours, one of theirs, which ends at 10 after 60 s; and a task that is ours alone."""
    found = {
        (BARE, "Alone", 1): [(8, 1.0, 9.0)],
        (BARE, "Toy", 1): [(4, 10.0, 6.0), (8, 20.0, 12.0)],
        (BARE, "Toy", 2): [(4, 5.0, 6.0), (8, 15.0, 12.0)],
        ("peer A", "Toy", 1): [(4, 9.6, 30.0), (8, 10.0, 60.0)],
    }
    write_points(tmp_path / "evidence.csv", found)
    rows = [
        {"suite": "toys", "task": task, "side": side, "seed": seed, "state": "finished", "version": "abc"}
        for side, task, seed in found
    ]
    planned = {BARE: 3, "peer A": 2}
    suites = {"toys": {"first": "peer A", "published": {"others": [[4, 0.5]]}, "planned": planned}}
    about = {"suite": "toys", "env": "Toy", "steps": 8, "zero": 0.0, "one": None}
    tasks = {"Toy": about, "Alone": {**about, "one": 1.0}}
    content = {"date": "2026-01-02", "version": "abc", "left_out": {}, "suites": suites, "tasks": tasks}
    (tmp_path / "evidence.json").write_text(json.dumps({**content, "runs": rows}))
    yield tmp_path


def test_the_tables_by_hand(figures: Path) -> None:
    """Our scores are 2 and 1.5, theirs is 1; half-way 1, 0.5, 0.96. The level 10 is met at 6, 12, 60 s."""
    content = json.loads((figures / "evidence.json").read_text())
    content["suites"]["toys"]["planned"]["gone"], content["left_out"] = 2, {"gone": "no library"}
    (figures / "evidence.json").write_text(json.dumps(content))
    lines = tables.render("evidence", figures).splitlines()
    assert "Not begun: toys, 2 trainings of gone." in lines and "Left out: gone: no library" in lines
    assert "Without runs of every side, and so not compared: toys, Alone." in lines
    assert lines[2:4] == [
        "| toys | bare | 1.75 [1.5, 2] | 0.2 | 0.75 | 1 [1, 1] | 1 | 3 of 3 |",
        "| toys | peer A | 1 [1, 1] | 1 | 0.96 | | 1 | 1 of 2 |",
    ]
    assert lines[-1] == "Measured 2026-01-02 with `abc`."
    lines = tables.render("evidence-goal", figures).splitlines()
    assert lines[2:4] == [
        "| Toy | bare | 0.15 (2 of 2) | 0.15 (2 of 2) | never (1 of 2) "
        "| 0.15 [0.1, 0.2] | 0.15 [0.1, 0.2] | never [0.1, never] |",
        "| Toy | peer A | 0.5 (1 of 1) | 1 (1 of 1) | never (0 of 1) "
        "| 0.5 [0.5, 0.5] | 1 [1, 1] | never [never, never] |",
    ]


def test_a_scale_without_a_peer_is_that_of_the_best_side(figures: Path) -> None:
    content = json.loads((figures / "evidence.json").read_text())
    found = {key: of for key, of in read_points(figures / "evidence.csv").items() if key[0] == BARE}
    assert Evidence(content, found).ends("toys", "Toy") == (0.0, 17.5)
    content["tasks"]["Toy"]["zero"] = 20.0
    assert Evidence(content, found).ends("toys", "Toy") is None, "nobody is above the random policy"
    assert Evidence(content, found).sides("toys")[BARE].keys() == {"Alone"}


def test_figures_are_read_as_they_were_written(tmp_path: Path) -> None:
    found = {("a, b", 'T "x"', 7): [(1, -1e-7, 0.125), (2000, 1234.5, 3.5)], ("ä", "T", 1): [(5, 0.0, 0.0)]}
    write_points(tmp_path / "x" / "figures.csv", found)
    assert read_points(tmp_path / "x" / "figures.csv") == found
    head = (tmp_path / "x" / "figures.csv").read_text().splitlines()[0]
    assert head == "exp_name,env_name,seed,metric,env_step,value,core_seconds"


def test_no_two_sides_have_one_colour() -> None:
    evidence = Evidence.read(RESULTS)
    sides = {side for suite in evidence.suites.values() for side in suite["planned"]}
    assert len({evidence.tones[side] for side in sides}) == len(sides) <= TONES
