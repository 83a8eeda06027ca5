"""What every test starts from: one thread, no display, fixed random numbers."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when torch is imported, so before that
os.environ.setdefault("MPLBACKEND", "Agg")
os.environ.setdefault("SDL_VIDEODRIVER", "dummy")

# Programs that tests start would ignore these signals, too, in a suite in the background or under nohup.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

import numpy as np
import pytest
import torch
from hypothesis import settings

from algorithm.core.spec import ActionSpec, AgentSpec, ObsSpec

torch.set_num_threads(1)

# A deadline measures the machine, not the code. In CI the examples are the same at every run.
settings.register_profile("here", deadline=None, max_examples=30)
settings.register_profile(
    "ci", deadline=None, max_examples=30, derandomize=True, database=None, print_blob=True
)
settings.register_profile("thorough", deadline=None, max_examples=1000)  # --hypothesis-profile=thorough
settings.load_profile("ci" if os.environ.get("CI") else "here")


@pytest.fixture(autouse=True)
def _seeded() -> None:
    """Tests give the same numbers alone, together and in any order."""
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("highest")  # a run in this process may have set another one


@pytest.fixture(autouse=True)
def _of_main(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands are shown as if ``main.py`` had been typed, wherever the tests were started from."""
    monkeypatch.setattr(sys, "argv", ["main.py"])


@pytest.fixture(autouse=True)
def _no_pages(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs in this process end without picture and page, which take long; ``pages`` asks for them."""
    if request.node.get_closest_marker("pages") is None:
        for what in ("summaries.plot_curve", "summaries.write_report"):
            monkeypatch.setattr(f"algorithm.app.{what}", lambda *_, **__: None)


@pytest.fixture
def rng() -> np.random.Generator:
    """Random numbers of this test alone."""
    return np.random.default_rng(0)


@pytest.fixture(scope="session")
def root() -> Path:
    """The folder that holds ``main.py``."""
    return Path(__file__).resolve().parents[1]


@pytest.fixture
def box_spec() -> AgentSpec:
    """Three numbers in, one continuous action out, as in Pendulum."""
    return AgentSpec(ObsSpec(("obs",), ((3,),), ("float32",)), ActionSpec(continuous=1))


@pytest.fixture
def cwd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A new folder, in which the test runs."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def task(cwd: Path) -> Path:
    """The folder of the runs of a small task, ``task/`` in the folder to start from."""
    from tests.lib.sessions import TASK

    (cwd / "task").mkdir()
    (cwd / "task" / "config.yaml").write_text(TASK)
    return cwd / "models" / "task"
