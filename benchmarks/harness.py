"""The harness of every question: its processes, the peer's, and the file of its figures.

A question is a generator function with the name it is asked by. It yields measurements, each of which is
written down at once; its keyword arguments are options of the command line.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed, wait
from datetime import date
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any, TypeVar, cast

from benchmarks.worker import WORKER, Answer, StoppedError, WorkerError, call, read_answer

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
RESULTS = HERE / "results"
RUNS = ROOT / "models" / "benchmarks"
ENVS = HERE / "envs"
PEERS = HERE / ".peers"
PEER_PYTHON = PEERS / "sb3" / "bin" / "python"
SHARED = ("torch", "numpy", "gymnasium")
"""Packages of which the peer gets our version, since they are not compared."""

ONE_THREAD = {
    **{f"{library}_NUM_THREADS": "1" for library in ("OMP", "MKL", "OPENBLAS", "NUMEXPR")},
    WORKER: "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
}

QUESTIONS = {
    "updates": "speed",
    "steps": "speed",
    "memory": "speed",
    "replay": "replay",
    "pixels": "speed",
    "workers": "workers",
    "lanes": "lanes",
    "checkpoints": "checkpoints",
    "rollouts": "speed",
    "inbox": "inbox",
    "learners": "learners",
    "signals": "learners",
    "devices": "learners",
    "exports": "exports",
    "tuning": "tuning",
    "engines": "engines",
    "scaling": "scaling",
    "bare": "bare",
    "evidence": "evidence",
}
"""Question → its module. The Makefile has the same names and refuses others early."""

Ask = Callable[..., Iterator[Mapping[str, Any]]]
Ours = Callable[[int], Answer]
Theirs = Callable[[int], Answer | None]
Job = TypeVar("Job")
Made = TypeVar("Made")
LAST_LINES = 4  # of a failed process's messages
STOPPED = (130, 143, -signal.SIGINT, -signal.SIGTERM)  # exit codes of a process that was asked to end


def find(name: str) -> Ask:
    """The question of that name."""
    return cast(Ask, getattr(import_module(f"benchmarks.{QUESTIONS[name]}"), name))


def smoke(**arguments: Any) -> Callable[[Ask], Ask]:
    """Say with which arguments a question is tried out within seconds."""

    def mark(question: Ask) -> Ask:
        question.smoke = arguments  # type: ignore[attr-defined]
        return question

    return mark


class Bench:
    """Asks processes of their own, one thread each.

    python: the peer's · smoke: ask within this process where possible, and no peer · runs: their folder
    results: folder of the figures
    """

    def __init__(
        self, python: Path = PEER_PYTHON, *, smoke: bool = False, runs: Path = RUNS, results: Path = RESULTS
    ) -> None:
        self.python, self.smoke, self.runs, self.results = python, smoke, runs, results
        self._running: set[subprocess.Popen[bytes]] = set()
        if smoke and str(ENVS) not in sys.path:
            sys.path.append(str(ENVS))

    def ours(self, target: str, **arguments: Any) -> Answer:
        """What a function of this package answers in our interpreter. Raises WorkerError."""
        if self.smoke:
            return call(target, arguments)
        return self._run(Path(sys.executable), target, arguments)[0]

    def theirs(self, target: str, **arguments: Any) -> Answer | None:
        """The same in the interpreter of the peer of the target's module; None if there shall be no peer."""
        if self.smoke:
            return None
        peer = target.partition(":")[0]
        python = self.python if peer == "sb3" else PEERS / peer / "bin" / "python"
        if not python.exists():
            raise WorkerError(f"there is no {python}: install the peers with `make bench-peers`")
        answer, used = self._run(python, target, arguments)
        return used | answer

    def run(
        self, command: Sequence[str], log: Path, *, cwd: Path = ROOT, path: Sequence[Path] = ()
    ) -> Answer:
        """Run a command to its end; its output goes to ``log``. Returns ``peak_rss_mb`` and ``cpu_seconds``.

        path: where it finds modules, besides its own. Raises WorkerError if it fails.
        """
        environment = os.environ | ONE_THREAD | {"PYTHONPATH": os.pathsep.join(map(str, path))}
        with log.open("wb") as output:
            process = subprocess.Popen(
                command, cwd=cwd, env=environment, stdout=output, stderr=subprocess.STDOUT
            )
            self._running.add(process)
            try:
                _, status, used = os.wait4(process.pid, 0)
            except BaseException:
                process.terminate()
                process.wait()  # otherwise whoever inherits it has to reap it
                raise
            finally:
                self._running.discard(process)
            process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            said = log.read_text(errors="replace").splitlines()[-LAST_LINES:]
            text = f"`{' '.join(command)}` ended with exit code {process.returncode}; {log} ends with:"
            kind = StoppedError if process.returncode in STOPPED else WorkerError
            raise kind("\n  ".join([text, *said]))
        return {"peak_rss_mb": used.ru_maxrss / 1024, "cpu_seconds": used.ru_utime + used.ru_stime}

    def each(
        self, jobs: Iterable[Job], make: Callable[[Job], Made], *, at_a_time: int
    ) -> Iterator[tuple[Job, Made | WorkerError]]:
        """Every job and what was made of it or why not, as soon as it is. What ends this ends them all."""
        if self.smoke:  # in this process, which has one working directory
            yield from ((job, make(job)) for job in jobs)
            return
        with ThreadPoolExecutor(at_a_time) as pool:
            waiting = {pool.submit(make, job): job for job in jobs}
            try:
                for future in as_completed(waiting):
                    error = future.exception()
                    if error is not None and not isinstance(error, WorkerError):
                        raise error
                    yield waiting[future], error or future.result()
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                ended: set[subprocess.Popen[bytes]] = set()
                while wait([one for one in waiting if not one.cancelled()], timeout=0.1).not_done:
                    for process in self._running - ended:  # a job may have been about to start it
                        process.terminate()
                        ended.add(process)
                raise

    def _run(self, python: Path, target: str, arguments: Mapping[str, Any]) -> tuple[Answer, Answer]:
        """Return the answer of a function, and the memory and time of its process."""
        command = [str(python), "-m", "benchmarks.worker", target, json.dumps(arguments)]
        with tempfile.TemporaryDirectory() as folder:
            log = Path(folder) / "output.txt"
            used = self.run(command, log, path=[ROOT, ENVS])
            return read_answer(log.read_text(errors="replace"), of=target), used


