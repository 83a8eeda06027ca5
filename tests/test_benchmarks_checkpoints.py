"""The benchmark of checkpoints: a small measurement, and what is made of the answers."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))  # its scripts import one another by their plain names
checkpoints, checkpoints_ours, harness = map(
    importlib.import_module, ("checkpoints", "checkpoints_ours", "harness")
)


@pytest.mark.parametrize("carry", [0, 8])
def test_a_small_measurement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, carry: int) -> None:
    """Rows of 8 + 4 · (3 + 1 + 1 + 1 + 3 + carry) bytes and a priority; 1000 in 5 episodes are 1005 rows."""
    monkeypatch.setattr(checkpoints_ours, "in_a_process", lambda act, *arguments: act(*arguments))
    answer = checkpoints_ours.run(1000, carry, 100, tmp_path)
    row = 8 + 4 * (9 + carry)
    rest = 4 * sum(checkpoints_ours.PARAMETERS.values())
    first, following = answer["bytes"]["first"], answer["bytes"]["next"]
    assert first == pytest.approx(1005 * (row + 8) + rest, abs=4000)
    assert following == pytest.approx(101 * row + 1106 * 8 + rest, abs=4000), (
        "only what is new, and priorities"
    )
    assert answer["replay_mb"] * 1e6 == pytest.approx(1106 * (row - 8 + 8), rel=0.1), (
        "the tree has inner sums"
    )
    for what in ("seconds", "peak_mb"):
        assert answer[what].keys() == {"first", "next", "load"}
    json.dumps(answer, allow_nan=False)


class Answers:
    """Stands for the worker."""

    def __init__(self, *answers: dict[str, Any]) -> None:
        self.commands: list[list[str]] = []
        self._answers = iter(answers)

    def run(self, command: list[str]) -> dict[str, Any]:
        self.commands.append(command)
        return next(self._answers)


def make_answer(seconds: float, written: int = 7_000_000) -> dict[str, Any]:
    names = ("first", "next", "load")
    return {
        "replay_mb": 4.5,
        "bytes": {"first": written, "next": 1_000_000},
        "seconds": dict.fromkeys(names, seconds),
        "peak_mb": dict.fromkeys(names, 10 * seconds),
    }


def test_medians_of_every_case_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    worker = Answers(*map(make_answer, (3.0, 1.0, 2.0, 6.0, 4.0, 5.0)))
    monkeypatch.setattr(checkpoints, "our_worker", lambda script: worker)
    file = tmp_path / "out.json"
    checkpoints.main(["--rounds=3", "--transitions", "1000", f"--json={file}", f"--folder={tmp_path}"])
    written = json.loads(file.read_text())
    assert written["setting"] == {"rounds": 3, "further": 1000}
    assert [(case["memory"], case["seconds"]["next"]) for case in written["cases"]] == [
        ("none", 2.0),
        ("RNN", 5.0),
    ]
    assert len(written["cases"][0]["answers"]) == 3 and {"date", "version", "machine"} <= written.keys()
    options = ["--transitions=1000", "--further=1000", f"--folder={tmp_path}"]
    assert worker.commands == [["--carry=0", *options]] * 3 + [["--carry=64", *options]] * 3
    assert "first 7.00 MB 2.00 s, peak +20 MB · next 1.00 MB 2.00 s" in capsys.readouterr().out


def test_rounds_that_wrote_different_amounts_cannot_be_compared() -> None:
    with pytest.raises(harness.WorkerError, match="different amounts"):
        checkpoints.summarise([make_answer(1.0), make_answer(1.0, 8_000_000)])


@pytest.mark.parametrize("wrong", ["--rounds=0", "--transitions=999"])
def test_a_measurement_of_nothing_is_refused(wrong: str) -> None:
    with pytest.raises(SystemExit):
        checkpoints.parse_arguments([wrong])
