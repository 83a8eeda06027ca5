"""Many trainings of ours, a few at a time, one thread each; what is finished is not done again.

A run lies in ``<folder>/models/<env>/<task>-<variant>-<seed>``. It is finished if its ``result.json`` says
that it came to its last step; anything less, as a killed process leaves it, is removed and trained anew.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from threading import Event
from typing import Any

from harness import ROOT, WorkerError, thread_limits
from runs import Run, read_ours

from algorithm.config import LoadedConfig, find_env, load_config, load_config_file

POLL_SECONDS = 0.2
LAST_LINES = 4  # of a failed training's messages


class StoppedError(Exception):
    """The training was asked to stop before it was finished."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """One training: a section of a task's folder with overrides, and what a table calls it."""

    task: str
    variant: str
    seed: int
    env: str  # folder below envs/, or any path, as main.py takes it
    section: str | None = None
    overrides: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The run's own name."""
        return f"{self.task}-{self.variant}-{self.seed}"

    @property
    def command(self) -> list[str]:
        """The command line that trains it."""
        section = ["-c", self.section] if self.section else []
        overrides = [word for text in self.overrides for word in ("-o", text)]
        flags = [f"--seed={self.seed}", f"--name={self.name}", "--device=cpu", "--quiet"]
        return [sys.executable, str(ROOT / "main.py"), self.env, *section, *overrides, *flags]

    @cached_property
    def loaded(self) -> LoadedConfig:
        """The configuration it trains with. Raises ConfigError."""
        return load_config(self.env, self.section, self.overrides, seed=self.seed)

    @property
    def settings(self) -> dict[str, Any]:
        """Every key that is not the default, dotted path → value, without name and seed."""
        return settings_of(self.loaded)

    def run_folder(self, folder: Path) -> Path:
        """Where its run lies."""
        return folder / "models" / find_env(self.env).label / self.name

    def is_finished(self, folder: Path) -> bool:
        """Whether its run came to the last step.

        Raises WorkerError if a finished run was made with other settings: it is another measurement.
        """
        run = self.run_folder(folder)
        if not (run / "result.json").exists():
            return False
        found = settings_of(load_config_file(run / "config.yaml"))
        wanted = self.settings
        odd = [key for key in sorted(found | wanted) if found.get(key) != wanted.get(key)]
        if odd:
            told = "; ".join(
                f"{key}: {found.get(key, 'default')}, not {wanted.get(key, 'default')}" for key in odd
            )
            raise WorkerError(f"{run} was trained with other settings ({told}): remove it to train it anew")
        steps: int = json.loads((run / "result.json").read_text())["steps"]
        return steps >= self.loaded.config.base_config.max_step

    def read(self, folder: Path) -> Run:
        """What its finished run came to."""
        return read_ours(self.run_folder(folder))


def settings_of(loaded: LoadedConfig) -> dict[str, Any]:
    """Dotted path → value of everything that decides what a run learns and is not the default."""
    return {key: value for key, value in loaded.differences().items() if key != "base_config.name"}


def train_all(
    jobs: Sequence[Job], folder: Path, *, at_a_time: int, done: Callable[[Job], object]
) -> list[str]:
    """Train what is not finished; ``done`` is called after each. Returns what failed, a sentence each.

    The others go on if one fails. Whatever ends this function ends the trainings under way first.
    """
    folder.mkdir(parents=True, exist_ok=True)
    waiting = [job for job in jobs if not job.is_finished(folder)]
    stop, failed, count = Event(), [], 0
    with ThreadPoolExecutor(at_a_time) as pool, _terminated_as_interrupt():
        futures = {pool.submit(train, job, folder, stop): job for job in waiting}
        try:
            for future in as_completed(futures):
                count += 1
                job, error = futures[future], future.exception()
                if isinstance(error, WorkerError):
                    failed.append(str(error))
                elif error is not None:
                    raise error
                else:
                    done(job)
                print(f"[{count}/{len(waiting)}] {job.name}{': failed' * bool(error)}", file=sys.stderr)
        except BaseException:
            stop.set()
            pool.shutdown(cancel_futures=True)
            raise
    return failed


def train(job: Job, folder: Path, stop: Event) -> None:
    """Train one, unless another process just did. Raises WorkerError if it fails, StoppedError on stop."""
    with _lock(folder / f"{job.name}.lock", stop) as lock:
        if job.is_finished(folder):
            return
        shutil.rmtree(job.run_folder(folder), ignore_errors=True)
        log = folder / f"{job.name}.log"
        code = _run(job.command, folder, log, lock, stop)
        if code or not job.is_finished(folder):
            why = f"ended with exit code {code}" if code else "did not come to its last step"
            said = log.read_text(errors="replace").splitlines()[-LAST_LINES:]
            raise WorkerError("\n  ".join([f"{job.name} {why}; {log} ends with:", *said]))


def _run(command: Sequence[str], folder: Path, log: Path, lock: int, stop: Event) -> int:
    """Run a command to its end; on ``stop`` it gets a signal first. It inherits the lock.

    So a training that outlives this process, because that was killed, is not started a second time.
    """
    environment = os.environ | thread_limits(1) | {"PYTHONPATH": ""}
    with log.open("w") as output:
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=output, stderr=subprocess.STDOUT, pass_fds=[lock]
        )
    while process.poll() is None:
        if stop.wait(POLL_SECONDS):
            process.terminate()
            process.wait()
            raise StoppedError
    return process.returncode


@contextmanager
def _lock(file: Path, stop: Event) -> Iterator[int]:
    """Hold a file's lock, waiting for whoever holds it; gives its descriptor. Raises StoppedError on stop."""
    with file.open("w") as opened:
        told = False
        while True:
            try:
                fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not told:
                    print(f"{file.stem} is being trained by another process: waiting", file=sys.stderr)
                told = True
                if stop.wait(POLL_SECONDS):
                    raise StoppedError from None
        yield opened.fileno()


@contextmanager
def _terminated_as_interrupt() -> Iterator[None]:
    """SIGTERM does what Ctrl-C does: the trainings under way are ended and not left behind."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    former = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, former)
