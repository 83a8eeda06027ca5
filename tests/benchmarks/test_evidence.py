"""Evidence: what is killed goes on, what fails or is missing is named, tables say what the figures say."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import psutil
import pytest
import yaml

from algorithm.app.report.charts import Line
from algorithm.app.report.theme import TONES
from algorithm.config import load_config
from benchmarks import pictures, tables
from benchmarks.aggregates import Estimate
from benchmarks.evidence import PLAN, evidence, wait_for
from benchmarks.harness import RESULTS, ROOT, Bench, measure
from benchmarks.plans import BARE, Plan
from benchmarks.runs import overriding
from benchmarks.standings import Evidence, read_points, write_points
from benchmarks.worker import WorkerError
from tests.lib.agreement import what_must_agree

SMALL = {
    "nn_config": {"q": {"dense_n": 8}, "policy": {"dense_n": 8}},
    "sac_config.batch_size": 8,
    "sac_config.start_step": 50,
    "sac_config.save_model_per_step": 60,
}


def plan_file(folder: Path, *sides: str, seeds: tuple[int, ...] = (1,), **tasks: Mapping[str, Any]) -> Path:
    """A plan of one suite."""
    peers = {"peer A": {"library": "stable_baselines3", "algorithm": "A"}}
    suite = {"seeds": list(seeds), "sides": list(sides), "evaluations": 2, "tasks": tasks}
    (folder / "plan.yaml").write_text(yaml.safe_dump({"sides": peers, "suites": {"toys": suite}}))
    return folder / "plan.yaml"


def ask(folder: Path, bench: Bench, **options: Any) -> dict[str, Any]:
    """Measure the plan of a folder; return its results."""
    measure(evidence, bench, folder / "results" / "evidence.json", plan=folder / "plan.yaml", **options)
    found: dict[str, Any] = json.loads((folder / "results" / "evidence.json").read_text())
    return found


class WithPeer(Bench):
    """A bench whose peer answers what it is told."""

    def __init__(self, folder: Path, answer: Mapping[str, Any]) -> None:
        super().__init__(Path(sys.executable), runs=folder / "runs", results=folder / "results")
        self._answer, self.asked = answer, []

    def theirs(self, target: str, **arguments: Any) -> dict[str, Any]:
        self.asked.append(arguments)
        return {"library": "stable-baselines3", "version": "2.9.2", **self._answer}


@pytest.fixture
def peer(monkeypatch: pytest.MonkeyPatch) -> None:
    """All libraries are there."""
    monkeypatch.setattr("benchmarks.evidence.left_out", lambda *_: {})


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


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ({"suites": ["nope"]}, "no suite nope; known are classic"),
        ({"sides": ["nope"]}, "no side nope; known are bare, SB3 SAC"),
        (
            {"suites": ["classic"], "tasks": ["cheetah"]},
            "no task is called cheetah; the plan has Pendulum-v1",
        ),
    ],
)
def test_a_part_that_is_not_there_is_refused(chosen: dict[str, list[str]], message: str) -> None:
    with pytest.raises(WorkerError, match=message):
        Plan.read(PLAN).cells(**chosen)


@pytest.mark.parametrize("text", ["[]", "suites: {a: 3}", "suites: {a: {tasks: {x: {size: 3}}}}", ":"])
def test_another_file_is_no_plan(tmp_path: Path, text: str) -> None:
    (tmp_path / "plan.yaml").write_text(text)
    with pytest.raises(WorkerError, match="is no plan"):
        Plan.read(tmp_path / "plan.yaml")


# ---- trainings


@pytest.mark.slow
def test_a_measurement_that_is_killed_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed with its training it ends as one that never stopped, and trains nothing once more."""
    script = (
        "import sys; from benchmarks.harness import *; from benchmarks.evidence import *\n"
        "folder = Path(sys.argv[1]); bench = Bench(runs=folder / 'runs', results=folder / 'results')\n"
        "measure(evidence, bench, folder / 'results/evidence.json', plan=folder / 'plan.yaml')\n"
    )
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    for folder in (killed, whole):
        folder.mkdir()
        plan_file(
            folder, "lean", Toy={"env": "Pendulum-v1", "steps": 240, "set": SMALL, "one": 0, "zero": -9}
        )
    command: Any = [sys.executable, "-c", script, killed]
    process = subprocess.Popen(command, cwd=ROOT, start_new_session=True)
    deadline = time.monotonic() + 200
    while not list(killed.glob("runs/**/checkpoints/step_*120")):
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    subprocess.run(command, cwd=ROOT, check=True)
    ask(whole, Bench(smoke=True, runs=whole / "runs", results=whole / "results"), steps=240)
    (a,), (b,) = (list(folder.glob("runs/evidence/Toy/models/*/lean-1")) for folder in (killed, whole))
    (resumed,) = json.loads((a / "manifest.json").read_text())["resumed"]
    assert resumed["step"] >= 120
    assert what_must_agree(a)["weights"] == what_must_agree(b)["weights"]
    points = read_points(killed / "results/evidence.csv")["lean", "Toy", 1]
    assert [step for step, _, _ in points] == [120, 240] and 0 < points[0][2] < points[1][2]
    monkeypatch.setattr("benchmarks.evidence.train", None)
    found = ask(killed, Bench(runs=killed / "runs", results=killed / "results"))
    assert [row["state"] for row in found["runs"]] == ["finished"]
    (killed / "results/evidence.json").unlink()  # killed before it was written
    assert ask(killed, Bench(runs=killed / "runs", results=killed / "results"))["runs"] == found["runs"]


