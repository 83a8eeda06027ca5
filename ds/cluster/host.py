"""The Ray actor that keeps one process of ours on a node. Loads no torch."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Mapping
from pathlib import Path

from algorithm.errors import StorageError
from algorithm.reading import read_json
from algorithm.runs.lock import lock_files
from ds.cluster.messages import Look, Order, Report

_LAUNCH = Path(__file__).with_name("launch.py")
_LINES = 200
"""Lines of output kept between two reports; of more only the last ones are passed on."""

_LINE_LENGTH = 2000
_DRAIN_S = 2.0  # for what a process printed last; its own children may keep the pipe open for ever


class Host:
    """Starts a process, passes signals and output on, and takes the process along when it dies itself.

    All methods run in the main thread, one after the other: the kernel kills the child when the *thread* ends
    that started it (prctl(2), PR_SET_PDEATHSIG).
    """

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._order: Order | None = None
        self._lines: deque[str] = deque(maxlen=_LINES)
        self._reader: threading.Thread | None = None
        self._secrets: Path | None = None

    def where(self) -> tuple[str, str]:
        """The node's address, as the other nodes reach it, and what Ray calls the node."""
        import ray

        address = str(ray.util.get_node_ip_address())  # type: ignore[no-untyped-call]
        return address, str(ray.get_runtime_context().get_node_id())

    def look(self, folder: str, run: str) -> Look:
        """What this node sees of the run's folder ``run``, a path below ``folder``."""
        path = Path(folder, run)
        return Look(path.is_dir(), _saved(path), _locked(path / "run.lock"))

    def start(self, order: Order) -> int:
        """Start the process; its id. Raises OSError, such as for a folder that this node does not have."""
        path = Path(order.folder, order.run)
        if order.run and order.aside and path.is_dir():
            path.rename(_free(path))
        if order.run and order.unlock:
            for file in lock_files(path / "run.lock"):
                file.unlink(missing_ok=True)
        self._drop_secrets()
        extra = self._keep(order.secrets) if order.secrets else ()
        self._child = subprocess.Popen(
            (*_launcher(), sys.executable, *order.arguments, *extra),
            cwd=order.folder,
            env=_clean(os.environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # what is typed at a terminal is the command's affair
        )
        self._order = order
        self._lines.clear()
        self._reader = threading.Thread(target=self._read, args=(self._child,), daemon=True)
        self._reader.start()
        return self._child.pid

    def poll(self) -> Report:
        """How the process fares. Only after :meth:`start`."""
        assert self._child is not None
        assert self._order is not None
        assert self._reader is not None
        code = self._child.poll()
        if code is not None:
            self._reader.join(_DRAIN_S)
            self._drop_secrets()
        lines = tuple(self._lines.popleft() for _ in range(len(self._lines)))
        path = Path(self._order.folder, self._order.run)
        endpoint = _endpoint(path / "endpoint.json", self._child.pid) if self._order.run else None
        return Report(self._child.pid, code, lines, endpoint, bool(self._order.run) and _saved(path))

    def signal(self, number: int) -> None:
        """Pass a signal on; to the whole session of the process if it is SIGKILL."""
        if self._child is None or self._child.poll() is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            if number == signal.SIGKILL:
                os.killpg(self._child.pid, number)
            else:
                os.kill(self._child.pid, number)

    def _keep(self, secrets: Mapping[str, bytes]) -> tuple[str, ...]:
        """Write files that only this user can read; the flag that names their folder."""
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


def _launcher() -> tuple[str, ...]:
    return (sys.executable, "-I", "-S", str(_LAUNCH), str(os.getpid()))


def _clean(environ: Mapping[str, str]) -> dict[str, str]:
    """Without what belongs to Ray, its token first of all. The GPUs that Ray gave are named elsewhere."""
    return {
        name: value
        for name, value in environ.items()
        if not name.startswith("RAY_") and name != "PYTHONBREAKPOINT"
    }


def _saved(run: Path) -> bool:
    return any(run.glob("checkpoints/step_*/manifest.json"))


def _locked(lock: Path) -> str:
    try:
        host = str(read_json(lock)["host"])
    except (StorageError, KeyError):  # none, or a damaged one, which the run itself takes over
        return ""
    return "" if host == socket.gethostname() else host


def _endpoint(file: Path, pid: int) -> tuple[str, int] | None:
    """Where the process listens; None if the file is not there yet or is that of another process."""
    try:
        value = read_json(file)
        return (str(value["host"]), int(value["port"])) if value["pid"] == pid else None
    except (StorageError, ValueError, TypeError, KeyError):
        return None


def _free(path: Path) -> Path:
    names = (path.with_name(f"{path.name}_crashed_{count}") for count in itertools.count(1))
    return next(name for name in names if not name.exists())
