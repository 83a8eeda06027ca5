"""The comparison of speed with other libraries, played with workers that answer at once; and its tables."""

from __future__ import annotations

import importlib
import json
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))  # its scripts import one another by their plain names
harness, peer, render, stopwatch, tables, workers, workers_run = map(
    importlib.import_module,
    ("harness", "peer", "render", "stopwatch", "tables", "workers", "workers_run"),
)

WORKER = """
import json, sys
from argparse import ArgumentParser
parser = ArgumentParser()
parser.add_argument("--seed", type=int)
seed = parser.parse_known_args()[0].seed
print("something a library prints")
print(json.dumps({answer!r} | {{"seconds": {seconds}[seed]}}))
print("something it kept until the end")
sys.exit({code})
"""
ANSWER = {"library": "x", "version": "1", "threads": 1, "parameters": 217870, "updates": 120}
TIME = {"act": 0.1, "step": 0.1, "store": 0.0, "sample": 0.1, "update": 0.6, "other": 0.1}
STEPS = {"parameters": 201988, "steps": 3000, "updates": 2744, "time": TIME}


class Benchmark:
    """A copy of the harness beside two stand-ins for the workers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("harness", "pairs", "setting", "steps", "tasks", "updates"):
            shutil.copy(BENCHMARKS / f"{name}.py", folder)

    def worker(self, name: str, seconds: list[float], code: int = 0, **changes: Any) -> None:
        """Write the stand-in ``<name>.py``, which takes ``seconds[seed]`` for its work."""
        text = WORKER.format(answer=ANSWER | changes, seconds=seconds, code=code)
        (self.folder / f"{name}.py").write_text(text)

    def run(self, script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a script of the harness."""
        command = [sys.executable, str(self.folder / script), f"--sb3-python={sys.executable}", *arguments]
        command.append(f"--json={self.folder / 'out.json'}")
        return subprocess.run(command, capture_output=True, text=True, check=False)

    @property
    def written(self) -> dict[str, Any]:
        """The result file."""
        return json.loads((self.folder / "out.json").read_text())


@pytest.fixture
def benchmark(tmp_path: Path) -> Benchmark:
    return Benchmark(tmp_path)


def test_medians_are_of_the_pairs(benchmark: Benchmark) -> None:
    """Ours 120, 60, 40 updates/s, theirs 20, 40, 20: ratios 6, 1.5, 2 with median 2, not 60/20 = 3."""
    benchmark.worker("updates_ours", [1.0, 2.0, 3.0])
    benchmark.worker("updates_sb3", [6.0, 3.0, 6.0])
    result = benchmark.run("updates.py", "--pairs=3")
    assert result.returncode == 0, result.stderr
    assert [float(x) for x in result.stdout.splitlines()[-1].split()[1:]] == [60.0, 20.0, 2.0]
    written = benchmark.written
    assert written["medians"] == {"ours": 60.0, "peer": 20.0, "ratio": 2.0}
    assert [row["ratio"] for row in written["rates"]] == [6.0, 1.5, 2.0]
    assert written["answers"][2]["peer"]["seconds"] == 6.0
    assert written["setting"]["parameters"] == 217870
    assert {"date", "version", "machine"} < set(written)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"parameters": 1000}, "reports parameters 1000, not 217870"),
        ({"threads": 2}, "reports threads 2, not 1"),
    ],
)
def test_unequal_work_is_not_compared(benchmark: Benchmark, changes: dict[str, int], message: str) -> None:
    benchmark.worker("updates_ours", [1.0])
    benchmark.worker("updates_sb3", [1.0], **changes)
    result = benchmark.run("updates.py", "--pairs=1")
    assert result.returncode == 1
    assert message in result.stderr


def test_steps_are_counted_and_their_time_divided(benchmark: Benchmark) -> None:
    """Of 1 s ours spends 0.6 s on updates, of 2 s theirs the same: shares 0.6 and 0.3."""
    benchmark.worker("steps_ours", [1.0], **STEPS)
    benchmark.worker("steps_sb3", [2.0], **STEPS | {"updates": 2743})
    result = benchmark.run("steps.py", "--pairs=1", "--tasks=pendulum")
    assert result.returncode == 0, result.stderr
    task = benchmark.written["tasks"]["pendulum"]
    assert task["medians"] == {"ours": 3000.0, "peer": 1500.0, "ratio": 2.0}
    assert [task["shares"][side]["update"] for side in ("ours", "peer")] == [0.6, 0.3]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"updates": 1000}, "made 1000 updates, not 2744"),
        ({"steps": 2000}, "reports steps 2000, not 3000"),
        ({"time": {"act": 1.0}}, "divides its time otherwise: other, sample, step, store, update"),
    ],
)
def test_unequal_trainings_are_not_compared(
    benchmark: Benchmark, changes: dict[str, Any], message: str
) -> None:
    benchmark.worker("steps_ours", [1.0], **STEPS)
    benchmark.worker("steps_sb3", [1.0], **STEPS | changes)
    assert message in benchmark.run("steps.py", "--pairs=1", "--tasks=pendulum").stderr


