"""A Unity player as a program: its executable, arguments, process and logs."""

from __future__ import annotations

import logging
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from algorithm.core.errors import EnvError, UsageError
from algorithm.core.system.files import replace
from algorithm.core.system.launch import launcher
from algorithm.core.system.processes import ending, kill_group
from algorithm.env.config import BuildPath
from algorithm.env.pool.worker import truncate_log

_LOGGER = logging.getLogger(__name__)
# Seconds to wait: for a voluntary end, after SIGTERM, after SIGKILL.
_GOODBYE_S, _TERM_S, _KILL_S = 1.0, 0.7, 1.0
_LOG_LINES, _LOG_BYTES = 15, 4000


class PlayerProcess:
    """Process of a player, which leads a process group and ends with this process.

    make_arguments: (path of the log) -> arguments of the player
    folder: of the log and the output; None: a temporary one
    stem:   of their names
    """

    def __init__(
        self, file: Path, make_arguments: Callable[[Path], list[str]], folder: Path | None, stem: str
    ) -> None:
        self._temporary = None if folder else tempfile.TemporaryDirectory(prefix="players-")
        folder = folder or Path(self._temporary.name)  # type: ignore[union-attr]
        folder.mkdir(parents=True, exist_ok=True)
        self.log, self.output = (folder / f"{stem}.log").resolve(), (folder / f"{stem}.out").resolve()
        for path in (self.log, self.output):  # keep those of the previous player
            if path.exists():
                replace(path, path.with_suffix(f".before{path.suffix}"))
        self.arguments = make_arguments(self.log)
        self._process = _start([*launcher(), str(file), *self.arguments], self.output)
        self.pid, self._ended = self._process.pid, False
        _LOGGER.info("started %s", shlex.join([str(file), *self.arguments]))

    def how_ended(self, wait: float = 0.0) -> str:
        """Return exit code or signal in words, empty if there is none after ``wait`` seconds."""
        self._ends_within(wait)
        code = self._process.poll()
        return "" if code is None else ending(code)

    def truncate_output(self) -> None:
        """Keep only the end of the output if it is large."""
        truncate_log(self.output)

    def log_end(self) -> str:
        """Return the last lines of the log and of the output."""
        ends = [(path, _end_of(path)) for path in (self.log, self.output)]
        return "\n".join(f"end of {path.name}:\n{end}" for path, end in ends if end)

    def end(self) -> None:
        """Wait a moment for the process to end, then terminate, and at last kill it with its children.

        Further calls do nothing: the process id may belong to another process by then.
        """
        if self._ended:
            return
        self._ended = True
        if not self._ends_within(_GOODBYE_S):
            self._process.terminate()
            if not self._ends_within(_TERM_S):
                self._process.kill()
                self._ends_within(_KILL_S)
        kill_group(self.pid)
        if self._temporary is not None:
            self._temporary.cleanup()

    def _ends_within(self, seconds: float) -> bool:
        """Wait at most that long; return whether the process has ended."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        return self._process.poll() is not None


@cache
def _starter() -> ThreadPoolExecutor:
    """Return the thread that starts all players: the kernel kills a player when its starting thread ends."""
    return ThreadPoolExecutor(1, thread_name_prefix="unity starter")


def _start(command: Sequence[str], output: Path) -> subprocess.Popen[bytes]:
    """Start a process, by the thread that starts players; its output goes to a file."""

    def start() -> subprocess.Popen[bytes]:
        with output.open("ab") as file:
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, close_fds=True
            )

    return _starter().submit(start).result()


def build_arguments(env_args: Mapping[str, Any]) -> list[str]:
    """Return ``env_args`` as words of a command line.

    ``{a: 1}`` becomes ``--a 1``, and ``-a`` stays ``-a``. True gives the name alone, false and null give
    nothing, and a list gives one word for each item. Raises UsageError for a mapping.
    """
    words = []
    for name, value in env_args.items():
        if isinstance(value, Mapping):
            raise UsageError(
                f"the argument {name} of the Unity build is a mapping",
                where="base_config.env_args",
                why="a command line holds only words",
                fix="pass each of its entries under its own name",
            )
        if value is None or value is False:
            continue
        words.append(name if name.startswith("-") else f"--{name}")
        if value is not True:
            words += [str(item) for item in value] if isinstance(value, list | tuple) else [str(value)]
    return words


def find_build(build_path: BuildPath, folder: Path | None) -> Path:
    """Return the executable for this system; a relative path is tried in the task's, then the current folder.

    The extension may be missing, and on macOS the ``.app`` is enough.
    Raises UsageError if there is no path for this system, and EnvError if it leads to no executable.
    """
    path = getattr(build_path, sys.platform, "")
    where = f"base_config.unity_args.build_path.{sys.platform}"
    if path in ("", f"path_{sys.platform}"):
        raise UsageError(
            "there is no Unity build for this system",
            where=where,
            why="the key is not set" if hasattr(build_path, sys.platform) else f"{sys.platform} has no key",
            fix="set it to the path of the executable, or use --editor to train in the Unity Editor",
        )
    places = dict.fromkeys([*([folder / path] if folder else []), Path(path).absolute()])
    file = next((file for place in places for file in _variants(place) if file.exists()), None)
    if file is None:
        raise EnvError(
            f"there is no Unity build at {path}",
            where=where,
            why="no such file: " + ", ".join(str(place.absolute()) for place in places),
            fix="build the scene for this system and put it there, or correct the path",
        )
    return _executable(file.absolute(), where)


def _variants(path: Path) -> Iterator[Path]:
    """Yield possible files for a path on this system, the likeliest first."""
    if sys.platform == "darwin":
        app = path if path.suffix == ".app" else path.with_name(f"{path.name}.app")
        yield app / "Contents" / "MacOS" / app.stem
        yield from sorted((app / "Contents" / "MacOS").glob("*"))
    endings = {"linux": (".x86_64", ".x86"), "win32": (".exe",)}.get(sys.platform, ())
    files = [path.with_name(path.name + ending) for ending in endings]
    yield from (path, *files) if path.is_file() else (*files, path)


def _executable(file: Path, where: str) -> Path:
    """Return a file. Raises EnvError if it is a folder or not executable."""
    if file.is_dir() or not os.access(file, os.X_OK):
        raise EnvError(
            f"{file} is not an executable file",
            where=where,
            why="it is a folder" if file.is_dir() else "copying or unpacking has lost its permission",
            fix=f"set it to the player itself, or chmod +x {shlex.quote(str(file))}",
        )
    return file


def _end_of(path: Path) -> str:
    """Return the last lines of a file; empty without one."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _LOG_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    return "\n".join(line for line in lines[-_LOG_LINES:] if line.strip())
