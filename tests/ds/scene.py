"""A learner and actors that really run, what they say, and what of their work is in the replay."""

from __future__ import annotations

import json
import os
import signal
from collections import defaultdict
from collections.abc import Callable, Mapping
from multiprocessing.process import BaseProcess
from pathlib import Path

import numpy as np

from algorithm.runs.logs.metrics import read_metrics
from tests.ds import processes
from tests.ds.marked import SCALES

LENGTH = 40
"""Steps of an episode."""

TASK = f"""\
default:
  base_config:
    env_type: GYM
    env_name: "tests.ds.marked:Marked-v0"
    env_args: {{length: {LENGTH}, pause: 0.003}}
    max_step: -1
    update_sac_bak_per_step: 2
    reset_on_iteration: false
    max_episode_length: 100
  net_config: {{heartbeat: 0.5}}
  nn_config: {{q: {{dense_n: 16}}, policy: {{dense_n: 16}}}}
  replay_config: {{capacity: 100000}}
  sac_config:
    batch_size: 16
    start_step: 40
    write_summary_per_step: 40
    save_model_per_step: 200
    replay_ratio: 0.05
    compile: off # a minute, of which these tests learn nothing
  eval_config: {{per_step: -1, episodes: 1}}
slow_learner: # than its actors
  base_config: {{env_args: {{length: {LENGTH}, pause: 0.0}}, max_step: 600}}
  net_config: {{spool_size: 3}}
  sac_config: {{replay_ratio: 0.5, save_model_per_step: 600, write_summary_per_step: 20}}
"""

Made = tuple[int, int]
"""(episode, step) of an observation."""


class Scene:
    """All processes of one training run, named ``a``."""

    def __init__(self, folder: Path, task: str = TASK) -> None:
        self.folder, self._begun = folder, list[BaseProcess]()
        self.run = folder / "models" / "task" / "a"
        self.port = 0
        self._read: tuple[Path, Mapping[int, list[Made]]] | None = None  # of which checkpoint, and what
        (folder / "task").mkdir()
        (folder / "task" / "config.yaml").write_text(task)

    def learner(
        self, *flags: str, name: str = "learner", namespace: str = "", descriptors: int = 0
    ) -> BaseProcess:
        """Begin one and wait until it listens; one that resumes does so where the first one did."""
        flags = ("-n", "a", f"--learner_port={self.port}", *flags)
        learner = self.begin(name, "learner", *flags, namespace=namespace, descriptors=descriptors)
        self.until_said(name, "listening on")
        self.port = processes.port_of(self.folder, "a")
        return learner

    def actor(self, name: str, *flags: str, namespace: str = "") -> BaseProcess:
        """Begin one."""
        return self.begin(name, "actor", f"--learner_port={self.port}", *flags, namespace=namespace)

    def begin(
        self, name: str, role: str, *flags: str, namespace: str = "", descriptors: int = 0
    ) -> BaseProcess:
        """Any process; what it says is in ``NAME.txt``."""
        process = processes.begin(
            self.folder, name, role, *flags, namespace=namespace, descriptors=descriptors
        )
        self._begun.append(process)
        return process

    def close(self) -> None:
        """Nothing of it outlives its test."""
        for process in self._begun:
            if process.is_alive():
                process.kill()
                process.join()

    def until(self, condition: Callable[[], object], what: str) -> None:
        """Wait for it."""
        processes.wait_for(condition, what, self.folder)

    def until_said(self, name: str, *texts: str) -> None:
        """Wait until a process has said all of it."""
        self.until(lambda: all(text in self.said(name) for text in texts), f"{name} does not say {texts}")

    def said(self, name: str) -> str:
        """What a process has said so far."""
        file = self.folder / f"{name}.txt"
        return file.read_text() if file.exists() else ""

    def lines(self, name: str, chunk: str) -> list[str]:
        """The lines with ``chunk`` in them."""
        return [line for line in self.said(name).splitlines() if chunk in line]

    def metric(self, name: str) -> float:
        """The last value in ``metrics.csv``; −1 before the first."""
        columns = read_metrics(self.run / "metrics.jsonl") if (self.run / "metrics.jsonl").exists() else {}
        return columns[name][-1] if columns.get(name) else -1.0

    def until_steps(self, more: int) -> None:
        """Wait until so many environment steps have been taken beyond those so far."""
        wanted = self.metric("step") + more
        self.until(lambda: self.metric("step") >= wanted, f"not {more} steps more")

    def stored(self) -> Mapping[int, list[Made]]:
        """Process → what the newest checkpoint's replay has of its observations, in the order of its rows."""
        while True:
            try:
                return self._stored()
            except FileNotFoundError:  # the learner has removed it meanwhile
                continue

    def until_stored(self, *pids: int | None) -> None:
        """Wait for a checkpoint with something of each of these processes."""
        self.until(lambda: set(pids) <= self.stored().keys(), f"nothing stored of {pids}")

    def end(self, process: BaseProcess, number: signal.Signals) -> int | None:
        """Send a signal; returns the exit code."""
        assert process.pid is not None
        os.kill(process.pid, number)
        return processes.finish(process)

    def _stored(self) -> Mapping[int, list[Made]]:
        checkpoints = list(self.run.glob("checkpoints/step_*/replay.json"))
        found: dict[int, list[Made]] = defaultdict(list)
        if not checkpoints:
            return {}
        newest = max(checkpoints)
        if self._read is not None and self._read[0] == newest:
            return self._read[1]
        index = json.loads(newest.read_text())
        rows: dict[int, np.ndarray] = {}
        for chunk in index[""]["rows"]:
            records = np.load(self.run / "replay" / chunk["file"])
            rows |= {int(one["id"]): one["real"][:3] for one in records}  # the later record of a row counts
        for row in rows.values():
            pid, episode, step = (int(value) for value in np.round(row / SCALES))
            found[pid].append((episode, step))
        self._read = newest, dict(found)
        return self._read[1]


def whole(made: list[Made], *, length: int = LENGTH) -> bool:
    """Whether it is complete episodes, each observation once."""
    episodes = sorted({episode for episode, _ in made})
    return sorted(made) == [(episode, step) for episode in episodes for step in range(length + 1)]


def missing(made: list[Made]) -> int:
    """Episodes that are not there before the last one that is."""
    episodes = {episode for episode, _ in made}
    return max(episodes) + 1 - len(episodes)
