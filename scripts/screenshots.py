"""Pictures of the program's screens for ``docs/images``, made by the commands themselves."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parents[1]
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


def main() -> None:
    """Write every picture."""
    found = WALK.search((ROOT / "docs" / "own_environment.md").read_text("utf-8"))
    assert found is not None, "docs/own_environment.md has no Walk"
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "walk.py").write_text(found["code"], "utf-8")
        for name, words in SCREENS.items():
            (IMAGES / f"screen_{name}.svg").write_text(_picture(words, folder), "utf-8")
            print(f"docs/images/screen_{name}.svg")


def _picture(words: list[str], folder: str) -> str:
    environment = os.environ | {"FORCE_COLOR": "1", "COLUMNS": str(WIDTH), "PYTHONPATH": str(ROOT)}
    environment |= {"TTY_COMPATIBLE": "1", "TTY_INTERACTIVE": "0", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "asac", *words]
    done = subprocess.run(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    said = done.stdout.replace("python -m asac", "asac").replace(folder, "~")
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        console = Console(record=True, width=WIDTH, file=nowhere, force_terminal=True)
        console.print(Text(f"$ asac {' '.join(words)}", style="bold"))
        console.print(Text.from_ansi(said.rstrip()))
    svg = console.export_svg(title="asac")
    return re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.S)  # fonts would be fetched from elsewhere


if __name__ == "__main__":
    main()
