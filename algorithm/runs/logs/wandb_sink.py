"""W&B (Weights & Biases): the rows of a run, sent at once or kept for ``wandb sync``."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import math
import os
import re
import secrets
import shlex
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

from algorithm.core.errors import UsageError
from algorithm.core.reading import read_bytes
from algorithm.env.install_hints import install_command
from algorithm.runs.config import WandbConfig
from algorithm.runs.logs.sinks import MOST, Row

START_S = 30.0
"""Seconds that a start waits for the server."""

END_S = 60.0
"""Seconds that the end of a run waits for uploads."""

QUIET: Mapping[str, object] = MappingProxyType(
    {
        "silent": True,
        "console": "off",
        "save_code": False,
        "disable_code": True,
        "disable_git": True,
        "disable_job_creation": True,
        "host": "",
        "program": "",
        "x_disable_meta": True,
        "x_disable_machine_info": True,
        "x_disable_stats": True,
        "x_save_requirements": False,
        "use_dot_wandb": False,
        "symlink": False,
    }
)
"""Settings of the package: code, git, command line, console, packages and machine are nobody else's."""

_LATER = "the run goes on without it; --resume tries again, and sends what W&B lacks"
_ID = re.compile("[0-9a-f]{16}")
_BLOCK = 2**15  # bytes; the format is that of LevelDB's log
_WHOLE, _LAST = 1, 4  # kinds of its records that end a message; the others are its first and middle parts


def require_wandb(config: WandbConfig) -> None:
    """Raise UsageError if a project is named and the package is not installed."""
    if config.project is None:
        return
    found = importlib.util.find_spec("wandb")
    if found is not None and found.origin is not None:  # a mere folder of that name, as of data, has none
        return
    raise UsageError(
        "the package of W&B is not installed",
        where=f"wandb_config.project: {config.project}",
        why="there is no module wandb",
        fix=f"{install_command('wandb')}\nor train without W&B: -o wandb_config.project=null",
    )


class Upload(Protocol):
    """A destination of rows beyond this machine. What it cannot do ends no run."""

    def start(self, state: Mapping[str, Any] | None, rows: Iterable[tuple[int, Row]]) -> None:
        """Begin, or go on from ``state``. rows: all of the run so far, read only where they are needed.

        Raises ValueError and LookupError for a state in another form.
        """
        ...

    def write(self, step: int, row: Row) -> None:
        """Upload a row, unless it is there already."""
        ...

    def state(self) -> dict[str, object] | None:
        """State for :meth:`start`, as strict JSON."""
        ...

    def close(self) -> None:
        """Wait for uploads; may be called twice."""
        ...


class NoUpload:
    """An :class:`Upload` that does nothing."""

    def start(self, state: Mapping[str, Any] | None, rows: Iterable[tuple[int, Row]]) -> None:
        """Do nothing."""

    def write(self, step: int, row: Row) -> None:
        """Do nothing."""

    def state(self) -> None:
        """Return None."""

    def close(self) -> None:
        """Do nothing."""


