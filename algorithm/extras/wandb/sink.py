"""Logging of a run to W&B (Weights & Biases): rows are sent at once, or kept for ``wandb sync``."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import math
import os
import re
import secrets
import shlex
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

from algorithm.config.loader import LoadedConfig, plain_config
from algorithm.core.console import Console
from algorithm.core.errors import UsageError
from algorithm.core.extras import install_command
from algorithm.keys.checkpoints import WandbConfig
from algorithm.run.evaluation.video import video_path
from algorithm.store.logs.rows import Row
from algorithm.store.rundir import RunDir

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
"""Settings of the package: it sends no code, git state, command line, console, packages or machine data."""

_VARIABLE = "WANDB_MODE"
_MODES = {
    **{mode: mode for mode in ("online", "offline", "disabled")},
    **{"run": "online", "shared": "online", "dryrun": "offline"},
}
"""Value of the variable, current or old -> mode."""

_LATER = "the run continues without it; --resume tries again, and sends the missing rows"
_ID = re.compile("[0-9a-f]{16}")


def chosen_mode(config: WandbConfig) -> str:
    """Return ``online``, ``offline`` or ``disabled``: by W&B's environment variable, else the configuration.

    Raises UsageError for another value of the variable.
    """
    value = os.environ.get(_VARIABLE, "")
    mode = _MODES.get(value.lower())
    if value and mode is None:
        raise UsageError(
            f"{_VARIABLE} has a value unknown to W&B",
            where=f"{_VARIABLE}={value:.40}",
            fix=f"set it to {', '.join(_MODES)}, or unset it",
        )
    return mode or config.mode


def require_wandb(config: WandbConfig) -> None:
    """Raise UsageError if rows are to be sent and the package is not installed."""
    if chosen_mode(config) == "disabled":
        return
    spec = importlib.util.find_spec("wandb")
    if spec is not None and spec.origin is not None:  # None for a plain folder of that name
        return
    raise UsageError(
        "the package of W&B is not installed",
        where=f"wandb_config.project: {config.project}",
        why="there is no module wandb",
        fix=f"{install_command('wandb')}\nor train without W&B: -o wandb_config.project=null",
    )


def open_wandb(loaded: LoadedConfig, run: RunDir, console: Console) -> WandbSink | None:
    """Return the sink for the rows of a run; None if W&B's environment variable disables it."""
    config = loaded.config.wandb_config
    if chosen_mode(config) == "disabled":
        console.message("W&B: off, by WANDB_MODE")
        return None
    return WandbSink(
        config,
        folder=run.wandb,
        name=run.name,
        settings={k: v for k, v in plain_config(loaded).items() if k != "net_config"},  # addresses stay here
        film=partial(video_path, run.videos),
        plots=run.plots,
        inform=console.message,
        warn=console.warn,
    )


class WandbSink:
    """Sink that writes the rows of a run to one run of W&B, whose step is environment steps.

    A start reads the last step from the server: rows up to it are not sent again, and later ones, missing
    after a kill or a failure, are sent. Offline, each start writes all rows so far into a folder of its own.
    A failure costs one warning; the training continues without W&B until its next start.

    folder:   of W&B's own files, named ``wandb``
    name:     of the run
    settings: configuration to show
    film:     returns the path of a step's video, which need not exist
    plots:    folder of pictures
    inform, warn: called with lines for the console
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
        inform: Callable[[str], None],
        warn: Callable[[str], None],
    ) -> None:
        self._config, self._mode = config, chosen_mode(config)
        self._folder = folder
        self._name = name
        self._settings = settings
        self._film = film
        self._plots = plots
        self._inform = inform
        self._warn = warn
        self._sync = f"wandb sync {shlex.quote(str(folder))}"
        self._id = secrets.token_hex(8)  # 16 characters: `_ID`
        self._last = -1
        self._run: Any = None
        self._complaints: list[str] = []  # lines of the package; any thread may add one
        self._is_warned = False

    def start(self, state: Mapping[str, Any] | None, rows: Iterable[tuple[int, Row]]) -> None:
        """Start a run of W&B, or continue that of ``state`` in the same project; send missing ``rows``."""
        place = {"project": self._config.project, "entity": self._config.entity}
        if state is not None and place.items() <= state.items():
            if not _ID.fullmatch(str(state["id"])):  # it becomes part of a path
                raise ValueError(f"{state['id']!r} is not a W&B run id")
            self._id = str(state["id"])
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
            self._give_up("W&B no longer accepts rows", error, _LATER)
        else:
            self._last = step
            self._warn_of_complaint()

    def state(self) -> dict[str, object]:
        """Return the state with which a sink continues the same run of W&B."""
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
            self._give_up("W&B has not received everything", error, f"later: {self._sync}/run-*")
        else:
            self._warn_of_complaint()
            self._end()

    def _begin(self) -> None:
        """Start the package's service and the run. Raises any Exception."""
        # The package would send its own errors home, with stacks of calls; a value that is set counts.
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        wandb, config, online = _package(), self._config, self._mode == "online"
        settings = wandb.Settings(
            **QUIET, init_timeout=START_S, finish_timeout=END_S, finish_timeout_raises=True
        )
        wandb.setup(settings)
        if online and not wandb.login(prompt=False, verify=False):  # otherwise the start would ask a terminal
            raise LookupError("no API key: run `wandb login`, or set WANDB_API_KEY")
        self._run = wandb.init(
            project=config.project,
            entity=config.entity,
            mode=self._mode,
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
        printer = SimpleNamespace(warning=self._complain, error=self._complain, info=lambda line: None)
        wandb.termsetup(settings, printer)  # an info asks for nothing, such as of a request tried again
        self._last = self._run.starting_step - 1
        place = self._run.url if online else f"offline · later: {self._sync}/offline-run-*"
        self._inform(f"W&B: {place}")

    def _complain(self, line: str) -> None:
        self._complaints.append(" ".join(line.replace("wandb: ", "").replace("WARNING ", "").split()))

    def _warn_of_complaint(self) -> None:
        """Warn of the first complaint of the package, once in a run."""
        if self._complaints and not self._is_warned:
            self._is_warned = True
            self._warn(f"W&B: {self._complaints[0]} · the run continues, and its own files have every row")

    def _give_up(self, what: str, error: Exception, fix: str) -> None:
        """Warn of a failure, and end W&B for this start."""
        why = " ".join(str(error).split()) or type(error).__name__
        self._warn(f"{what} · {why} · {fix}")
        self._end()

    def _end(self) -> None:
        """End the package's service process."""
        self._run = None
        try:
            _package().teardown()
        except Exception as error:  # it ends with this process at the latest
            logging.getLogger(__name__).debug("W&B's service has not ended: %s", error)


def _package() -> Any:  # noqa: ANN401 - a module that need not be installed
    """Import the package, which takes a second, when it is needed."""
    return importlib.import_module("wandb")
