"""``python main_ds.py ENV cluster``: train on a Ray cluster, or change a running one's number of actors."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from types import ModuleType

from algorithm.app.cli.ds import DistributedOptions
from algorithm.app.command import show_notices
from algorithm.config.locate import find_env
from algorithm.core.errors import UsageError
from algorithm.core.program import program
from algorithm.train.signals import StopRequest
from ds.cluster.cluster import Cluster
from ds.cluster.connect import gcs_address, join_ray, start_ray
from ds.cluster.plan import ClusterPlan, plan_from_args
from ds.cluster.process import RestartRule
from ds.cluster.target_size import NAMESPACE, target_size_name


def cluster(options: DistributedOptions, arguments: Sequence[str]) -> int:
    """Run the role ``cluster``; return its exit code. Raises ConfigError and other UserErrors.

    arguments: the command line, for error messages
    """
    cluster = options.cluster
    assert cluster is not None
    show_notices(options.train)
    folder = find_env(options.train.env)
    if cluster.scale is None:
        return train_on_cluster(plan_from_args(options, folder), cluster.ray)
    if options.train.name is None:
        raise UsageError(
            "whose actors?",
            where=shlex.join(arguments),
            why="several trainings may run on one cluster",
            fix="add -n NAME, as the cluster printed it at its start",
        )
    return scale_cluster(folder.label, options.train.name, cluster.scale, cluster.ray)


def train_on_cluster(plan: ClusterPlan, address: str | None, *, rule: RestartRule | None = None) -> int:
    """Start or join Ray and train until the learner ends; return the exit code.

    address: ``HOST:PORT`` or ``auto``; None starts Ray on this machine, on the loopback.
    Raises UserError where Ray is not there.
    """
    if address is None:
        # On one machine there is nothing to place, and any number of actors may share it.
        plan = replace(plan, learner_cpus=0.0, actor_cpus=0.0)
    with connected(address) as (ray, stop):
        at = gcs_address(ray)
        say(f"Ray is at {at}; to have M actors:\n{_scale_command(plan, at)}")
        return Cluster(ray, plan, say=say, rule=rule or RestartRule()).run(stop)


@contextmanager
def connected(address: str | None) -> Iterator[tuple[ModuleType, StopRequest]]:
    """Start or join Ray for the block, with the request to stop; see :func:`train_on_cluster`."""
    say("starting Ray on this machine" if address is None else f"joining the Ray cluster at {address}")
    ray = start_ray() if address is None else join_ray(address)
    try:
        with StopRequest() as stop:  # after Ray, which has a handler of its own
            yield ray, stop
    finally:
        ray.shutdown()


def scale_cluster(label: str, name: str, actors: int, address: str | None) -> int:
    """Set a running cluster's number of actors; return the exit code.

    Raises UserError where Ray or the cluster is not there.
    """
    ray = join_ray(address or "auto")
    try:
        try:
            target = ray.get_actor(target_size_name(label, name), namespace=NAMESPACE)
        except ValueError:
            raise _no_such(ray, label, name, address) from None
        before = ray.get(target.set.remote(actors), timeout=30)
    finally:
        ray.shutdown()
    print(f"{label}, {name}: {actors} actors from now on, {before} before")
    return 0


def _no_such(ray: object, label: str, name: str, address: str | None) -> UsageError:
    list_named: Callable[..., Sequence[dict[str, str]]] = ray.util.list_named_actors  # type: ignore[attr-defined]
    known = [
        entry["name"].removeprefix("target_size/")
        for entry in list_named(all_namespaces=True)
        if entry["namespace"] == NAMESPACE and entry["name"].startswith("target_size/")
    ]
    return UsageError(
        f"no cluster trains {label} under the name {name!r}",
        where=f"--ray {address or 'auto'}",
        why=f"running there: {', '.join(sorted(known)) or 'none'}",
        fix="give its ENV and -n, and the --ray that it printed at its start",
    )


def _scale_command(plan: ClusterPlan, address: str) -> str:
    words = [*program("main_ds.py"), plan.argument or plan.label, "cluster", "-n", plan.name]
    return shlex.join([*words, "--scale", "M", "--ray", address])


def say(text: str) -> None:
    """Print lines with the time of day."""
    stamp = datetime.now().strftime("%H:%M:%S")
    try:
        for line in text.splitlines():
            print(f"{stamp}  {line}", flush=True)
    except BrokenPipeError:  # no reader any more; the training goes on
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