class WandbSink:
    """Rows of a run as one run of W&B, whose step is environment steps.

    W&B is asked for the last step it has, or its files are: a row up to there is never sent again, and rows
    behind it, which a kill or a failure has kept from it, are sent by the next start. What fails costs one
    warning; the run goes on without W&B until then.

    folder: of W&B's own files, named ``wandb``; name: of the run, shown; settings: configuration to show
    film: returns the path of a step's video, which need not exist; plots: folder of pictures
    say, warn: called with lines for a person
    """

    def __init__(
        self,
        config: WandbConfig,
        *,
        folder: Path,
        name: str,
        settings: Mapping[str, object],
        film: Callable[[int], Path],
        plots: Path,
        say: Callable[[str], None],
        warn: Callable[[str], None],
    ) -> None:
        self._config, self._folder, self._name, self._settings = config, folder, name, settings
        self._film, self._plots, self._say, self._warn = film, plots, say, warn
        self._sync = f"wandb sync {shlex.quote(str(folder))}"
        self._id = secrets.token_hex(8)  # 16 characters: `_ID`
        self._last = -1
        self._run: Any = None
        self._complaint = _Complaint()

    def start(self, state: Mapping[str, Any] | None, rows: Iterable[tuple[int, Row]]) -> None:
        """Begin a run of W&B, or go on with that of ``state`` in the same project; send what it lacks."""
        place = {"project": self._config.project, "entity": self._config.entity}
        if state is not None and place.items() <= state.items():
            self._id = _checked_id(state["id"])
        try:
            self._begin()
        except Exception as error:
            self._give_up("W&B has not started", error, _LATER)
            return
        for step, row in rows:
            self.write(step, row)

    def write(self, step: int, row: Row) -> None:
        """Send the finite values of a row, and the video of its step if there is one."""
        if self._run is None or step <= self._last:
            return
        values: dict[str, object] = {name: value for name, value in row.items() if math.isfinite(value)}
        if not values:
            return
        try:
            film = self._film(step)
            if film.is_file():
                values["eval/video"] = _package().Video(str(film))
            self._run.log(values, step=step, commit=True)
        except Exception as error:
            self._give_up("W&B takes no rows any more", error, _LATER)
        else:
            self._last = step
            self._pass_on()

    def state(self) -> dict[str, object]:
        """State of a sink that goes on with the same run of W&B."""
        return {"id": self._id, "project": self._config.project, "entity": self._config.entity}

    def close(self) -> None:
        """Send the plots, and wait until all is sent, for about `END_S` at most."""
        if self._run is None:
            return
        try:
            for picture in sorted(self._plots.glob("*.png")):
                self._run.summary[f"plots/{picture.stem}"] = _package().Image(str(picture))
            self._run.finish()
        except Exception as error:
            self._give_up("W&B has not got everything", error, f"later: {self._sync}/run-*")
        else:
            self._pass_on()
            self._end()

    def _begin(self) -> None:
        """Start the package's service and the run. Raises any Exception."""
        # The package would send its own errors home, with stacks of calls; a value that is set counts.
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        wandb, config, online = _package(), self._config, self._config.mode == "online"
        settings = wandb.Settings(
            **QUIET, init_timeout=START_S, finish_timeout=END_S, finish_timeout_raises=True
        )
        wandb.setup(settings)
        if online and not wandb.login(prompt=False, verify=False):  # otherwise the start would ask a terminal
            raise LookupError("no API key: run `wandb login`, or set WANDB_API_KEY")
        before = _last_step(self._folder, self._id, "offline-run" if online else "*run")
        self._run = wandb.init(
            project=config.project,
            entity=config.entity,
            mode=config.mode,
            tags=config.tags,
            group=config.group,
            id=self._id,
            name=self._name,
            config=dict(self._settings),
            allow_val_change=True,
            resume="allow" if online else None,
            reinit="create_new",
            dir=self._folder.parent,
            settings=settings,
        )
        wandb.termsetup(settings, self._complaint)
        self._last = max(before, self._run.starting_step - 1)
        place = self._run.url if online else f"offline · later: {self._sync}/offline-run-*"
        self._say(f"W&B: {place}")

    def _pass_on(self) -> None:
        """Warn of the package's first warning."""
        if self._complaint.fresh:
            self._complaint.fresh = False
            self._warn(f"W&B: {self._complaint.text} · the run goes on, and its own files have every row")

    def _give_up(self, what: str, error: Exception, fix: str) -> None:
        """Warn, and go on without W&B."""
        why = " ".join(str(error).split()) or type(error).__name__
        self._warn(f"{what} · {why} · {fix}")
        self._end()

    def _end(self) -> None:
        """End the package's service, which is a process."""
        self._run = None
        try:
            _package().teardown()
        except Exception as error:  # it ends with this process at the latest
            logging.getLogger(__name__).debug("W&B's service has not ended: %s", error)


class _Complaint:
    """The first warning that the package would print, had it not been silenced."""

    def __init__(self) -> None:
        self.text = ""
        self.fresh = False

    def keep(self, line: str) -> None:
        """Keep a line if it is the first; the caller may be any thread."""
        if not self.text:
            self.text = " ".join(line.replace("wandb: ", "").replace("WARNING ", "").split())
            self.fresh = True

    warning = error = keep

    def info(self, line: str) -> None:
        """Drop a line that asks for nothing, such as of a request that will be tried again."""


def _checked_id(found: object) -> str:
    """Return the id of a checkpoint, which becomes part of a path. Raises ValueError for anything else."""
    if not isinstance(found, str) or not _ID.fullmatch(found):
        raise ValueError(f"{found!r} is no id of a run of W&B")
    return found


def _package() -> Any:  # noqa: ANN401 - a module that need not be installed
    """Import the package, which takes a second, when it is needed."""
    return importlib.import_module("wandb")


def _last_step(folder: Path, run_id: str, start: str) -> int:
    """Return the last step in W&B's own files of a run, −1 without one.

    start: pattern of the first part of their folders' names
    Raises OSError, ValueError and the package's own errors for a file in another form.
    """
    record_of = importlib.import_module("wandb.proto.wandb_internal_pb2").Record.FromString
    last = -1
    for file in folder.glob(f"{start}-*-{run_id}/run-{run_id}.wandb"):
        for message in _messages(read_bytes(file, MOST)):
            record = record_of(message)
            if record.WhichOneof("record_type") == "history":
                last = max(last, record.history.step.num)
    return last


def _messages(content: bytes) -> Iterator[bytes]:
    """Yield the whole messages of a ``.wandb`` file; a kill may have torn the last one.

    Raises ValueError for another kind of file.
    """
    if not content:
        return
    if not content.startswith(b":W&B"):
        raise ValueError("a file of W&B does not begin as they do")
    position, message = 7, b""
    while position + 7 <= len(content):
        left = _BLOCK - position % _BLOCK
        if left < 7:  # no head of a record fits there
            position += left
            continue
        size, kind = struct.unpack_from("<HB", content, position + 4)  # after a checksum
        position += 7
        if position + size > len(content):
            return
        message += content[position : position + size]
        position += size
        if kind in (_WHOLE, _LAST):
            yield message
            message = b""
