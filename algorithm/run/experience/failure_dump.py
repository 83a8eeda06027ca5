"""Dumps of episodes with a number that is not finite, sufficient to replay them.

``main.py ENV --check --from FILE`` replays a dump (``extras/check``). The file also holds the actions in the
environment's own units, for the simulator's own tools.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from algorithm.config.schema import Config
from algorithm.core.errors import StorageError
from algorithm.core.program import program
from algorithm.core.reading import read_json
from algorithm.env.base import Trace
from algorithm.env.env_id import resolve_env_id
from algorithm.env.wrappers import Wrapper, resolve_wrappers
from algorithm.store.files import write_text

LIMIT = 10
"""Maximum number of files per run."""


class FailureDump(BaseModel):
    """The environment, the seed and the actions of an episode, and the number that ended it."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    version: Literal[1] = 1
    what: str  # reward, observation 'name'[2]
    value: str  # nan, inf, -inf
    behaviour: str
    agent: int
    environment_step: int  # of the run
    episode_step: int  # 0: the episode's first observation
    env_type: str
    env_name: str
    env_args: dict[str, Any] | None
    wrappers: list[Wrapper]
    reset_config: dict[str, Any] | None
    environment_parameters: dict[str, Any] = Field(default_factory=dict)  # of this episode
    copy_index: int
    episode: int
    seed: int
    actions: list[list[float]]  # flat, in [-1, 1]
    env_actions: list[Any]  # the same in the environment's own units

    @classmethod
    def read(cls, path: Path) -> FailureDump:
        """Read a dump. Raises StorageError for any other file."""
        try:
            return cls.model_validate(read_json(path))
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"])) or "its JSON"
            why = f"{place} is missing or not what a run writes there"
            raise StorageError("this is not a failure dump of a run", where=path, why=why) from error


class FailureDumps:
    """Writer of the dumps of a run, at most ``LIMIT``.

    folder: is made with the first dump
    env:    the task as the command line names it
    task:   folder of the task, which may hold its environment
    purpose: of the environments whose episodes are dumped
    """

    def __init__(
        self,
        folder: Path,
        config: Config,
        *,
        env: str,
        task: Path | None = None,
        purpose: Literal["train", "evaluate"] = "train",
    ) -> None:
        self._folder, self._config, self._env, self._task = folder, config, env, task
        self._wrappers = config.wrappers_for(purpose)

    def record(
        self,
        trace: Callable[[], Trace | None],
        *,
        what: str,
        value: str,
        behaviour: str,
        agent: int,
        episode_step: int,
        environment_step: int,
    ) -> str:
        """Write a dump; return the command that replays it, or the reason why there is none."""
        if len(list(self._folder.glob("non_finite_*.json"))) >= LIMIT:
            return f"no dump: there are {LIMIT} in {_shown(self._folder)}"
        found = trace()
        if found is None and not self._config.base_config.kind.repeats:
            return f"no dump: environments of {self._config.base_config.env_type} cannot repeat an episode"
        if found is None:
            return "no dump: the episode is unknown with this environment (base_config.workers: 1 records it)"
        seed, episode, length = found.seed, found.episode, len(found.actions)
        values = found.parameters
        if not episode_step and found.next_seed is not None:  # it is the next episode's first observation
            seed, episode, length = found.next_seed, found.episode + 1, 0
            values = found.next_parameters
        base = self._config.base_config
        dump = FailureDump(
            what=what,
            value=value,
            behaviour=behaviour,
            agent=agent,
            environment_step=environment_step,
            episode_step=episode_step,
            env_type=base.env_type,
            env_name=resolve_env_id(base.env_name, self._task),
            env_args=base.env_args,
            wrappers=list(resolve_wrappers(self._wrappers, self._task)),
            reset_config=self._config.reset_config,
            environment_parameters=self._spelt(values),
            copy_index=found.env_index,
            episode=episode,
            seed=seed,
            actions=found.actions[:length].tolist(),
            env_actions=found.env_actions[:length],
        )
        try:
            path = self._write(dump)
        except StorageError as error:
            return f"no dump: {error.line}"
        command = shlex.join([*program(), self._env, "--check", "--from", str(path)])
        return f"{command}    (replays it)"

    def _spelt(self, values: Mapping[str, float]) -> dict[str, Any]:
        """Return values as ``environment_parameters`` spells them."""
        targets = {name: one.set for name, one in self._config.parameters.items()}
        return {
            name: value if targets[name] is None else {"value": value, "set": targets[name]}
            for name, value in values.items()
        }

    def _write(self, dump: FailureDump) -> Path:
        try:
            self._folder.mkdir(exist_ok=True)
        except OSError as error:
            raise StorageError.of(error, what="a folder cannot be made", where=self._folder) from error
        name, path = f"non_finite_{dump.environment_step}", self._folder
        for more in ("", *(f"_{i}" for i in range(2, 2 + LIMIT))):
            path = self._folder / f"{name}{more}.json"
            if not path.exists():
                break
        write_text(path, dump.model_dump_json(indent=2) + "\n")
        return _shown(path)


def _shown(path: Path) -> Path:
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path
