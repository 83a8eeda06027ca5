"""Worker: training by this project's command line, on a section of ``benchmarks/equal``."""

from __future__ import annotations

import json
import subprocess
import sys
from argparse import Namespace
from pathlib import Path
from tempfile import TemporaryDirectory

from harness import ROOT, our_version
from runs import count_trained, load_run_config
from setting import report
from tasks import step_arguments

EQUAL = ROOT / "benchmarks" / "equal"


def train(arguments: Namespace, folder: Path) -> Path:
    """Run the command line in a folder; returns that of the run."""
    keys = {
        "base_config.max_step": arguments.steps,
        "sac_config.start_step": arguments.start_step,
        "sac_config.threads": arguments.threads,
        "eval_config.per_step": arguments.steps,  # evaluation is not timed: one short one at the end
        "eval_config.episodes": 1,
    }
    command = [sys.executable, str(ROOT / "main.py"), str(EQUAL), "-c", arguments.task, "--quiet"]
    command += ["--device=cpu", "--name=run", f"--seed={arguments.seed}"]
    command += [word for key, value in keys.items() for word in ("-o", f"{key}={value}")]
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    return folder / "models" / EQUAL.name / "run"


def main() -> None:
    """Measure what the command line asks for and print the answer."""
    arguments = step_arguments(__doc__).parse_args()
    with TemporaryDirectory() as folder:
        run = train(arguments, Path(folder))
        result = json.loads((run / "result.json").read_text())
        report(
            "advanced-soft-actor-critic",
            our_version(),
            threads=load_run_config(run).sac_config.threads,
            parameters=count_trained(run),
            updates=result["updates"],
            steps=result["steps"],
            seconds=result["seconds"],
            time=result["time"],
        )


if __name__ == "__main__":
    main()
