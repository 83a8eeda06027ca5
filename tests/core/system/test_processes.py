"""Processes on systems that differ: each way of theirs is played here on Linux."""

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


def test_sigkill_is_for_the_whole_group_and_others_for_its_leader() -> None:
    code = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {SLEEPER!r}]); {SLEEPER}"
    leader = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    process = psutil.Process(leader.pid)
    while not process.children():
        time.sleep(0.02)
    children = process.children()
    processes.send_signal(leader.pid, signal.SIGCONT)
    processes.send_signal(leader.pid, processes.KILL)
    assert leader.wait(30) == -signal.SIGKILL
    assert not psutil.wait_procs(children, timeout=30)[1]
    with pytest.raises(ProcessLookupError):
        processes.send_signal(leader.pid, signal.SIGTERM)


def test_ctrl_break_ends_a_process_in_order_on_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any signal but that ends a process at once there; there are no groups of processes."""
    sent: list[tuple[int, int]] = []
    monkeypatch.delattr(os, "killpg")
    monkeypatch.setattr(os, "kill", lambda *words: sent.append(words))
    monkeypatch.setattr(processes, "_CTRL_BREAK", 1)
    for number in (signal.SIGINT, signal.SIGTERM, processes.KILL):
        processes.send_signal(77, number)
    assert sent == [(77, 1), (77, 1), (77, signal.SIGTERM)]


def printed(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_windows_signals_are_handled() -> None:
    found = printed(
        "import signal; del signal.SIGHUP; signal.SIGBREAK = signal.SIGUSR2; del signal.SIGUSR1\n"
        "from algorithm.core.system import processes as p\n"
        "print([one.name for one in p.STOP_SIGNALS], p.HUNG_UP, p.request_stacks(1), p.KILL)"
    )
    assert found.split() == ["['SIGINT',", "'SIGTERM',", "'SIGUSR2']", "None", "False", "9"]
    assert processes.STOP_SIGNALS == (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def test_the_keeper_of_shared_memory_outlives_a_closed_terminal() -> None:
    """Else it is started anew, and prints a traceback for each memory that it does not know of."""
    found = printed(
        "from algorithm.core.system.processes import start_resource_tracker\n"
        "from multiprocessing import resource_tracker as tracker\n"
        "start_resource_tracker()\n"
        "print(open(f'/proc/{tracker._resource_tracker._pid}/status').read())\n"
        "print(open('/proc/self/status').read())"
    )
    its, ours = (int(mask, 16) >> (signal.SIGHUP - 1) & 1 for mask in re.findall(r"SigBlk:\s+(\w+)", found))
    assert its and not ours


def test_open_descriptors_are_listed() -> None:
    with Path(os.devnull).open("rb") as file:
        assert file.fileno() in processes.open_descriptors()


def test_without_a_list_or_limits_of_descriptors_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_DESCRIPTORS", Path("/nowhere"))
    monkeypatch.setitem(sys.modules, "resource", None)
    assert processes.open_descriptors() == [] and processes.allow_descriptors(1536) == 1536


@pytest.mark.parametrize("windows", [False, True])
def test_a_port_is_not_taken_away_on_windows(windows: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "WINDOWS", windows)
    with socket.socket() as listener:
        processes.allow_reuse(listener)
        assert bool(listener.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR)) is not windows
