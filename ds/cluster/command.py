"""``python main_ds.py ENV cluster``: train on a Ray cluster."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from algorithm.app.cli.ds import DistributedOptions
from algorithm.app.command import show_notices
from algorithm.config.locate import find_env
from algorithm.core.errors import UsageError, UserError
from algorithm.core.extras import needs
from algorithm.run.signals import StopRequest
from ds.cluster.group import LearnerGroup
from ds.cluster.plan import PROJECT, ClusterPlan, plan_from_args
from ds.cluster.process import TICK_S, StatusLog, log
from ds.net.security import is_loopback

_ANSWER_S = 5.0


def cluster(options: DistributedOptions) -> int:
    """Run the role ``cluster``; return its exit code. Raises ConfigError and other UserErrors."""
    show_notices(options.train)
    plan = plan_from_args(options, find_env(options.train.env))
    with connected(options.cluster.ray) as (ray, stop):
        return asyncio.run(_train(ray, plan, stop))


async def _train(ray: ModuleType, plan: ClusterPlan, stop: StopRequest) -> int:
    """Train according to a plan until the learner ends, or ``stop`` is set; return the exit code."""
    group, status = LearnerGroup(ray, plan), StatusLog()
    group.start()
    while (ended := group.over()) is None and not stop:
        status.show(lambda: _status(group))
        await asyncio.sleep(TICK_S)
    if ended is None:
        log(stop.text)
    elif ended.code == 0:
        log(f"the training is over; its run is {plan.run} on {ended.node}")
    else:
        log(f"error: {ended.explain_end()}")
    code = None if ended is None else ended.code
    await group.end()
    if code is None:
        log("everything has stopped")
        code = stop.exit_code
    return code


def _status(group: LearnerGroup) -> str:
    """Return a line with the number of actors that run, the states of all, and the restarts."""
    states = Counter(actor.state for actor in group.actors)
    waiting = [f"{count} {state}" for state, count in states.most_common() if state != "running"]
    restarts = group.learner.restarts + sum(actor.restarts for actor in group.actors)
    runs = f"{states['running']} of {len(group.actors)} actors run"
    return " · ".join([runs, *waiting, f"learner: {group.learner.state}", f"{restarts} restarts"])


@contextmanager
def connected(address: str | None) -> Iterator[tuple[ModuleType, StopRequest]]:
    """Start or join Ray for the block, with the request to stop. address: see :func:`init_ray`."""
    log("starting Ray on this machine" if address is None else f"joining the Ray cluster at {address}")
    ray = init_ray(address)
    try:
        with StopRequest() as stop:  # after Ray, which has a handler of its own
            yield ray, stop
    finally:
        ray.shutdown()


class ClusterAway(UserError):  # noqa: N818 - what happened
    """No Ray cluster answers, or it refuses this command."""

    exit_code = 3


def init_ray(address: str | None) -> ModuleType:
    """Start Ray on this machine, which ends with this process, or join a cluster; return the module.

    address: ``HOST:PORT``, or ``auto`` for the cluster of this machine; None starts Ray, on the loopback
    A Ray that is started counts one CPU, since it starts a process for each of them in advance: its actors
    must need none. Raises UsageError without the package, and for an address that is none; ClusterAway where
    no cluster answers or accepts it.
    """
    if address is not None:
        _check_answers(address)
    if address is None or is_loopback(address.rpartition(":")[0].strip("[]")):
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # Ray's only switch to stay on the loopback
    if address is not None and _has_token():
        os.environ.setdefault("RAY_AUTH_MODE", "token")
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    with needs("ray", "the role cluster or evolver"):
        import ray
    try:
        ray.init(
            address or "local",  # whatever else runs on this machine, and whatever RAY_ADDRESS is
            log_to_driver=False,
            logging_level=logging.ERROR,
            # Workers import what they run from here, so that no code is sent to them.
            job_config=ray.job_config.JobConfig(code_search_path=[str(PROJECT)]),
            num_cpus=1 if address is None else None,
            include_dashboard=False if address is None else None,
        )
    except (ConnectionError, RuntimeError, ValueError) as error:
        if address is None:
            raise
        cause = str(error.__cause__ or error).strip().splitlines()[-1]
        raise ClusterAway(
            "the Ray cluster refuses this command",
            where=f"--ray {address}",
            why=cause,
            fix="the versions of Python and Ray must be those of the cluster, and so must be its token: "
            "~/.ray/auth_token or the variable RAY_AUTH_TOKEN",
        ) from error
    return ray


def _check_answers(address: str) -> None:
    """Raise UsageError or ClusterAway at once; Ray itself would wait for minutes."""
    if address == "auto":
        return
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit() or "://" in address:
        raise UsageError(
            f"{address!r} is not an address of a Ray cluster",
            where="--ray",
            why="it must be HOST:PORT as `ray start --head` printed it, or auto on a machine of the cluster",
            fix="run this command on a node of the cluster: --ray auto",
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_ANSWER_S).close()
    except (OSError, OverflowError) as error:
        raise ClusterAway(
            "no Ray cluster answers",
            where=f"--ray {address}",
            why=str(error),
            fix=f"start one: ray start --head --port {port}; without --ray one is started on this machine",
        ) from error


def _has_token() -> bool:
    names = ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")
    return any(os.environ.get(name) for name in names) or Path("~/.ray/auth_token").expanduser().is_file()