def test_a_failed_worker_stops_it(benchmark: Benchmark) -> None:
    benchmark.worker("updates_ours", [1.0], code=3)
    result = benchmark.run("updates.py", "--pairs=1")
    assert result.returncode == 1
    assert "ended with exit code 3" in result.stderr


def test_a_missing_peer_is_named(benchmark: Benchmark) -> None:
    result = benchmark.run("updates.py", "--sb3-python=/nowhere/python")
    assert result.returncode == 1
    assert "make bench-peers" in result.stderr


@pytest.mark.parametrize(
    "output",
    [
        '{"a": 1}',
        'pybullet build time\n{"a": 1}\nargv[0]=\nnumActiveThreads = 0',
        'argv[0]={"a": 1}stopping threads',
        '{"a": 0}\n{"a": 1}\n{"half',
    ],
)
def test_an_answer_is_found_in_noise(output: str) -> None:
    assert harness.read_answer(output, of="it") == {"a": 1}


@pytest.mark.parametrize("output", ["", "argv[0]=\n", '{"half": '])
def test_no_answer_is_an_error(output: str) -> None:
    with pytest.raises(harness.WorkerError, match="it printed no answer"):
        harness.read_answer(output, of="it")


def test_results_keep_short_things_on_a_line() -> None:
    value = {"rates": [{"ours": 1.23456789, "peer": 2}] * 9, "name": "x" * 240, "curve": [[1, 2.0], [3, 4.0]]}
    text = harness.as_text(value)
    assert json.loads(text) == value | {"rates": [{"ours": 1.23457, "peer": 2}] * 9}
    assert '\n  {"ours": 1.23457, "peer": 2},\n' in text
    with pytest.raises(ValueError, match="not JSON compliant"):
        harness.as_text({"rate": float("nan")})


def test_the_peer_gets_our_versions() -> None:
    wanted = dict(line.split("==") for line in peer.requirements())
    assert set(wanted) == {
        "stable-baselines3",
        "torch",
        "numpy",
        "gymnasium",
        "pybullet",
        "pybullet-envs-gymnasium",
        "ale-py",
        "opencv-python-headless",
        "psutil",
    }
    assert wanted["numpy"] == np.__version__
    assert "+" not in wanted["torch"]  # a build is not asked for: another index may have none


def test_the_peer_is_installed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[list[str]] = []
    monkeypatch.setattr(peer, "PEER", tmp_path / "sb3")
    monkeypatch.setattr(peer.shutil, "rmtree", lambda *_, **__: None)
    (tmp_path / "sb3").mkdir()
    monkeypatch.setattr(peer.subprocess, "run", lambda command, check: calls.append(command))
    peer.set_up()
    peer.set_up()
    assert len(calls) == 2  # one environment, one installation
    assert calls[1][-len(peer.requirements()) :] == peer.requirements()


def test_time_is_divided_among_methods() -> None:
    """A step of 2 s, an update of 5 s of which sampling takes 3; of 10 s, 3 are nobody's."""
    now = 0.0

    def spend(seconds: float) -> None:
        nonlocal now
        now += seconds

    model = SimpleNamespace(step=lambda: spend(2), sample=lambda: spend(3))
    model.train = lambda: (model.sample(), spend(2))
    watch = stopwatch.Stopwatch(lambda: now)
    for method, name in (("step", "step"), ("sample", "sample"), ("train", "update")):
        watch.watch(model, method, name)
    model.step()
    model.train()
    assert watch.divide(10.0) == {"step": 2.0, "sample": 3.0, "update": 2.0, "other": 3.0}


def test_no_worker_without_a_copy() -> None:
    names = [name for name, _ in workers.arrangements(1, [0, 1, 2])]
    assert names == ["workers 0", "workers 1", "sync", "async"]


def test_both_kinds_are_stepped() -> None:
    """Pendulum ends after 200 steps: the 201st call resets Gymnasium's copies, and is a step for ours."""
    ours, theirs = (
        workers_run.open_ours("Pendulum-v1", 2, 0),
        workers_run.open_peer("sync", "Pendulum-v1", 2),
    )
    action = np.zeros((2, 1), np.float32)
    for env, start, expected in ((ours, workers_run.step_ours, 2), (theirs, workers_run.step_peer, 0)):
        step = start(env)
        assert [step(action) for _ in range(200)] == [2] * 200
        assert step(action) == expected
        assert step(action) == 2
        env.close()


