"""Gradient updates per second beside Stable-Baselines3; environment steps per second with ``--end-to-end``.

Both libraries run as worker processes, taking turns: ours, theirs, ours, theirs. Neighbouring runs see the
same machine, so the ratio of a pair means more than the ratio of two averages. ``README.md`` says what is
measured.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from argparse import ArgumentParser, Namespace
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

from setting import Setting

HERE = Path(__file__).resolve().parent
PEER = HERE / ".peers" / "sb3"
PEER_VERSION = "2.9.2"
SHARED = ("torch", "numpy", "gymnasium")
"""Packages of which the peer gets our version: they are not what is compared."""

Answer = dict[str, Any]
"""What a worker reports, see ``setting.report``."""


class WorkerError(Exception):
    """A worker did not answer, or answered something that cannot be compared."""


@dataclass(frozen=True)
class Worker:
    """One side of the comparison: an interpreter, the script it runs, and where that finds its modules."""

    name: str
    python: Path
    script: Path
    path: str = ""

    def run(self, arguments: list[str], threads: int) -> Answer:
        """One measurement in a process of its own; its answer is the last line it prints.

        Raises WorkerError if the process fails or prints nothing.
        """
        limits = {f"{library}_NUM_THREADS": str(threads) for library in ("OMP", "MKL", "OPENBLAS")}
        command = [str(self.python), str(self.script), *arguments]
        environment = os.environ | limits | {"PYTHONPATH": self.path}
        process = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False)
        lines = process.stdout.strip().splitlines()
        if process.returncode or not lines:
            raise WorkerError(f"{self.name}: `{' '.join(command)}` ended with exit code {process.returncode}")
        answer: Answer = json.loads(lines[-1])
        return answer


def main() -> None:
    """Measure what the command line asks for, or set up the peer's environment."""
    arguments = parse_arguments()
    if arguments.setup:
        set_up_peer()
        return
    if not arguments.sb3_python.exists():
        sys.exit(f"{arguments.sb3_python} does not exist.\nInstall Stable-Baselines3 with: make bench-peers")
    ours = Worker("ours", Path(sys.executable), HERE / "updates_ours.py", str(HERE.parent))
    peer = Worker("Stable-Baselines3", arguments.sb3_python, HERE / "updates_sb3.py")
    warn_if_busy()
    try:
        result = compare(ours, peer, arguments)
    except WorkerError as error:
        sys.exit(f"benchmark stopped: {error}")
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=2) + "\n")


def parse_arguments() -> Namespace:
    """The command line of the benchmark."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--end-to-end", action="store_true", help="steps/s on Pendulum-v1, one update each")
    parser.add_argument("--pairs", type=int, default=5, help="interleaved pairs of runs")
    parser.add_argument("--seconds", type=float, default=6.0, help="time measured in one run of updates")
    parser.add_argument("--steps", type=int, default=4000, help="environment steps of one run end to end")
    parser.add_argument("--threads", type=int, default=1, help="torch threads of either side")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write answers, medians and machine there")
    parser.add_argument("--setup", action="store_true", help="install Stable-Baselines3 and stop")
    parser.add_argument(
        "--sb3-python",
        type=Path,
        metavar="PATH",
        default=PEER / "bin" / "python",
        help="the Python that Stable-Baselines3 is installed for",
    )
    arguments = parser.parse_args()
    if arguments.pairs < 1:
        parser.error("--pairs must be at least 1")
    return arguments


def set_up_peer() -> None:
    """Install the peer with our own versions of what both use; does nothing where it is there already."""
    stamp = PEER / ".installed"
    shared = [f"{name}=={version(name).partition('+')[0]}" for name in SHARED]
    wanted = [f"stable-baselines3=={PEER_VERSION}", *shared]
    if stamp.exists() and stamp.read_text().split() == wanted:
        return
    print(f"Installing {wanted[0]} into {PEER} (about a minute) …", file=sys.stderr)
    shutil.rmtree(PEER, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", str(PEER)], check=True)
    install = ["-m", "pip", "install", "--quiet", "--quiet", "--disable-pip-version-check", *wanted]
    subprocess.run([str(PEER / "bin" / "python"), *install], check=True)
    stamp.write_text("\n".join(wanted) + "\n")


def warn_if_busy() -> None:
    """Say so if other programs are running: they slow both sides, and not evenly."""
    load = os.getloadavg()[0]
    if load > 0.5:
        print(f"note: the machine is busy (load {load:.1f}), which makes ratios uncertain", file=sys.stderr)


def compare(ours: Worker, peer: Worker, arguments: Namespace) -> dict[str, Any]:
    """Run the pairs, print a line for each and the medians, return everything as plain values."""
    setting = Setting.pendulum() if arguments.end_to_end else Setting()
    unit = "steps" if arguments.end_to_end else "updates"
    command = ["--task", "end-to-end" if arguments.end_to_end else "updates"]
    command += [f"--{name}={getattr(arguments, name)}" for name in ("seconds", "steps", "threads")]
    print(f"{unit}/s, torch threads: {arguments.threads}")
    print(f"{'':8}{ours.name:>8} {peer.name:>18} {'ratio':>7}")
    answers: list[dict[str, Answer]] = []
    rates: list[dict[str, float]] = []
    for i in range(arguments.pairs):
        pair = {
            side: check(worker.run([*command, f"--seed={i}"], arguments.threads), setting, arguments)
            for side, worker in (("ours", ours), ("peer", peer))
        }
        row = {side: float(answer[unit] / answer["seconds"]) for side, answer in pair.items()}
        row["ratio"] = row["ours"] / row["peer"]
        answers.append(pair)
        rates.append(row)
        print_row(f"pair {i + 1}", row)
    medians = {column: median(row[column] for row in rates) for column in rates[0]}
    print_row("median", medians)
    return {
        "unit": f"{unit}/s",
        "medians": medians,
        "rates": rates,
        "answers": answers,
        "setting": setting.as_json(),
        "machine": machine(),
    }


def print_row(name: str, row: dict[str, float]) -> None:
    """One line of the table."""
    print(f"{name:8}{row['ours']:8.1f} {row['peer']:18.1f} {row['ratio']:7.2f}", flush=True)


def check(answer: Answer, setting: Setting, arguments: Namespace) -> Answer:
    """The answer itself, if it comes from the networks, threads and numbers of updates that were asked for.

    Raises WorkerError otherwise: unequal work cannot be compared.
    """
    wanted = {"parameters": setting.parameters, "threads": arguments.threads}
    if arguments.end_to_end:
        wanted["steps"] = arguments.steps
        expected = arguments.steps - setting.start_step
        if abs(answer["updates"] - expected) > 2:  # libraries differ in which step is the first to learn from
            raise WorkerError(f"{answer['library']} made {answer['updates']} updates, not {expected}")
    for name, value in wanted.items():
        if answer[name] != value:
            raise WorkerError(f"{answer['library']} reports {name} {answer[name]}, not {value}")
    return answer


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


if __name__ == "__main__":
    main()
