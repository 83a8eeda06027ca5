"""An episode that met a number that is not finite, written down so that anybody can see it again.

``python -m algorithm.run.repro FILE`` makes the environment, begins the episode with its seed, does what was
done in it and shows every number that is not finite. To look at it with the simulator's own means, the file
also has the actions in its own units (``env_actions``).
"""

from __future__ import annotations

import argparse
import logging
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from algorithm.config.schema import Config
from algorithm.env.base import Observation, StepResult, Trace
from algorithm.env.named import locate
from algorithm.env.registry import make_vec_env
from algorithm.env.wrappers import located
from algorithm.errors import StorageError, UserError
from algorithm.reading import read_json
from algorithm.runs.files import write_text

LIMIT = 10
"""Files that a run writes at most."""

_LOGGER = logging.getLogger(__name__)


class Repro(BaseModel):
    """What it takes to see the number again."""

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
    wrappers: list[dict[str, dict[str, Any] | None]]
    reset_config: dict[str, Any] | None
    copy_index: int
    episode: int
    seed: int
    actions: list[list[float]]  # flat, in [-1, 1]
    env_actions: list[Any]  # the same in the environment's own units

    @classmethod
    def read(cls, path: Path) -> Repro:
        """Raises StorageError for a file that holds none."""
        try:
            return cls.model_validate(read_json(path))
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"])) or "its JSON"
            why = f"{place} is missing or not what a run writes there"
            raise StorageError("this is no repro of a run", where=path, why=why) from error


class Repros:
    """Writes them into ``folder``, which is made with the first one, until there are ``LIMIT``.

    task: its folder, where an environment of its own lies
    """

    def __init__(self, folder: Path, config: Config, task: Path | None = None) -> None:
        self._folder, self._config, self._task = folder, config, task

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
        """Write one; returns for a person the command that shows it again, or why there is none."""
        if len(list(self._folder.glob("non_finite_*.json"))) >= LIMIT:
            return f"no repro: there are {LIMIT} in {_shown(self._folder)}"
        found = trace()
        if found is None:
            return (
                "no repro: this environment does not say which episode it was (base_config.workers: 1 does)"
            )
        seed, episode, length = found.seed, found.episode, len(found.actions)
        if not episode_step and found.next_seed is not None:  # the one that has just begun
            seed, episode, length = found.next_seed, found.episode + 1, 0
        base = self._config.base_config
        repro = Repro(
            what=what,
            value=value,
            behaviour=behaviour,
            agent=agent,
            environment_step=environment_step,
            episode_step=episode_step,
            env_type=base.env_type,
            env_name=locate(base.env_name, self._task),
            env_args=base.env_args,
            wrappers=list(located(base.wrappers, self._task)),
            reset_config=self._config.reset_config,
            copy_index=found.copy,
            episode=episode,
            seed=seed,
            actions=found.actions[:length].tolist(),
            env_actions=found.env_actions[:length],
        )
        try:
            path = self._write(repro)
        except StorageError as error:
            return f"no repro: {error.line}"
        return f"python -m algorithm.run.repro {shlex.quote(str(path))}    (shows it again)"

    def _write(self, repro: Repro) -> Path:
        try:
            self._folder.mkdir(exist_ok=True)
        except OSError as error:
            raise StorageError.of(error, what="a folder cannot be made", where=self._folder) from error
        name, path = f"non_finite_{repro.environment_step}", self._folder
        for more in ("", *(f"_{i}" for i in range(2, 2 + LIMIT))):
            path = self._folder / f"{name}{more}.json"
            if not path.exists():
                break
        write_text(path, repro.model_dump_json(indent=2) + "\n")
        return _shown(path)


def _shown(path: Path) -> Path:
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


def replay(repro: Repro, say: Callable[[str], None]) -> bool:
    """Do it all again, say what is met, and return whether it is the same number at the same step.

    Raises EnvError if the environment cannot be made or fails.
    """
    env = make_vec_env(
        repro.env_type,
        repro.env_name,
        env_args=repro.env_args,
        seed_of=lambda index, episode: repro.seed,
        options=repro.reset_config,
        wrappers=repro.wrappers,
        timeout=-1,
        restarts=0,
    )
    try:
        behaviour = next(iter(env.specs))
        found = {0: _not_finite(env.reset(episode=0)[behaviour])}
        for step, flat in enumerate(repro.actions, start=1):
            result = env.step({behaviour: np.array([flat], np.float32)})[behaviour]
            found[step] = _of_step(result)
            if result.terminated[0] or result.truncated[0]:
                break
    finally:
        env.close()
    for step, numbers in found.items():
        for what, value in numbers.items():
            action = repro.env_actions[step - 1] if step else "none"
            say(f"step {step}, after action {action}: {what} is {value}")
    return found.get(repro.episode_step, {}).get(repro.what) == repro.value


def _of_step(result: StepResult) -> dict[str, str]:
    """What an action led to, in the one environment there is."""
    ended = result.final is not None and (result.terminated[0] or result.truncated[0])
    numbers = _not_finite(result.final if ended and result.final else result)
    return ({} if np.isfinite(result.reward[0]) else {"reward": str(float(result.reward[0]))}) | numbers


def _not_finite(seen: Observation) -> dict[str, str]:
    """``observation 'name'[2]`` -> ``nan``, of every number that is not finite."""
    found = {}
    for name, value in seen.obs.items():
        if value.dtype.kind != "f":
            continue
        for place in np.argwhere(~np.isfinite(value[0])).tolist():
            found[f"observation {name!r}{place or ''}"] = str(float(value[0][tuple(place)]))
    return found


def main(arguments: list[str] | None = None) -> int:
    """The command; 0 if the number came again, 1 if not, else the exit code of the error."""
    parser = argparse.ArgumentParser(prog="python -m algorithm.run.repro", description=__doc__)
    parser.add_argument("file", type=Path, help="faults/non_finite_….json of a run")
    try:
        path = parser.parse_args(arguments).file
        repro = Repro.read(path)
        print(f"{repro.env_name}, seed {repro.seed}, {len(repro.actions)} steps")
        print(f"the run met: {repro.what} is {repro.value}, step {repro.episode_step}")
        same = replay(repro, print)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    print(
        "this is the same number"
        if same
        else "the number did not come again: the environment is not "
        "determined by its seed and its actions, or it has been changed"
    )
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
