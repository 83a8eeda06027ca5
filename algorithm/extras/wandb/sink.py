"""Logging of a run to W&B (Weights & Biases): rows are sent at once, or kept for ``wandb sync``."""

from __future__ import annotations

import importlib
import logging
import math
import os
import re
import secrets
import shlex
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from algorithm.config.loader import LoadedConfig, plain_config
from algorithm.core.console import Console
from algorithm.core.extras import needs
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

_LATER = "the run continues without it; --resume tries again, and sends the missing rows"
_ID = re.compile("[0-9a-f]{16}")


def _mode(config: WandbConfig) -> str:
    """Return the mode: that of the package's environment variable, else the configuration's."""
    return os.environ.get("WANDB_MODE") or config.mode


def require_wandb(config: WandbConfig) -> None:
    """Raise UsageError where rows are to be sent and the package is not installed."""
    if _mode(config) == "disabled":
        return
    with needs("wandb", "W&B", where=f"wandb_config.project: {config.project}"):
        _package()


def open_wandb(loaded: LoadedConfig, run: RunDir, console: Console) -> WandbSink | None:
    """Return the sink for the rows of a run; None where W&B's environment variable disables it."""
    if _mode(loaded.config.wandb_config) == "disabled":
        console.message("W&B: off, by WANDB_MODE")
        return None
    settings = {k: v for k, v in plain_config(loaded).items() if k != "net_config"}  # addresses stay here
    return WandbSink(loaded.config.wandb_config, run, settings, console)


class WandbSink:
    """Sink that writes the rows of a run to one run of W&B, whose step is environment steps.

    A start reads the last step from the server: rows up to it are not sent again, and later ones, missing
    after a kill or a failure, are sent. Offline, each start writes all rows so far into a folder of its own.
    A failure costs one warning; the training continues without W&B until its next start.

    settings: configuration to show
    """

    def __init__(
        self, config: WandbConfig, run: RunDir, settings: Mapping[str, object], console: Console
    ) -> None:
        self._config, self._mode = config, _mode(config)
        self._folder, self._settings, self._console = run, settings, console
        self._sync = f"wandb sync {shlex.quote(str(run.wandb))}"
        self._id = secrets.token_hex(8)  # 16 characters: `_ID`
        self._last = -1
        self._run: Any = None

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
            film = video_path(self._folder.videos, step)
            if film.is_file():
                values["eval/video"] = _package().Video(str(film))
            self._run.log(values, step=step, commit=True)
        except Exception as error:
            self._give_up("W&B no longer accepts rows", error, _LATER)
        else:
            self._last = step

    def state(self) -> dict[str, object]:
        """Return the state with which a sink continues the same run of W&B."""
        return {"id": self._id, "project": self._config.project, "entity": self._config.entity}

    def close(self) -> None:
        """Send the plots, and wait until all is sent, for about `END_S` at most."""
        if self._run is None:
            return
        try:
            for picture in sorted(self._folder.plots.glob("*.png")):
                self._run.summary[f"plots/{picture.stem}"] = _package().Image(str(picture))
            self._run.finish()
        except Exception as error:
            self._give_up("W&B has not received everything", error, f"later: {self._sync}/run-*")
        else:
            self._end()

    def _begin(self) -> None:
        """Start the package's service and the run. Raises any Exception."""
        # The package would send its own errors home, with stacks of calls; a value that is set counts.
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        wandb, config, online = _package(), self._config, self._mode in ("online", "run", "shared")
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
            name=self._folder.name,
            config=dict(self._settings),
            allow_val_change=True,
            resume="allow" if online else None,
            reinit="create_new",
            dir=self._folder.wandb.parent,
            settings=settings,
        )
        self._last = self._run.starting_step - 1
        place = self._run.url if online else f"offline · later: {self._sync}/offline-run-*"
        self._console.message(f"W&B: {place}")

    def _give_up(self, what: str, error: Exception, fix: str) -> None:
        """Warn of a failure, and end W&B for this start."""
        why = " ".join(str(error).split()) or type(error).__name__
        self._console.warn(f"{what} · {why} · {fix}")
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
