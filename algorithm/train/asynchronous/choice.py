"""Which runtime a training has: of one process, of several that train, or of none that steps."""

from __future__ import annotations

from algorithm.config.loader import LoadedConfig
from algorithm.core.errors import UsageError
from algorithm.train.asynchronous.runtime import AsyncRuntime, num_processes
from algorithm.train.runtime import OfflineRuntime, Runtime, is_offline


def chosen_runtime(loaded: LoadedConfig, runtime: type[Runtime], *, greedy: bool) -> type[Runtime]:
    """Return the runtime: another one than that of one process, where several train or nothing is stepped.

    greedy: agents act without sampling
    """
    if is_offline(loaded):
        if runtime.remote:
            raise UsageError(
                "actors step environments, and offline none is stepped",
                where="demonstrations.offline",
                why="a learner's updates follow the steps of its actors",
                fix="train without a learner and actors",
            )
        return OfflineRuntime
    if runtime.remote or num_processes(loaded) == 1:
        return runtime
    if greedy:
        raise UsageError(
            "--disable_sample is for one process",
            why="the processes that train take samples of the policy",
            fix="leave it out, or set num_processes: 1",
        )
    return AsyncRuntime
