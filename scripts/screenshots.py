"""Make pictures of the program's screens for ``docs/images``, by running its commands."""

from __future__ import annotations

import fcntl
import hashlib
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
from argparse import ArgumentParser
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
"""Name of the picture -> arguments of ``asac``."""

COLOURS = {"FORCE_COLOR": "1", "COLUMNS": str(WIDTH), "TERM": "xterm-256color", "COLORTERM": "truecolor"}
LIVE = ["CartPole-v1", "--seed", "1", "-n", "first", "--device", "cpu"]
"""Arguments of the training whose panel is filmed."""

LIVE_WIDTH, LIVE_HEIGHT = 100, 40
FRAMES = 16
SECONDS = 0.8
"""Columns and rows of that terminal, pictures of the film, and how long each is shown; the last for four."""

_REDRAWN = re.compile(r"\r(?:\x1b\[2K(?:\x1b\[1A)?){3,}")
"""Control codes that erase a panel before the next one is drawn."""

_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Zhl]")


def main(argv: list[str]) -> None:
    """Write the pictures that ``argv`` names, or all; with ``--stale`` only those with other words by now."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join([*SCREENS, 'live'])}")
    parser.add_argument("--stale", action="store_true", help="leave pictures that show the same words")
    options = parser.parse_args(argv)
    walk = WALK.search((ROOT / "docs" / "own_environment.md").read_text("utf-8"))
    assert walk is not None, "docs/own_environment.md has no Walk"
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "walk.py").write_text(walk["code"], "utf-8")
        for name in options.names or [*SCREENS, "live"]:
            frames = _filmed(folder) if name == "live" else [_screen_of(SCREENS[name], folder)]
            file, mark = IMAGES / f"screen_{name}.svg", words_mark(frames[-1].plain)
            if options.stale and file.exists() and mark in file.read_text("utf-8"):
                continue
            file.write_text(f"{_film(frames)}{mark}\n", "utf-8")
            print(f"docs/images/screen_{name}.svg")


def words_mark(text: str) -> str:
    """Return a comment for a picture, with a hash of the words that it shows.

    Numbers, line breaks and the shares of time differ from run to run, so they are left out.
    """
    words = set(re.findall(r"[^\W\d]{3,}", re.sub(r"\btime .*?%[^│]*", "", text)))
    return f"<!-- words: {hashlib.sha256(' '.join(sorted(words)).encode()).hexdigest()[:16]} -->"


def _filmed(folder: str) -> list[Text]:
    """Run a training in a terminal; return its screen as evenly spaced frames."""
    environment = os.environ | COLOURS | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    environment |= {"COLUMNS": str(LIVE_WIDTH)}
    reader, writer = pty.openpty()
    fcntl.ioctl(writer, termios.TIOCSWINSZ, struct.pack("HHHH", LIVE_HEIGHT, LIVE_WIDTH, 0, 0))
    command = [sys.executable, "-m", "asac", *LIVE]
    with subprocess.Popen(command, cwd=folder, env=environment, stdout=writer, stderr=writer) as training:
        os.close(writer)
        output = b""
        while data := _read(reader):
            output += data
    os.close(reader)
    if training.returncode:
        raise SystemExit(output.decode("utf-8", "replace"))
    first, *panels = _REDRAWN.split(output.decode("utf-8", "replace").replace("\r\n", "\n"))
    begun = first[first.rindex("\x1b[36m╭") :] if "╭" in first else first
    every = [begun, *panels]
    chosen = sorted({round(k * (len(every) - 1) / (FRAMES - 1)) for k in range(FRAMES)})
    prompt = (f"$ asac {' '.join(LIVE[:1])}\n", "bold")
    return [Text.assemble(prompt, Text.from_ansi(_CONTROL.sub("", every[k]).strip("\n"))) for k in chosen]


def _read(reader: int) -> bytes:
    """Return the next bytes of a terminal; none once its program has ended."""
    try:
        return os.read(reader, 65536)
    except OSError:  # Linux: the other side is closed
        return b""


def _screen_of(words: list[str], folder: str) -> Text:
    """Run a command; return it with its output, as a screen."""
    environment = os.environ | COLOURS | {"PYTHONPATH": str(ROOT)}
    environment |= {"TTY_COMPATIBLE": "1", "TTY_INTERACTIVE": "0", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "asac", *words]
    done = subprocess.run(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    output = done.stdout.replace("python -m asac", "asac").replace(folder, "~")
    output = output.partition("\nstep=")[0]  # later lines differ from run to run
    return Text.assemble((f"$ asac {' '.join(words)}\n", "bold"), Text.from_ansi(output.rstrip()))


def _film(frames: list[Text]) -> str:
    """Return an SVG of a frame, or of several that are shown one after the other, in a loop."""
    if len(frames) == 1:
        return _picture(frames[0], "asac", WIDTH)
    lines = max(frame.plain.count("\n") for frame in frames)
    for frame in frames:
        frame.append("\n" * (lines - frame.plain.count("\n")))
    pictures = [_picture(frame, f"f{k}", LIVE_WIDTH) for k, frame in enumerate(frames)]
    box = re.search(r'viewBox="([^"]*)"', pictures[0])
    assert box is not None
    whole = SECONDS * (len(frames) + 4)
    shown = 100 * SECONDS / whole
    style = [
        f"@keyframes one {{ 0%, {shown:.2f}% {{ opacity: 1 }} {shown + 0.1:.2f}%, 100% {{ opacity: 0 }} }}",
        f"@keyframes last {{ 0%, {5 * shown:.2f}% {{ opacity: 1 }} 100% {{ opacity: 0 }} }}",
        f".frame {{ opacity: 0; animation: one {whole}s linear infinite }}",
        ".frame:last-of-type { animation-name: last }",
        *(f".n{k} {{ animation-delay: {k * SECONDS:.1f}s }}" for k in range(len(frames))),
    ]
    inside = "".join(f'<g class="frame n{k}">{picture}</g>' for k, picture in enumerate(pictures))
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{box[1]}">'
    return f"{head}<style>{' '.join(style)}</style>{inside}</svg>"


def _picture(screen: Text, name: str, width: int) -> str:
    """Return a screen as SVG; name: unique in its page."""
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        console = Console(record=True, width=width, file=nowhere, force_terminal=True)
        console.print(screen)
    svg = console.export_svg(title="asac", unique_id=name)
    return re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.S)  # fonts would be fetched from elsewhere


if __name__ == "__main__":
    main(sys.argv[1:])
