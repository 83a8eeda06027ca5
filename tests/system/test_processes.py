"""Processes on systems that differ: each way of theirs is played here on Linux."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from algorithm.core import system
from algorithm.core.system import processes

SLEEPER = "import signal, time; signal.signal(signal.SIGUSR1, signal.SIG_IGN); time.sleep(60)"


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Signals sent on Windows, which has no groups of processes."""
    found: list[tuple[int, int]] = []
    monkeypatch.delattr(os, "killpg")
    monkeypatch.setattr(os, "kill", lambda pid, number: found.append((pid, number)))
    return found


def test_sigkill_is_for_the_whole_group_and_others_for_its_leader() -> None:
    code = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {SLEEPER!r}]); {SLEEPER}"
    leader = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    process = psutil.Process(leader.pid)
    while not process.children():
        time.sleep(0.02)
    child = process.children()[0]
    processes.send_signal(leader.pid, signal.SIGCONT)
    processes.send_signal(leader.pid, processes.KILL)
    assert leader.wait(30) == -signal.SIGKILL
    deadline = time.monotonic() + 30
    while child.is_running() and child.status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    with pytest.raises(ProcessLookupError):
        processes.send_signal(leader.pid, signal.SIGTERM)


def test_ctrl_break_ends_a_process_in_order_on_windows(
    sent: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any signal but that ends a process at once there."""
    monkeypatch.setattr(processes, "_CTRL_BREAK", 1)
    for number in (signal.SIGINT, signal.SIGTERM, processes.KILL):
        processes.send_signal(77, number)
    assert sent == [(77, 1), (77, 1), (77, signal.SIGTERM)]


def test_windows_signals_are_handled() -> None:
    code = (
        "import signal; del signal.SIGHUP; signal.SIGBREAK = signal.SIGUSR2; del signal.SIGUSR1\n"
        "from algorithm.core.system import processes as p\n"
        "print([one.name for one in p.STOP_SIGNALS], p.HUNG_UP, p.request_stacks(1), p.KILL)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert found.split() == ["['SIGINT',", "'SIGTERM',", "'SIGUSR2']", "None", "False", "9"]
    assert processes.STOP_SIGNALS == (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def test_cores_are_those_of_the_process_and_elsewhere_of_the_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert processes.usable_cores() == len(os.sched_getaffinity(0))
    monkeypatch.delattr(psutil.Process, "cpu_affinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 12)
    assert processes.usable_cores() == 12


def test_handles_are_counted_as_the_system_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    process = psutil.Process()
    with Path(os.devnull).open("rb"):
        more = processes.count_handles(process)
    assert processes.count_handles(process) == more - 1
    monkeypatch.setattr(psutil.Process, "num_handles", lambda self: 99, raising=False)
    assert processes.count_handles(process) == 99


def test_descriptors_are_listed_and_without_a_list_there_are_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Path(os.devnull).open("rb") as file:
        assert file.fileno() in processes.open_descriptors()
    monkeypatch.setattr(processes, "_DESCRIPTORS", tmp_path / "nowhere")
    assert processes.open_descriptors() == []


def test_without_limits_as_many_descriptors_as_are_wanted_are_allowed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "resource", None)
    assert processes.allow_descriptors(1536) == 1536


def test_a_port_is_not_taken_away_on_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    for windows, allowed in ((False, True), (True, False)):
        monkeypatch.setattr(system, "WINDOWS", windows)
        with socket.socket() as listener:
            processes.allow_reuse(listener)
            assert bool(listener.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR)) is allowed


def test_the_keeper_of_shared_memory_outlives_a_closed_terminal() -> None:
    """Else it is started anew, and prints a traceback for each memory that it does not know of."""
    code = (
        "from algorithm.core.system.processes import start_resource_tracker\n"
        "from multiprocessing import resource_tracker as tracker\n"
        "start_resource_tracker()\n"
        "print(open(f'/proc/{tracker._resource_tracker._pid}/status').read())\n"
        "print(open('/proc/self/status').read())"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    its, ours = (int(mask, 16) >> (signal.SIGHUP - 1) & 1 for mask in re.findall(r"SigBlk:\s+(\w+)", found))
    assert its and not ours
