"""What ``--demos`` prints of recordings, and what a training says of those that it cannot use."""

from __future__ import annotations

import contextlib
import io
import os
import shlex
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import numpy as np

from main import main
from tests.extras.mlagents.demo_files import HAND

CASES = (
    "demos/a.npz",
    "demos",
    "demos/*.npz demos/a.npz",
    "demos/a.npz --quiet",
    "demos/torn.npz",
    "none.npz",
    "plain.txt",
    "minari:pendulum",
)
"""Words behind ``CartPole-v1 --demos``."""


def messages() -> Iterator[tuple[str, str]]:
    """Yield the words, and all that is printed."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        stack.callback(os.chdir, Path.cwd())
        os.chdir(folder)
        stack.enter_context(patch.object(sys, "argv", ["main.py"]))
        Path("demos").mkdir()
        Path("plain.txt").touch()
        _record(Path("demos/a.npz"), "obs", "default")
        _record(Path("demos/b.npz"), "seen", "default")
        _record(Path("demos/c.npz"), "obs", "Goalie")
        Path("demos/torn.npz").write_bytes(Path("demos/a.npz").read_bytes()[:300])
        for words in CASES:
            said = _printed(["CartPole-v1", "--demos", *shlex.split(words)])
            yield words, said.replace(os.path.realpath(folder), "HERE")
        Path("ball").mkdir()
        Path("ball/config.yaml").write_text("default: {base_config: {env_type: UNITY, env_name: Ball}}")
        Path("hand.demo").write_bytes(HAND)
        yield "of a task without a build", _printed(["./ball", "--demos", "hand.demo"])


def _printed(words: list[str]) -> str:
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = main(words)
    return f"{said.getvalue()}exit code {code}"


def _record(path: Path, name: str, behaviour: str) -> None:
    """Two episodes of two and three steps; one of five choices was forbidden."""
    arrays: dict[str, np.ndarray] = {"behaviour": np.array([behaviour] * 2)}
    for number, length in enumerate((2, 3)):
        ends = np.arange(length) == length - 1
        arrays |= {
            f"{number}/{key}": value
            for key, value in {
                f"obs/{name}": np.full((length + 1, 4), 0.5, np.float32),
                "action_mask": np.arange(2 * length + 2).reshape(-1, 2) != 1,
                "action": np.eye(2, dtype=np.float32)[np.zeros(length, int)],
                "reward": np.full(length, 1.5, np.float32),
                "terminated": ends & (number == 0),
                "truncated": ends & (number == 1),
            }.items()
        }
    np.savez(path, **arrays)