def in_pairs(
    ours: Ours,
    theirs: Theirs,
    pairs: int,
    *,
    rate: Callable[[Answer], float],
    same: Sequence[str],
) -> dict[str, Any]:
    """Two sides in turns, so that neighbouring runs see the same machine; seeds from 0.

    rate: what is compared of an answer · same: keys in which the answers of a pair must agree
    Returns ``rates`` (one a pair, with the ratio), their ``medians``, and ``answers``. Raises WorkerError.
    """
    answers, rates = [], []
    for seed in range(pairs):
        pair = {"ours": ours(seed)}
        peer = theirs(seed)
        if peer is not None:
            pair["peer"] = peer
            for key in same:
                tolerated = 2 if key == "updates" else 0  # which step is the first to learn from differs
                if abs(pair["ours"][key] - peer[key]) > tolerated:
                    raise WorkerError(f"{key}: ours has {pair['ours'][key]}, {peer['library']} {peer[key]}")
        row = {side: rate(answer) for side, answer in pair.items()}
        if peer is not None:
            row["ratio"] = row["ours"] / row["peer"]
        answers.append(pair)
        rates.append(row)
        print(f"pair {seed + 1}: " + ", ".join(f"{side} {x:.2f}" for side, x in row.items()), flush=True)
    medians = {name: median(row[name] for row in rates) for name in rates[0]}
    return {"medians": medians, "rates": rates, "answers": answers}


def shares(answers: Sequence[Answer]) -> dict[str, float]:
    """Medians of the part of the seconds that each activity took."""
    parts = answers[0]["time"]
    return {part: median(one["time"].get(part, 0.0) / one["seconds"] for one in answers) for part in parts}


def our_version() -> str:
    """Commit of this checkout; a plus sign: relevant files differ from it."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        return "unknown"
    written = (":!benchmarks/results", ":!docs")  # by a measurement before this one
    commands = (["rev-parse", "HEAD"], ["status", "--porcelain", "--", ".", *written])
    commit, changed = (
        subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=True).stdout
        for words in commands
    )
    return f"{commit.strip()}{'+' if changed else ''}"


def machine() -> dict[str, Any]:
    """What the figures depend on besides the code."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "cpu": models[0] if models else platform.processor(),
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
        **{name: version(name) for name in SHARED},
    }


def measure(question: Ask, bench: Bench, file: Path, **arguments: Any) -> None:
    """Ask, and write what is known after each of its measurements. Raises WorkerError.

    The result says day, commit, machine, its load before and after, and the arguments; a question that only
    reads what was measured before says these itself.
    """
    loads = [os.getloadavg()[0]]
    if loads[0] > 0.5 and not bench.smoke:
        print(f"note: the machine is busy (load {loads[0]:.1f}): ratios are uncertain", file=sys.stderr)
    head = {"date": date.today().isoformat(), "version": our_version(), "machine": machine()}
    setting = {name: value for name, value in arguments.items() if isinstance(value, (int, float, str, list))}
    content: dict[str, Any] = {}
    earlier = json.loads(file.read_text("utf-8")) if file.exists() else {}
    for found in question(bench, earlier, **arguments):
        content |= found
        written = {**head, "load": [*loads, os.getloadavg()[0]], "setting": setting, **content}
        file.parent.mkdir(parents=True, exist_ok=True)
        new = file.with_name(f"{file.name}.{os.getpid()}.new")
        text = json.dumps(written, allow_nan=False)
        rounded = json.loads(text, parse_float=lambda digits: float(f"{float(digits):.6g}"))
        new.write_text(as_text(rounded) + "\n", "utf-8")
        new.replace(file)  # it is there as a whole or as it was


def as_text(value: Any, indent: int = 0) -> str:
    """JSON for people and for diffs: what fits on a (long) line stays on one."""
    flat = json.dumps(value, ensure_ascii=False)
    if len(flat) + indent <= 240 or not isinstance(value, (dict, list)):
        return flat
    pad = " " * (indent + 1)
    if isinstance(value, dict):
        lines = [f"{pad}{json.dumps(key)}: {as_text(item, indent + 1)}" for key, item in value.items()]
        return "{\n" + ",\n".join(lines) + f"\n{' ' * indent}}}"
    return "[\n" + ",\n".join(pad + as_text(item, indent + 1) for item in value) + f"\n{' ' * indent}]"
