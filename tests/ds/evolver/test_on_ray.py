"""Populations on a Ray of their own; everything else about them is tested with one that is played."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
import yaml

from tests.ds.evolver.test_evolver import CONFIG
from tests.ds.test_cluster_nodes import HEAD, OTHER, SPACES, kill_all, network, node
from tests.house.test_docs import ROOT

__all__ = ["network"]

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


def start(folder: Path, name: str, *words: str, prefix: tuple[str, ...] = ()) -> subprocess.Popen[bytes]:
    """Start the command for a population of two; prefix: in front of it."""
    command = [
        *prefix,
        sys.executable,
        str(ROOT / "main_ds.py"),
        "./task",
        "evolver",
        "--num_learners=2",
        "-n",
        name,
    ]
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
    _wait(saved.exists, cut, folder / "cut.txt")
    os.kill(cut.pid, signal.SIGKILL)
    cut.wait()
    left = _processes_of(folder)
    psutil.wait_procs(left, timeout=LIMIT)
    assert not _processes_of(folder)

    again = start(folder, "cut", "--resume")
    assert again.wait(LIMIT) == 0, (folder / "cut.txt").read_text()
    assert not _processes_of(folder)
    assert _lineage(folder, "cut") == _lineage(folder, "whole")


@pytest.mark.fault("F29")
def test_a_population_outlives_a_node(network: None, folder: Path) -> None:
    """Two nodes in network namespaces with a folder in common; the one without the command loses power."""
    node(HEAD, folder, "--head", "--port=6399", "--include-dashboard=false")
    node(OTHER, folder, f"--address={HEAD}:6399")
    enter = ("ip", "netns", "exec", SPACES[HEAD])
    flags = ["--seed=1", "--ray", f"{HEAD}:6399", "--max_step=480", "--learner_cpus=3"]
    command = start(folder, "pop", *flags, prefix=enter)
    said = folder / "pop.txt"
    there = re.compile(rf"(pop_\d) learner: process \d+ on {OTHER}")
    _wait(lambda: there.search(said.read_text()), command, said)
    (member,) = there.findall(said.read_text())
    checkpoints = folder / "models" / "task" / member / "checkpoints"
    _wait(lambda: any(checkpoints.glob("*/manifest.json")), command, said)
    kill_all(SPACES[OTHER])
    assert command.wait(2 * LIMIT) == 0, said.read_text()
    assert f"{member} learner: {OTHER}: the node, or Ray's worker on it, died" in said.read_text()
    lineage = _lineage(folder, "pop")
    assert [record["end"] for record in lineage] == ["complete"] * 8
    assert [len(record["evaluations"]) for record in lineage] == [2] * 8  # type: ignore[arg-type]


def _wait(what: Callable[[], object], command: subprocess.Popen[bytes], said: Path) -> None:
    deadline = time.monotonic() + LIMIT
    while not what():
        assert command.poll() is None and time.monotonic() < deadline, said.read_text()
        time.sleep(0.02)


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
