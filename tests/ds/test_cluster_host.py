"""What starts, watches and ends a process on a node, without Ray."""

from __future__ import annotations

import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from ds.cluster.host import Host, ProcessReport, StartCommand

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 60.0


@pytest.fixture
def host() -> Iterator[Host]:
    host = Host()
    yield host
    host.signal(signal.SIGKILL)


def until_ended(host: Host) -> tuple[ProcessReport, list[str]]:
    """The last report, and all that was printed."""
    lines: list[str] = []
    while True:
        report = host.poll()
        lines += report.lines
        if report.code is not None:
            return report, lines
        time.sleep(0.02)


def command(folder: Path, code: str, **more: object) -> StartCommand:
    return StartCommand(arguments=("-c", code), folder=str(folder), **more)  # type: ignore[arg-type]


CODE = """
import os, sys
folder = sys.argv[2].partition("=")[2]
token = folder + "/token"
print(os.getcwd(), sys.argv[1], folder)
print(*(f"{os.stat(path).st_mode:o}" for path in (folder, token)), open(token).read())
ray = [name for name in os.environ if name.startswith("RAY_")]
print(ray, os.environ["CUDA_VISIBLE_DEVICES"], flush=True)
os.write(2, b"last")
os._exit(6)
"""


def test_a_process_has_its_folder_and_secrets_and_nothing_of_ray(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", "secret")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    host.start(command(tmp_path, CODE, secrets={"token": b"abc"}))
    report, (words, modes, environ, last) = until_ended(host)
    folder, flag, secrets = words.split()
    assert (report.code, folder, flag, last) == (6, str(tmp_path), "-o", "last")
    assert modes == f"{stat.S_IFDIR | 0o700:o} {stat.S_IFREG | 0o600:o} abc"
    assert environ == "[] 3"
    assert not Path(secrets).exists(), "they go with the process"


def test_a_process_ends_with_what_started_it(tmp_path: Path) -> None:
    """Even with kill -9."""
    code = (
        "import sys, time; from ds.cluster.host import Host; from ds.cluster.host import StartCommand\n"
        "sleep = 'import time; open(\\'up\\', \\'w\\'); time.sleep(60)'\n"
        f"command = StartCommand(arguments=('-c', sleep), folder={str(tmp_path)!r})\n"
        "print(Host().start(command), flush=True); time.sleep(60)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = psutil.Process(int(parent.stdout.readline()))
    while not (tmp_path / "up").exists():  # before that it looks for its parent itself
        time.sleep(0.02)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    assert psutil.wait_procs([child], timeout=LIMIT)[1] == []


def test_a_run_is_set_aside_and_a_lock_removed_when_asked(host: Host, tmp_path: Path) -> None:
    run = tmp_path / "run"
    for expected in ("run_crashed_1", "run_crashed_2"):
        run.mkdir()
        host.start(command(tmp_path, "", run="run", aside=True))
        until_ended(host)
        assert not run.exists() and (tmp_path / expected).is_dir()
    run.mkdir()
    for unlock in (False, True):
        (run / "run.lock").touch()
        host.start(command(tmp_path, "", run="run", unlock=unlock))
        until_ended(host)
        assert (run / "run.lock").exists() != unlock
