"""What is prepared for Windows, shown on Linux: nothing here has run on Windows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.core.system.portable import HOMES, special
from tests.house.import_rules import Module
from tests.house.test_architecture import MODULES, exists

AS_WINDOWS = Path(__file__).parent / "as_windows"
PROGRAM = """
import importlib, pkgutil, sys
import algorithm, asac, ds
from algorithm.core import system

assert system.WINDOWS and "sitecustomize" in sys.modules
for package in (algorithm, asac, ds):
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if not found.name.endswith("__main__"):
            importlib.import_module(found.name)

sys.argv = ["asac", "toy/identity", "-n", "run", "--seed=1", "--device=cpu", "--max_step=60"]
words = ("sac_config.start_step=20", "sac_config.batch_size=8", "base_config.workers=1")
sys.argv += [f"-o={word}" for word in words]
from algorithm.app.command import run

if __name__ == "__main__":
    run()
"""


def test_what_only_some_systems_have_stands_in_few_modules() -> None:
    assert [line for module in MODULES for line in special(module)] == []
    assert all(map(exists, HOMES))


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ("import fcntl", "imports fcntl"),
        ("def f():\n    from resource import getrlimit", "imports resource"),
        ("import os\nos.killpg(1, 9)", "uses os.killpg"),
        ("from os import fork", "uses fork"),
        ("flags = os.O_NOFOLLOW", "uses os.O_NOFOLLOW"),
        ("signal.signal(signal.SIGHUP, f)", "uses signal.SIGHUP"),
        ("signal.pthread_sigmask(0, ())", "uses signal.pthread_sigmask"),
        ("faulthandler.register(10)", "uses faulthandler.register"),
        ("Path('/proc/self/stat')", "names /proc/self/stat"),
        ("Popen(command, start_new_session=True)", "starts a session"),
        ("Popen(command, preexec_fn=f)", "starts a process with preexec_fn"),
        ("multiprocessing.get_context('fork')", "another start method"),
        ("multiprocessing.get_context()", "another start method"),
    ],
)
def test_such_a_use_is_named(source: str, what: str) -> None:
    (message,) = special(Module("algorithm.run.trainer", source))
    assert message.startswith("algorithm.run.trainer:") and what in message
    assert special(Module("algorithm.core.system.files", source)) == []


@pytest.mark.parametrize(
    "source",
    [
        "import os\nos.kill(pid, signal.SIGTERM)",
        "os.open(path, os.O_RDONLY)",
        "signal.Signals(2)",
        "Popen(command, start_new_session=True, creationflags=NEW_GROUP)",
        "multiprocessing.get_context('spawn')",
        "other.fork()",
    ],
)
def test_what_every_system_has_passes(source: str) -> None:
    assert special(Module("algorithm.run.trainer", source)) == []


@pytest.mark.slow
def test_every_module_loads_and_a_training_with_workers_runs_without_what_windows_lacks(
    root: Path, tmp_path: Path
) -> None:
    """The workers are spawned and see the same; a program of its own, as spawning runs its file again."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM, "utf-8")
    path = os.pathsep.join((str(AS_WINDOWS), str(root)))
    done = subprocess.run(
        [sys.executable, str(program)],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    run = tmp_path / "models/toy/identity/run"
    result = json.loads((run / "result.json").read_text("utf-8"))
    assert result["steps"] == 60 and result["updates"] > 0, result
    assert {file.name for file in (run / "workers").iterdir()} == {"worker_0.log"}
    assert not (run / "run.lock").exists()
