"""The comparison with other libraries, played with workers that answer at once."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

WORKER = """
import json, sys
from argparse import ArgumentParser
parser = ArgumentParser()
parser.add_argument("--seed", type=int)
seed = parser.parse_known_args()[0].seed
print("something a library prints")
print(json.dumps({answer!r} | {{"seconds": {seconds}[seed]}}))
sys.exit({code})
"""
ANSWER = {"library": "x", "version": "1", "threads": 1, "parameters": 217870, "updates": 120, "steps": 0}


class Benchmark:
    """A copy of the harness beside two stand-ins for the workers."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.folder = folder
        for name in ("updates.py", "setting.py"):
            (folder / name).write_text((root / "benchmarks" / name).read_text())

    def worker(self, name: str, seconds: list[float], code: int = 0, **changes: Any) -> None:
        """Write the stand-in ``updates_<name>.py``, which takes ``seconds[seed]`` for its work."""
        text = WORKER.format(answer=ANSWER | changes, seconds=seconds, code=code)
        (self.folder / f"updates_{name}.py").write_text(text)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the harness."""
        command = [
            sys.executable,
            str(self.folder / "updates.py"),
            "--sb3-python",
            sys.executable,
            *arguments,
        ]
        return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def benchmark(root: Path, tmp_path: Path) -> Benchmark:
    return Benchmark(root, tmp_path)


def test_medians_are_of_the_pairs(benchmark: Benchmark, tmp_path: Path) -> None:
    """Ours 120, 60, 40 updates/s, theirs 20, 40, 20: ratios 6, 1.5, 2 with median 2, not 60/20 = 3."""
    benchmark.worker("ours", [1.0, 2.0, 3.0])
    benchmark.worker("sb3", [6.0, 3.0, 6.0])
    result = benchmark.run("--pairs=3", f"--json={tmp_path / 'out.json'}")
    assert result.returncode == 0, result.stderr
    assert [float(x) for x in result.stdout.splitlines()[-1].split()[1:]] == [60.0, 20.0, 2.0]
    written = json.loads((tmp_path / "out.json").read_text())
    assert written["medians"] == {"ours": 60.0, "peer": 20.0, "ratio": 2.0}
    assert [row["ratio"] for row in written["rates"]] == [6.0, 1.5, 2.0]
    assert written["answers"][2]["peer"]["seconds"] == 6.0
    assert written["setting"]["parameters"] == 217870


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"parameters": 1000}, "reports parameters 1000, not 217870"),
        ({"threads": 2}, "reports threads 2, not 1"),
    ],
)
def test_unequal_work_is_not_compared(benchmark: Benchmark, changes: dict[str, int], message: str) -> None:
    benchmark.worker("ours", [1.0])
    benchmark.worker("sb3", [1.0], **changes)
    result = benchmark.run("--pairs=1")
    assert result.returncode == 1
    assert message in result.stderr


def test_end_to_end_counts_updates(benchmark: Benchmark) -> None:
    benchmark.worker("ours", [1.0], parameters=201988, steps=3000, updates=2000)
    benchmark.worker("sb3", [2.0], parameters=201988, steps=3000, updates=1999)
    arguments = ("--end-to-end", "--pairs=1", "--steps=3000")
    assert benchmark.run(*arguments).stdout.splitlines()[-1].split() == ["median", "3000.0", "1500.0", "2.00"]
    benchmark.worker("sb3", [2.0], parameters=201988, steps=3000, updates=1000)
    assert "made 1000 updates, not 2000" in benchmark.run(*arguments).stderr


def test_a_failed_worker_stops_it(benchmark: Benchmark) -> None:
    benchmark.worker("ours", [1.0], code=3)
    result = benchmark.run("--pairs=1")
    assert result.returncode == 1
    assert "ended with exit code 3" in result.stderr


def test_a_missing_peer_is_named(benchmark: Benchmark) -> None:
    result = benchmark.run("--sb3-python=/nowhere/python")
    assert result.returncode == 1
    assert "make bench-peers" in result.stderr
