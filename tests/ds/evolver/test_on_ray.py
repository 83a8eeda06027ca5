"""Populations on a Ray of their own; everything else about them is tested with one that is played."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import yaml

from tests.ds.evolver.test_evolver import CONFIG
from tests.test_docs import ROOT

pytestmark = pytest.mark.slow
pytest.importorskip("ray")

LIMIT = 240.0  # seconds until something is wrong


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "task").mkdir()
    (tmp_path / "task" / "config.yaml").write_text(yaml.safe_dump({"default": CONFIG}))
    yield tmp_path
    for process in _processes_of(tmp_path):
        process.kill()


def start(folder: Path, name: str, *words: str) -> subprocess.Popen[bytes]:
    """Start the command for a population of two."""
    command = [sys.executable, str(ROOT / "main_ds.py"), "./task", "evolver", "--num_learners=2", "-n", name]
    with (folder / f"{name}.txt").open("ab") as file:
        return subprocess.Popen(
            [*command, *words],
            cwd=folder,
            stdout=file,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )


@pytest.mark.fault("F29")
def test_a_population_that_is_killed_leaves_nothing_behind_and_goes_on(folder: Path) -> None:
    whole = start(folder, "whole", "--seed=1")
    assert whole.wait(LIMIT) == 0, (folder / "whole.txt").read_text()

    cut = start(folder, "cut", "--seed=1")
    saved = folder / "models" / "task" / "cut_2" / "checkpoints" / "step_000000180"
    deadline = time.monotonic() + LIMIT
    while not saved.exists():
        assert cut.poll() is None and time.monotonic() < deadline, (folder / "cut.txt").read_text()
        time.sleep(0.02)
    os.kill(cut.pid, signal.SIGKILL)
    cut.wait()
    left = _processes_of(folder)
    psutil.wait_procs(left, timeout=LIMIT)
    assert not _processes_of(folder)

    again = start(folder, "cut", "--resume")
    assert again.wait(LIMIT) == 0, (folder / "cut.txt").read_text()
    assert not _processes_of(folder)
    assert _lineage(folder, "cut") == _lineage(folder, "whole")


def _lineage(folder: Path, name: str) -> list[dict[str, object]]:
    """Return the lineage, without the name, which differs."""
    lines = (folder / "models" / "task" / name / "lineage.jsonl").read_text().splitlines()
    return [json.loads(line) | {"name": ""} for line in lines]


def _processes_of(folder: Path) -> list[psutil.Process]:
    """Return the members that run in the folder."""
    found = []
    for process in psutil.process_iter():
        try:
            words = process.cmdline()
            if any("main" in word for word in words) and process.cwd() == str(folder):
                found.append(process)
        except psutil.Error:
            continue
    return found
