"""The benchmark of what a learner receives: a small measurement, and what is made of the answers."""

from __future__ import annotations

import importlib
import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ds.agreement import digest
from ds.checking import check_parcel

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))  # its scripts import one another by their plain names
harness, inbox, inbox_actor, inbox_ours, inbox_samples, prefetch_ours, render_inbox, tables = map(
    importlib.import_module,
    (
        "harness",
        "inbox",
        "inbox_actor",
        "inbox_ours",
        "inbox_samples",
        "prefetch_ours",
        "render_inbox",
        "tables",
    ),
)


@pytest.mark.parametrize("case", inbox_samples.SAMPLES)
def test_what_actors_send_can_be_stored(case: str) -> None:
    """A learner's check passes, and all of an episode is in the replay."""
    sample = inbox_samples.SAMPLES[case]
    made = inbox_samples.segment(sample, np.random.default_rng(0))
    one = inbox_samples.parcel(made, actor="a", lane=3, number=1, version=0)
    check_parcel(one, {"default": sample.spec}, {"default": (0,)}, max_length=sample.length)
    replay = inbox_ours._replay(sample)
    replay.add(one.parts[0].segment)
    assert (one.steps, replay.num_transitions) == (sample.length, sample.length)


def test_a_small_measurement() -> None:
    """Parcels of one process with token and TLS come in, each costs something, and CPU time is told apart."""
    answer = inbox_ours.receive("short", secure=True, actors=[1], seconds=0.2, warm_up=0.0, seed=0)
    (row,) = answer["rows"]
    assert row["actors"] == 1 and row["parcels"] > 0 and row["main"] > 0 and row["server"] > 0
    assert answer["bytes"] > 20 * 4 * 4 and all(cost > 0 for cost in answer["microseconds"].values())
    json.dumps(answer, allow_nan=False)


