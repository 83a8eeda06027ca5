"""A process that measures one thing: ``python -m benchmarks.worker MODULE:FUNCTION JSON``.

Imports the standard library only: the peer's environment has nothing of ours. The answer is one line of
JSON; libraries print to the same place before and after it.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

WORKER = "BENCHMARK_WORKER"
"""Set in the environment of a worker; a function that is tried out runs in another's process."""

Answer = dict[str, Any]
"""Results of a worker."""


class WorkerError(Exception):
    """A process did not answer, or answered something that cannot be compared."""


class StoppedError(WorkerError):
    """A process was asked to end."""


def call(target: str, arguments: dict[str, Any]) -> Answer:
    """What a function of this package answers; ``target`` is ``MODULE:FUNCTION``."""
    module, _, function = target.partition(":")
    answer: Answer = getattr(import_module(f"benchmarks.{module}"), function)(**arguments)
    return answer


def read_answer(output: str, *, of: str) -> Answer:
    """The last JSON object in what a worker printed. Raises WorkerError, naming ``of``, where there is none.

    PyBullet writes through C's buffer: its lines come after ours, or have no line break in front of them.
    """
    for line in reversed(output.splitlines()):
        begin = line.find('{"')
        if begin >= 0:
            try:
                answer: Answer = json.JSONDecoder().raw_decode(line[begin:])[0]
            except json.JSONDecodeError:
                continue
            return answer
    raise WorkerError(f"{of} printed no answer")


def stay_on_one_core() -> None:
    """Keep all threads of a worker on one core: those of JAX take a second one whatever they are told."""
    if WORKER in os.environ and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def make_env(env_id: str, args: Mapping[str, Any] | None = None, wrappers: Sequence[Any] = ()) -> Any:
    """An environment as our configuration names it: the id, its arguments, and wrappers, the innermost first.

    A wrapper is ``{name: keyword arguments}``, a class of gymnasium.wrappers or ``module:Class``.
    """
    env = import_module("gymnasium").make(env_id, **(args or {}))
    for entry in wrappers:
        ((name, arguments),) = entry.items()
        module, _, kind = name.rpartition(":")
        env = getattr(import_module(module or "gymnasium.wrappers"), kind)(env, **(arguments or {}))
    return env


if __name__ == "__main__":
    print("\n" + json.dumps(call(sys.argv[1], json.loads(sys.argv[2]))), flush=True)
