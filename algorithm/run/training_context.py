"""A training before its first step: the context from which it is built."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from algorithm.core.plugins import Plugin
from algorithm.core.spec import AgentSpec
from algorithm.run.context import RunContext
from algorithm.run.foreign import ForeignNetworks, networks_of
from algorithm.run.inputs import RunInputs, env_file, plugins_of
from algorithm.run.state import Start
from algorithm.store.lock import RunLock


@dataclass(kw_only=True)
class TrainingContext(RunContext):
    """A training before its first step: its inputs, and the checkpoint or networks that it begins with.

    inputs:  everything that decides the training
    lock:    lock of the run's folder
    start:   checkpoint to continue from; None for a new run
    notices: lines about things that are not restored exactly, or that a new run begins with
    """

    inputs: RunInputs
    lock: RunLock
    start: Start | None = None
    notices: list[str] = field(default_factory=list)

    @property
    def networks(self) -> Path:
        """Folder of ``nn.py``."""
        resumed = self.start is not None and not self.inputs.task_nn
        return self.inputs.run.path if resumed else self.loaded.env_dir

    @cached_property
    def foreign(self) -> ForeignNetworks | None:
        """Networks of another run to begin with, or to go on with. Raises UsageError and StorageError."""
        return networks_of(self.inputs, self.console.warn, resumed=self.start is not None)

    @cached_property
    def env_file(self) -> Path | None:
        """File of the task's own environment, if it has one."""
        return env_file(self.loaded)

    def plugins(self, specs: Mapping[str, AgentSpec]) -> Sequence[Plugin]:
        """Return the user's own parts that the training uses."""
        return plugins_of(self.loaded, specs)