def test_updates_beside_traffic(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each share with each interval, as many updates as there should be seconds; weights reach everybody."""

    def count(update: Callable[[], object], seconds: float, warm_up: float) -> tuple[int, float]:
        for _ in range(int(seconds)):
            update()
        return int(seconds), 0.5

    before = sys.getswitchinterval()
    monkeypatch.setattr(inbox_ours, "measure", count)
    monkeypatch.setattr(inbox_ours, "PROCESSES", 1)
    monkeypatch.setattr(inbox_ours, "CLIENTS", 3)
    monkeypatch.setattr(inbox_ours, "SENDERS", 1)
    small = [*prefetch_ours.CASES["vectors"][1], "replay_config.capacity=2002"]
    monkeypatch.setitem(prefetch_ours.CASES, "vectors", ("default", small))
    try:
        answer = inbox_ours.learn(prefetchers=1, rounds=1, seconds=2, warm_up=1, seed=0)
    finally:
        sys.setswitchinterval(before)
    assert [(row["share"], row["interval"]) for row in answer["rows"]] == [
        (share, interval) for share in inbox_ours.SHARES for interval in reversed(inbox_ours.INTERVALS)
    ]
    assert all(row["updates"] == 2 for row in answer["rows"])
    found = inbox_ours.broadcast(3000, seconds=1, warm_up=0, seed=0)
    assert found["actors"] == 3 and found["fetch_seconds"] and found["meanwhile"]["updates"] == 1
    json.dumps([answer, found], allow_nan=False)


def test_a_pace_lets_through_what_it_says() -> None:
    """Nothing at 0, everything at -1, nothing once it is over."""
    pace = inbox_actor.Pace()
    passed: list[bool] = []
    thread = threading.Thread(target=lambda: passed.append(pace.wait()))
    thread.start()
    thread.join(0.02)
    assert not passed
    pace.set(-1)
    thread.join()
    assert passed == [True] and pace.wait()
    pace.set(1000.0)
    assert pace.wait() and pace.wait()
    pace.end()
    assert not pace.wait()


class FakeWorker(harness.Worker):
    """Answers at once. Speeds beside traffic: 20, 10 and 5 updates/s, twice as many at the short interval."""

    def run(self, arguments: Any, *, threads: int = 1) -> dict[str, Any]:
        if "receive" in arguments:
            row = {"actors": 4, "seconds": 2.0, "parcels": 1000, "main": 0.5, "server": 1.5, "other": 0.25}
            return {
                "bytes": 80_000,
                "microseconds": {"decode": 150.0, "check": 75.0, "store": 140.0},
                "rows": [row],
            }
        if "weights" in arguments:
            alone = {"updates": 80, "seconds": 2.0}
            meanwhile = {"updates": 60, "seconds": 2.0, "main": 1.25, "queued": 0.6}
            times = {"publish_seconds": 0.125, "fetch_seconds": [0.5, 2.0, 1.0], "server_cpu": 0.25}
            return {"actors": 64, "bytes": 10**6, **times, "alone": alone, "meanwhile": meanwhile}
        rows = [
            {
                "share": share,
                "interval": interval,
                "updates": updates * (1 if interval == 0.005 else 2),
                "seconds": 1.0,
                "parcels": int(100 * share),
                "main": 0.5,
                "queued": 0.25,
            }
            for share, updates in ((0.0, 20), (0.5, 10), (1.0, 5))
            for interval in (0.0005, 0.005)
        ]
        return {"most": 100.0, "rows": rows}


def test_tables_of_what_was_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """1000 segments of 80 kB in 2 s: 40 MB/s; 1.5 s of the server's thread are 1500 µs for each."""
    monkeypatch.setattr(inbox, "our_worker", lambda script: FakeWorker("ours", Path(), Path(script)))
    monkeypatch.setattr(harness, "our_version", lambda: "abc")
    monkeypatch.setattr(inbox.os, "getloadavg", lambda: (1.25, 0.0, 0.0))
    inbox.main(["--cases", "short", "--prefetchers", "1", f"--json={tmp_path}/inbox.json"])
    received, costs, weights, learned = (
        tables.render(f"inbox-{name}", tmp_path).splitlines()[2:]
        for name in ("receive", "costs", "weights", "learn")
    )
    assert received == [
        "| 20 × 4 floats | 80.0 | 4 | 500 | 40.0 | 2250 | 75% |",
        "| 20 × 4 floats, TLS and token | 80.0 | 4 | 500 | 40.0 | 2250 | 75% |",
        "",
        "Load of the machine before and after: 1.2, 1.2.",
    ]
    assert costs[0] == "| 20 × 4 floats | 150 | 75 | 1275 | 250 | 140 | 360 | 2250 |"
    assert weights[0] == "| 0.3 MB | 64 | 1.00 | 64 | 125 | 250 | 40.0 | 30.0 | 2.50 |"
    assert learned == [
        "| 1 thread ahead | 0% | 5 | 0 | 20.0 | 25.0 | 12.50 | 1.00 | 1.00 |",
        "| 1 thread ahead | 0% | 0.5 | 0 | 40.0 | 12.5 | 6.25 | 1.00 | 2.00 |",
        "| 1 thread ahead | 50% | 5 | 50 | 10.0 | 50.0 | 25.00 | 0.50 | 1.00 |",
        "| 1 thread ahead | 50% | 0.5 | 50 | 20.0 | 25.0 | 12.50 | 0.50 | 2.00 |",
        "| 1 thread ahead | 100% | 5 | 100 | 5.0 | 100.0 | 50.00 | 0.25 | 1.00 |",
        "| 1 thread ahead | 100% | 0.5 | 100 | 10.0 | 50.0 | 25.00 | 0.25 | 2.00 |",
    ]


def test_actors_agree_to_what_the_learner_does() -> None:
    assert digest(inbox_samples.AGREED) == inbox_samples.DIGEST


def test_cases_are_what_they_are_called() -> None:
    assert tuple(render_inbox.CASES) == inbox.CASES
    assert set(inbox.CASES) <= set(inbox_samples.SAMPLES)
    assert tuple(inbox_ours.SIZES) == inbox.SIZES


@pytest.mark.parametrize("wrong", [["--rounds=0"], ["--block=0"], ["--actors", "2", "1"], ["--cases", "x"]])
def test_a_wrong_command_is_refused(wrong: list[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        inbox.parse_arguments(wrong)
    assert stop.value.code == 2