@pytest.mark.slow
def test_a_training_that_outlived_its_command_is_waited_for(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1)"])
    holder = {"pid": process.pid, "started": psutil.Process(process.pid).create_time(), "command": "x"}
    lock = tmp_path / "run.lock"
    lock.write_text(json.dumps({**holder, "host": socket.gethostname()}))
    wait_for(tmp_path)
    assert process.poll() == 0
    lock.write_text(json.dumps({**holder, "host": "another"}))
    with pytest.raises(WorkerError, match="is trained by process"):
        wait_for(tmp_path)


@pytest.mark.slow
def test_what_fails_is_shown_until_it_is_tried_again(tmp_path: Path, peer: None) -> None:
    """Ours by its process, theirs by its answer; neither is dropped nor trained again by itself."""
    wrong = {"env": "Pendulum-v1", "steps": 8, "zero": 0, "set": {"sac_config.tau": 9}}
    plan_file(tmp_path, BARE, "peer A", Wrong=wrong)
    bench = WithPeer(tmp_path, {"error": "ValueError: no"})
    found = ask(tmp_path, bench)
    assert {(row["side"], row["state"]) for row in found["runs"]} == {(BARE, "failed"), ("peer A", "failed")}
    reasons = {row["side"]: row["reason"] for row in found["runs"]}
    assert reasons["peer A"] == "ValueError: no" and "sac_config.tau" in reasons[BARE]
    text = tables.render("evidence", tmp_path / "results")
    assert text.count("| 0 of 1; 1 failed |") == 2 and "Failed: Wrong, peer A, seed 1: ValueError: no" in text
    assert ask(tmp_path, bench)["runs"] == found["runs"] and len(bench.asked) == 1
    bench._answer = {"curve": [[4, 1.0], [8, 2.0]], "core_seconds": [1.0, 2.0]}
    again = ask(tmp_path, bench, retry_failed=True, sides=["peer A"])
    assert [(row["side"], row["state"]) for row in again["runs"]] == [
        (BARE, "failed"),
        ("peer A", "finished"),
    ]


@pytest.mark.slow
def test_what_is_asked_to_end_is_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan_file(tmp_path, BARE, Toy={"env": "Pendulum-v1", "steps": 8, "zero": -9, "one": 0})
    ends = [sys.executable, "-c", "import os; os.kill(os.getpid(), 15)"]
    monkeypatch.setattr(
        "benchmarks.evidence.train", lambda bench, *_, **__: bench.run(ends, tmp_path / "log")
    )
    assert ask(tmp_path, Bench(runs=tmp_path / "runs", results=tmp_path / "results"))["runs"] == []


@pytest.mark.slow
def test_a_peer_that_is_missing_is_left_out_and_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan_file(tmp_path, "peer A", Toy={"env": "Pendulum-v1", "steps": 8, "zero": 0})
    for python in (tmp_path / "nowhere", Path(sys.executable)):  # none, and one without the library
        found = ask(tmp_path, Bench(python, runs=tmp_path / "runs", results=tmp_path / "results"))
        assert "make bench-peers" in found["left_out"]["peer A"] and found["runs"] == []
        assert "left out: peer A" in capsys.readouterr().err
        text = tables.render("evidence", tmp_path / "results")
        assert "Not begun: toys, 1 training of peer A." in text and "Left out: peer A: " in text


def test_a_peer_s_steps_beyond_the_plan_do_not_count(tmp_path: Path, peer: None) -> None:
    """PPO ends with whole rollouts. What was measured for another plan is measured again."""
    plan_file(tmp_path, "peer A", seeds=(1, 2), Toy={"env": "Pendulum-v1", "steps": 8, "zero": 0})
    bench = WithPeer(tmp_path, {"curve": [[4, 1.0], [8, 2.0], [12, 3.0]], "core_seconds": [1.0, 2.0, 3.0]})
    ask(tmp_path, bench)
    points = read_points(tmp_path / "results/evidence.csv")
    assert points == {("peer A", "Toy", seed): [(4, 1.0, 1.0), (8, 2.0, 2.0)] for seed in (1, 2)}
    assert bench.asked[0]["fit"] == {"steps": 8, "every": 4, "episodes": 10}
    plan_file(tmp_path, "peer A", seeds=(1, 2), Toy={"env": "Pendulum-v1", "steps": 12, "zero": 0})
    ask(tmp_path, bench)
    assert len(bench.asked) == 4 and {
        len(of) for of in read_points(tmp_path / "results/evidence.csv").values()
    } == {3}


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


@pytest.mark.slow
def test_pictures_are_drawn_of_every_suite(figures: Path) -> None:
    pictures.draw(Evidence.read(figures), figures)
    suite, every = ((figures / f"evidence{name}.svg").read_text() for name in ("_toys", ""))
    assert ">published: others<" in suite and ">probability of improvement over peer A<" in suite
    assert ">core-minutes<" in every and "probability" not in every


def test_a_picture_follows_the_page_and_is_always_the_same(tmp_path: Path) -> None:
    step, half = np.array([1.0, 2.0]), np.array([0.5])
    line = Line(label="a", x=step, y=step, tone=0, dots=True)
    bars = pictures.EvidencePlot("better", "", "", bars={"<b>": Estimate(half, half, half)}, tones={"<b>": 1})
    published = pictures.EvidencePlot("", "core-minutes", "", [line], points={"others": (step, step)})
    texts = []
    for name in ("one.svg", "two.svg"):
        pictures.write_svg(tmp_path / name, [[bars, published], [published]])
        texts.append((tmp_path / name).read_text())
    assert texts[0] == texts[1]
    assert "prefers-color-scheme:dark" in texts[0] and "var(--c1)" in texts[0] and ": #1f6fb4" not in texts[0]
    assert ">&lt;b&gt;<" in texts[0] and ">others<" in texts[0] and ">core-minutes<" in texts[0]


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
