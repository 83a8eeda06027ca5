"""Pictures of the program's screens for ``docs/images``, made by the commands themselves."""

from __future__ import annotations

import hashlib
import io
import os
import re
import subprocess
import sys
import tempfile
from argparse import ArgumentParser
from pathlib import Path

from rich.console import Console
from rich.text import Text
from typing_extensions import override

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from algorithm.agents.sac.metrics import READOUTS  # noqa: E402 - the path comes before
from algorithm.app.console.live import LiveConsole  # noqa: E402
from algorithm.core.console import Evaluation, Progress  # noqa: E402

IMAGES = ROOT / "docs" / "images"
WIDTH = 112

WALK = re.compile(r"^```python\n(?P<code>.*?class Walk.*?)^```", re.M | re.S)
SCREENS = {
    "start": ["Pendulum-v1", "--max_step", "1200", "--seed", "1", "-n", "base", "--device", "cpu"],
    "mistake": ["gym/pendulum", "-o", "sac_config.n_stepp=1", "-o", "sac_config.gamma=2"],
    "dry_run": ["gym/pendulum", "--dry_run", "--device", "cpu"],
    "check": ["walk.py:Walk", "--check"],
    "list": ["gym/pendulum", "--list"],
}
"""Name of the picture → words behind ``asac``."""

COLOURS = {"FORCE_COLOR": "1", "COLUMNS": str(WIDTH), "TERM": "xterm-256color", "COLORTERM": "truecolor"}
EVALUATIONS = (
    Evaluation(1_000, -1387.59, 218.53, 10),
    Evaluation(2_000, -846.61, 70.19, 10),
    Evaluation(3_000, -200.65, 88.67, 10),
    Evaluation(4_000, -178.30, 71.18, 10),
)
PROGRESS = Progress(
    step=4_086,
    max_step=6_000,
    iteration=20,
    max_iter=None,
    updates=3_086,
    episodes=20,
    seconds=60.2,
    eta_s=33.0,
    env_steps_per_s=58.6,
    updates_per_s=58.6,
    returns=(
        *(-1306.8, -1285.8, -1521.6, -1071.4, -1049.8, -1149.2, -986.5, -1433.3, -1292.5, -875.1),
        *(-898.2, -863.1, -509.4, -252.6, -122.5, -294.2, -128.7, -244.3, -115.5, -1.5),
    ),
    last_eval=EVALUATIONS[-1],
    best_eval=EVALUATIONS[-1],
    metrics={
        **{"loss/q": 1.7885e-4, "loss/policy": 0.69198, "loss/alpha": 0.02206, "optim/grad_norm": 0.018926},
        **{"policy/entropy_c": -1.0036, "policy/target_entropy_c": -1.0, "policy/alpha_c": 0.0021762},
    },
    readouts=READOUTS,
)
"""Figures of one run on a busy machine. Times differ from run to run: a new one would be another picture."""


class _Terminal(io.StringIO):
    encoding = "utf-8"

    @override
    def isatty(self) -> bool:
        return True


def main(argv: list[str]) -> None:
    """Write the pictures of these names, or of all; with ``--stale`` those that show other words by now."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join([*SCREENS, 'live'])}")
    parser.add_argument("--stale", action="store_true", help="leave pictures that show the same words")
    options = parser.parse_args(argv)
    found = WALK.search((ROOT / "docs" / "own_environment.md").read_text("utf-8"))
    assert found is not None, "docs/own_environment.md has no Walk"
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "walk.py").write_text(found["code"], "utf-8")
        for name in options.names or [*SCREENS, "live"]:
            said = _panel() if name == "live" else _said(SCREENS[name], folder)
            file, mark = IMAGES / f"screen_{name}.svg", words_mark(said.plain)
            if options.stale and file.exists() and mark in file.read_text("utf-8"):
                continue
            file.write_text(f"{_picture(said)}{mark}\n", "utf-8")
            print(f"docs/images/screen_{name}.svg")


def words_mark(text: str) -> str:
    """Return the comment of a picture that tells which words it shows.

    Numbers, the breaks of lines and the parts that time went into differ from run to run.
    """
    words = set(re.findall(r"[^\W\d]{3,}", re.sub(r"\btime .*?%[^│]*", "", text)))
    return f"<!-- words: {hashlib.sha256(' '.join(sorted(words)).encode()).hexdigest()[:16]} -->"


def _panel() -> Text:
    """Return the live panel of a training, drawn once."""
    os.environ |= COLOURS
    stream = _Terminal()
    with LiveConsole(stream, width=WIDTH) as console:
        console.start([("run", [("name", "base")])])
        start = stream.tell()
        for evaluation in EVALUATIONS:
            console.evaluation(evaluation, best=True)
        console.progress(PROGRESS)
        drawn = stream.getvalue()[start:]  # before it is closed, which draws it again
    panel = Text.from_ansi(re.sub(r"\x1b\[[0-9;?]*[A-Zhl]", "", drawn).strip("\n"))
    return Text.assemble(("$ asac gym/pendulum -n base --seed 1 --max_step 6000\n", "bold"), panel)


def _said(words: list[str], folder: str) -> Text:
    """Return a command and all that it says."""
    environment = os.environ | COLOURS | {"PYTHONPATH": str(ROOT)}
    environment |= {"TTY_COMPATIBLE": "1", "TTY_INTERACTIVE": "0", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "asac", *words]
    done = subprocess.run(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    said = done.stdout.replace("python -m asac", "asac").replace(folder, "~")
    said = said.partition("\nstep=")[0]  # how a training goes on differs from run to run
    return Text.assemble((f"$ asac {' '.join(words)}\n", "bold"), Text.from_ansi(said.rstrip()))


def _picture(said: Text) -> str:
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        console = Console(record=True, width=WIDTH, file=nowhere, force_terminal=True)
        console.print(said)
    svg = console.export_svg(title="asac")
    return re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.S)  # fonts would be fetched from elsewhere


if __name__ == "__main__":
    main(sys.argv[1:])