@pytest.mark.parametrize(("digests", "same"), [("aaa", True), ("aba", False)])
def test_networks_of_all_worker_numbers_are_compared(
    digests: str, same: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "train", lambda _, number, folder: digests[number])
    found = workers.compare_networks(SimpleNamespace(workers=[0, 1, 2], steps=1500))
    assert found["same"] is same
    assert found["sha256"] == dict(zip("012", digests, strict=True))


@pytest.mark.slow
def test_collecting_is_measured(tmp_path: Path) -> None:
    sizes = ["--copies", "2", "--workers", "0", "1", "--rounds=1", "--seconds=0.1", "--steps=1100"]
    command = [sys.executable, str(BENCHMARKS / "workers.py"), "--task=pendulum", *sizes]
    subprocess.run([*command, f"--json={tmp_path / 'out.json'}"], check=True)
    written = json.loads((tmp_path / "out.json").read_text())
    assert set(written["speed"][0]["medians"]) == {"workers 0", "workers 1", "sync", "async"}
    assert written["identity"]["same"]


PAGE = "before\n\n<!-- table: updates -->\nold\n<!-- end -->\n\nafter\n"


def write_updates(folder: Path, name: str, **changes: Any) -> None:
    """A result of ``updates.py``."""
    rates = [{"ours": 3.0, "peer": 2.0, "ratio": 1.5}]
    figures = {"date": "2026-01-02", "version": "0123456789+", "medians": rates[0], "rates": rates}
    (folder / f"{name}.json").write_text(json.dumps(figures | changes))


def test_a_table_replaces_what_stands_between_its_comments(tmp_path: Path) -> None:
    write_updates(tmp_path, "updates")
    write_updates(tmp_path, "updates_old", date="2025-12-31", version="unknown")
    filled = tables.fill(PAGE, tmp_path)
    assert filled.startswith("before\n\n<!-- table: updates -->\n\n| measured |")
    assert filled.endswith("|\n\n<!-- end -->\n\nafter\n")
    first, second = [line for line in filled.splitlines() if line.startswith("| 20")]
    assert first == "| 2025-12-31, unknown | 3.0 | 2.0 | 1.50 | 1.50 |"
    assert second == "| 2026-01-02, 0123456+ | 3.0 | 2.0 | 1.50 | 1.50 |"
    assert tables.fill(filled, tmp_path) == filled


def test_a_table_without_figures_says_how_to_get_them(tmp_path: Path) -> None:
    assert "Not measured yet: `make bench ONLY=updates`." in tables.fill(PAGE, tmp_path)


@pytest.mark.parametrize(
    ("page", "message"),
    [
        ("<!-- table: updatez -->\n<!-- end -->\n", "there is no table updatez; known are updates, steps"),
        ("<!-- table: updates -->\n", "table updates has no <!-- end -->"),
        ("<!-- table: steps -->\n<!-- table: updates -->\n<!-- end -->\n", "table steps has no <!-- end -->"),
    ],
)
def test_a_wrong_comment_is_an_error(page: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(tables.PageError, match=message):
        tables.fill(page, tmp_path)


def test_a_stale_page_is_found_and_written(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    options = [f"--results={tmp_path}", f"--pages={page}"]
    with pytest.raises(SystemExit, match="not up to date"):
        tables.main(["--check", *options])
    assert page.read_text() == PAGE
    tables.main(["--write", *options])
    tables.main(["--check", *options])


def test_the_documentation_is_up_to_date() -> None:
    tables.main(["--check"])


def test_shares_become_milliseconds(tmp_path: Path) -> None:
    """100 steps/s are 10 ms a step; a quarter of it is 2.5 ms."""
    shares = {side: {"act": 0.25, "other": 0.75} for side in ("ours", "peer")}
    task = {"env_id": "module:Env-v0", "medians": {"ours": 100.0, "peer": 50.0}, "shares": shares}
    (tmp_path / "steps.json").write_text(json.dumps({"tasks": {"env": task}}))
    assert render.shares(tmp_path).splitlines() == [
        "| ms a step | act | other |",
        "| --- | --- | --- |",
        "| Env-v0, this project | 2.50 (25%) | 7.50 (75%) |",
        "| Env-v0, Stable-Baselines3 | 5.00 (25%) | 15.00 (75%) |",
    ]


def test_an_arrangement_that_was_not_measured_is_left_empty(tmp_path: Path) -> None:
    speed = [
        {"copies": 1, "medians": {"workers 0": 10.0, "sync": 5.0}},
        {"copies": 2, "medians": {"workers 0": 9.6, "workers 2": 19.0, "sync": 5.0}},
    ]
    (tmp_path / "workers.json").write_text(json.dumps({"speed": speed}))
    assert render.workers(tmp_path).splitlines() == [
        "| copies | in process | workers: 2 | Gymnasium Sync |",
        "| --- | --- | --- | --- |",
        "| 1 | 10 | | 5 |",
        "| 2 | 10 | 19 | 5 |",
    ]
