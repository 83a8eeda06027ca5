"""The Ray actor that runs one process of ours on a node, and its messages. Loads no torch."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from algorithm.core.errors import StorageError
from algorithm.core.reading import read_json
from algorithm.core.system.files import rename
from algorithm.core.system.launch import launcher
from algorithm.core.system.processes import NEW_GROUP, send_signal
from algorithm.store.lock import lock_files

_LINES = 200
"""Maximum number of lines of output kept between two reports: the last ones."""

_LINE_LENGTH = 2000
_DRAIN_S = 2.0  # for what a process printed last; its own children may keep the pipe open for ever


class Host:
    """Ray actor that runs one process on a node and ends it when it dies itself.

    All methods run in the main thread, one after the other: the kernel kills the child when the *thread* ends
    that started it (prctl(2), PR_SET_PDEATHSIG).
    """

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._command: StartCommand | None = None
        self._lines: deque[str] = deque(maxlen=_LINES)
        self._reader: threading.Thread | None = None
        self._secrets: Path | None = None

    def where(self) -> tuple[str, str]:
        """Return the node's address, as other nodes reach it, and Ray's id of the node."""
        import ray

        address = str(ray.util.get_node_ip_address())  # type: ignore[no-untyped-call]
        return address, str(ray.get_runtime_context().get_node_id())

    def status(self, folder: str, run: str) -> NodeStatus:
        """Return the node's view of the run's folder ``run``, a path below ``folder``."""
        path = Path(folder, run)
        return NodeStatus(path.is_dir(), _newest(path), _locked(path / "run.lock"))

    def start(self, command: StartCommand) -> int:
        """Start the process; return its id. Raises OSError, such as for a folder that is not there."""
        path = Path(command.folder, command.run)
        if command.run and command.aside and path.is_dir():
            rename(path, _free(path))
        if command.run and command.unlock:
            for file in lock_files(path / "run.lock"):
                file.unlink(missing_ok=True)
        self._drop_secrets()
        extra = self._keep(command.secrets) if command.secrets else ()
        self._child = subprocess.Popen(
            (*launcher(), sys.executable, *command.arguments, *extra),
            cwd=command.folder,
            env=_clean(os.environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # what is typed at a terminal is the command's affair
            creationflags=NEW_GROUP,
        )
        self._command = command
        self._lines.clear()
        self._reader = threading.Thread(target=self._read, args=(self._child,), daemon=True)
        self._reader.start()
        return self._child.pid

    def poll(self) -> ProcessReport:
        """Return the status of the process. Only after :meth:`start`."""
        assert self._child is not None
        assert self._command is not None
        assert self._reader is not None
        code = self._child.poll()
        if code is not None:
            self._reader.join(_DRAIN_S)
            self._drop_secrets()
        lines = tuple(self._lines.popleft() for _ in range(len(self._lines)))
        path = Path(self._command.folder, self._command.run)
        endpoint = _endpoint(path / "endpoint.json", self._child.pid) if self._command.run else None
        return ProcessReport(
            self._child.pid, code, lines, endpoint, bool(self._command.run) and _newest(path) >= 0
        )

    def signal(self, number: int) -> None:
        """Forward a signal; SIGKILL to the whole session of the process."""
        if self._child is None or self._child.poll() is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            send_signal(self._child.pid, number)

    def _keep(self, secrets: Mapping[str, bytes]) -> tuple[str, ...]:
        """Write files that only this user can read; return the flag that names their folder."""
        self._secrets = Path(tempfile.mkdtemp(prefix="sac-secrets-"))  # mode 0700
        for name, data in secrets.items():
            file = self._secrets / name
            file.touch(mode=0o600)
            file.write_bytes(data)
        return ("-o", f"net_config.secrets={self._secrets}")

    def _drop_secrets(self) -> None:
        if self._secrets is not None:
            shutil.rmtree(self._secrets)
            self._secrets = None

    def _read(self, child: subprocess.Popen[bytes]) -> None:
        assert child.stdout is not None
        for line in child.stdout:
            self._lines.append(line.decode(errors="replace").rstrip()[:_LINE_LENGTH])


def _clean(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without Ray's variables, its token first of all."""
    return {
        name: value
        for name, value in environ.items()
        if not name.startswith("RAY_") and name != "PYTHONBREAKPOINT"
    }


def _newest(run: Path) -> int:
    """Return the step of the newest checkpoint, -1 without one."""
    names = (manifest.parent.name for manifest in run.glob("checkpoints/step_*/manifest.json"))
    return max((int(name.split("_")[1]) for name in names if name.split("_")[1].isdigit()), default=-1)


def _locked(lock: Path) -> str:
    try:
        host = str(read_json(lock)["host"])
    except (StorageError, KeyError):  # none, or a damaged one, which the run itself takes over
        return ""
    return "" if host == socket.gethostname() else host


def _endpoint(file: Path, pid: int) -> tuple[str, int] | None:
    """Return the address the process listens at; None before its file exists."""
    try:
        value = read_json(file)
        return (str(value["host"]), int(value["port"])) if value["pid"] == pid else None
    except (StorageError, ValueError, TypeError, KeyError):
        return None


def _free(path: Path) -> Path:
    names = (path.with_name(f"{path.name}_crashed_{count}") for count in itertools.count(1))
    return next(name for name in names if not name.exists())


@dataclass(frozen=True, kw_only=True)
class StartCommand:
    """Command that starts a process on a node.

    arguments: those behind the interpreter, the script first.
    folder:    the working directory, an absolute path that every node has.
    run:       the run's folder below it if the process is a learner, else empty.
    secrets:   files by name, written where only this user can read them; empty for none.
    aside:     give a run's folder without a checkpoint another name first, since its name is wanted.
    unlock:    remove the run's lock first; it is that of a node which is gone.
    """

    arguments: tuple[str, ...]
    folder: str
    run: str = ""
    secrets: Mapping[str, bytes] = field(default_factory=dict)
    aside: bool = False
    unlock: bool = False


@dataclass(frozen=True)
class NodeStatus:
    """View of a run's folder from a node.

    step: of its newest checkpoint, -1 without one.
    locked: the name of the other machine that its lock names; empty without one.
    """

    exists: bool
    step: int
    locked: str

    @property
    def saved(self) -> bool:
        """Whether it has a checkpoint."""
        return self.step >= 0


@dataclass(frozen=True)
class ProcessReport:
    """Status of a process.

    code:     its exit code once it ended, negative for a signal.
    lines:    what it printed since the report before.
    endpoint: where a learner listens.
    saved:    its run has a checkpoint.
    """

    pid: int
    code: int | None
    lines: tuple[str, ...]
    endpoint: tuple[str, int] | None
    saved: bool
