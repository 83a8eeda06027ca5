"""The benchmark of batches drawn ahead: a small measurement, and what is made of the answers."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))  # its scripts import one another by their plain names
harness, prefetch, prefetch_ours, render_prefetch, tables = map(
    importlib.import_module, ("harness", "prefetch", "prefetch_ours", "render_prefetch", "tables")
)


@pytest.mark.parametrize(("case", "threads"), [("vectors", 0), ("vectors", 2), ("images", 2), ("windows", 1)])
def test_a_small_measurement(case: str, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many updates as there should be seconds, of short episodes and small batches."""

    def count(update: Callable[[], object], seconds: float, warm_up: float) -> tuple[int, float]:
        for _ in range(int(seconds)):
            update()
        return int(seconds), 0.5

    section, changes = prefetch_ours.CASES[case]
    fewer = [*changes, "sac_config.batch_size=4", "replay_config.capacity=110"]
    monkeypatch.setattr(prefetch_ours, "measure", count)
    monkeypatch.setattr(prefetch_ours, "EPISODE", 50)
    monkeypatch.setitem(prefetch_ours.CASES, case, (section, fewer))
    answer = prefetch_ours.run(case, threads, seed=0, seconds=2, warm_up=1)
    assert (answer["updates"], answer["seconds"]) == (2, 0.5)
    assert answer["sample_seconds"] > 0 and answer["cpu_seconds"] > 0
    json.dumps(answer, allow_nan=False)


def test_cases_are_what_they_are_called() -> None:
    assert tuple(prefetch_ours.CASES) == prefetch.CASES == tuple(render_prefetch.CASES)


class FakeWorker(harness.Worker):
    """A worker that answers at once: 100 updates, and with threads 200, 400 and 800 in three rounds."""

    def run(self, arguments: Any, *, threads: int = 1) -> dict[str, Any]:
        given = dict(word.removeprefix("--").split("=") for word in arguments)
        updates = 100 * 2 ** (int(given["seed"]) + 1 if given["prefetchers"] != "0" else 0)
        return {"updates": updates, "seconds": 5.0, "cpu_seconds": 10.0, "sample_seconds": 1.0}


def test_ratios_are_of_the_rounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside 20 updates/s: 40, 80, 160; of the 400 updates in the middle each took 2.5 ms for its batch."""
    monkeypatch.setattr(prefetch, "our_worker", lambda script: FakeWorker("ours", Path(), Path(script)))
    monkeypatch.setattr(harness, "our_version", lambda: "abc")
    monkeypatch.setattr(prefetch.os, "getloadavg", lambda: (1.25, 0.0, 0.0))
    prefetch.main(
        ["--rounds=3", "--cases", "images", "--prefetchers", "0", "2", f"--json={tmp_path}/prefetch.json"]
    )
    assert tables.render("prefetch", tmp_path).splitlines()[2:] == [
        "| 64 transitions of 64×64×3 images | none | 20.0 | 10.00 | 100.0 | 1.00 | |",
        "| 64 transitions of 64×64×3 images | 2 | 80.0 | 2.50 | 25.0 | 4.00 | 2.00 4.00 8.00 |",
        "",
        "Load of the machine before and after: 1.2, 1.2.",
    ]


@pytest.mark.parametrize("wrong", [["--rounds=0"], ["--seconds=0"], ["--prefetchers", "1"], ["--cases", "x"]])
def test_a_wrong_command_is_refused(wrong: list[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        prefetch.parse_arguments(wrong)
    assert stop.value.code == 2
