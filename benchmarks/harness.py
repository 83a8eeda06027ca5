"""What every comparison is built of: worker processes, their answers, and the file the figures end up in.

A worker runs in an interpreter and a process of its own and ends by printing one line of JSON. Libraries
print to the same place, before and after it, so the answer is looked for and not expected at the end.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

from algorithm.run.provenance import SOURCE, git_state

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
RESULTS = HERE / "results"
PEER = HERE / ".peers" / "sb3"
PEER_PYTHON = PEER / "bin" / "python"
SHARED = ("torch", "numpy", "gymnasium")
"""Packages of which the peer gets our version: they are not what is compared."""

Answer = dict[str, Any]
"""What a worker prints."""


class WorkerError(Exception):
    """A worker did not answer, or answered something that cannot be compared."""


@dataclass(frozen=True)
class Worker:
    """One side of a comparison: an interpreter, the script it runs, and where that finds its modules."""

    name: str
    python: Path
    script: Path
    path: str = ""

    def run(self, arguments: Sequence[str], *, threads: int = 1) -> Answer:
        """One measurement in a process of its own. Raises WorkerError if it fails or does not answer."""
        command = [str(self.python), str(self.script), *arguments]
        environment = os.environ | thread_limits(threads) | {"PYTHONPATH": self.path}
        process = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False)
        if process.returncode:
            raise WorkerError(f"{self.name}: `{' '.join(command)}` ended with exit code {process.returncode}")
        return read_answer(process.stdout, of=f"{self.name}: `{' '.join(command)}`")


def our_worker(script: str) -> Worker:
    """Our side, in the interpreter that runs the benchmark."""
    return Worker("ours", Path(sys.executable), HERE / script, str(ROOT))


def peer_worker(script: str, python: Path) -> Worker:
    """Stable-Baselines3, in the interpreter that has it. Leaves the program where there is none."""
    if not python.exists():
        sys.exit(f"{python} does not exist.\nInstall Stable-Baselines3 with: make bench-peers")
    return Worker("Stable-Baselines3", python, HERE / script)


def read_answer(output: str, *, of: str) -> Answer:
    """The last JSON object in what a worker printed; each stands on a line of its own, maybe behind noise.

    PyBullet writes through C's buffer: its lines come after ours, or end without a line break in front of
    them. Raises WorkerError, naming ``of``, where there is no answer.
    """
    for line in reversed(output.splitlines()):
        begin = line.find('{"')
        if begin < 0:
            continue
        try:
            answer: Answer
            answer, _ = json.JSONDecoder().raw_decode(line[begin:])
        except json.JSONDecodeError:
            continue
        return answer
    raise WorkerError(f"{of} printed no answer")


def thread_limits(threads: int) -> dict[str, str]:
    """Environment variables that hold the libraries of linear algebra to so many threads."""
    return {f"{library}_NUM_THREADS": str(threads) for library in ("OMP", "MKL", "OPENBLAS", "NUMEXPR")}


def our_version() -> str:
    """Commit of this checkout; a plus sign says that files which can matter differ from it."""
    state = git_state()
    if state is None:
        return "unknown"
    own = [":!benchmarks/results", ":!docs"]  # what a measurement before this one has written
    status = ["git", "-C", str(SOURCE), "status", "--porcelain", "--", ".", *own]
    changed = subprocess.run(status, capture_output=True, text=True, check=True).stdout
    return f"{state['commit']}{'+' if changed else ''}"


def warn_if_busy() -> None:
    """Say so if other programs are running: they slow both sides, and not evenly."""
    load = os.getloadavg()[0]
    if load > 0.5:
        print(f"note: the machine is busy (load {load:.1f}), which makes ratios uncertain", file=sys.stderr)


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


def write_result(file: Path, content: Mapping[str, Any]) -> None:
    """Write figures with the day, the commit and the machine they come from.

    The file is there as a whole or as it was: some measurements write it after each of many runs.
    """
    head = {"date": date.today().isoformat(), "version": our_version(), "machine": machine()}
    file.parent.mkdir(parents=True, exist_ok=True)
    new = file.with_name(f"{file.name}.{os.getpid()}.new")
    new.write_text(as_text({**head, **content}) + "\n")
    new.replace(file)
    print(f"written: {os.path.relpath(file)}", file=sys.stderr)


def as_text(value: Any, indent: int = 0) -> str:
    """JSON for people and for diffs: what fits on a (long) line stays on one; numbers with six digits."""
    flat = json.dumps(_rounded(value), ensure_ascii=False, allow_nan=False)
    if len(flat) + indent <= 240 or not isinstance(value, (dict, list, tuple)):
        return flat
    pad = " " * (indent + 1)
    if isinstance(value, dict):
        lines = [f"{pad}{json.dumps(str(key))}: {as_text(item, indent + 1)}" for key, item in value.items()]
        return "{\n" + ",\n".join(lines) + f"\n{' ' * indent}}}"
    return "[\n" + ",\n".join(pad + as_text(item, indent + 1) for item in value) + f"\n{' ' * indent}]"


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, Mapping):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(item) for item in value]
    return value
