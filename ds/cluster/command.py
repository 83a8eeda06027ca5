"""``python main_ds.py ENV cluster``: train on a Ray cluster, or change a running one's number of actors."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime

from algorithm.errors import UsageError
from algorithm.run.signals import StopRequest
from ds.cluster.cluster import Cluster
from ds.cluster.connect import gcs_address, join_ray, start_ray
from ds.cluster.plan import Plan
from ds.cluster.policy import RestartRule
from ds.cluster.wish import NAMESPACE, wish_name


def add_cluster_flags(parser: argparse._ActionsContainer) -> None:
    """The flags of the role alone."""
    parser.add_argument("--num_actors", type=_count, metavar="N", help="cluster: how many actors; default 1")
    parser.add_argument(
        "--ray",
        metavar="ADDRESS",
        help="cluster: HOST:PORT of a Ray cluster, or auto; default: start Ray on this machine",
    )
    parser.add_argument(
        "--scale", type=_count, metavar="M", help="cluster: let the running one of -n have M actors, and exit"
    )
    parser.add_argument(
        "--learner_cpus",
        type=_share,
        default=1.0,
        metavar="X",
        help="cluster: CPUs of the learner, with --ray; default 1",
    )
    parser.add_argument(
        "--learner_gpus",
        type=_share,
        metavar="X",
        help="cluster: GPUs of the learner; default: one where the cluster has one",
    )
    parser.add_argument(
        "--actor_cpus",
        type=_share,
        default=1.0,
        metavar="X",
        help="cluster: CPUs of an actor, with --ray, also a fraction; default 1",
    )


def train_on_cluster(plan: Plan, address: str | None, *, rule: RestartRule | None = None) -> int:
    """Start or join Ray and train until the learner ends; the exit code.

    address: ``HOST:PORT`` or ``auto``; None starts Ray on this machine, on the loopback.
    Raises UserError where Ray is not there.
    """
    _say("starting Ray on this machine" if address is None else f"joining the Ray cluster at {address}")
    if address is None:
        # On one machine there is nothing to place, and any number of actors may share it.
        plan = replace(plan, learner_cpus=0.0, actor_cpus=0.0)
    ray = start_ray() if address is None else join_ray(address)
    try:
        with StopRequest() as stop:  # after Ray, which has a handler of its own
            at = gcs_address(ray)
            _say(f"Ray is at {at}; to have M actors: {_scale_command(plan, at)}")
            return Cluster(ray, plan, say=_say, rule=rule or RestartRule()).run(stop)
    finally:
        ray.shutdown()


def scale_cluster(label: str, name: str, actors: int, address: str | None) -> int:
    """Let a running cluster have another number of actors; the exit code.

    Raises UserError where Ray or the cluster is not there.
    """
    ray = join_ray(address or "auto")
    try:
        try:
            wish = ray.get_actor(wish_name(label, name), namespace=NAMESPACE)
        except ValueError:
            raise _no_such(ray, label, name, address) from None
        before = ray.get(wish.set.remote(actors), timeout=30)
    finally:
        ray.shutdown()
    print(f"{label}, {name}: {actors} actors from now on, {before} before")
    return 0


def _no_such(ray: object, label: str, name: str, address: str | None) -> UsageError:
    list_named: Callable[..., Sequence[dict[str, str]]] = ray.util.list_named_actors  # type: ignore[attr-defined]
    known = [
        entry["name"].removeprefix("wish/")
        for entry in list_named(all_namespaces=True)
        if entry["namespace"] == NAMESPACE and entry["name"].startswith("wish/")
    ]
    return UsageError(
        f"no cluster trains {label} under the name {name!r}",
        where=f"--ray {address or 'auto'}",
        why=f"running there: {', '.join(sorted(known)) or 'none'}",
        fix="give its ENV and -n, and the --ray that it printed at its start",
    )


def _scale_command(plan: Plan, address: str) -> str:
    return f"python main_ds.py {plan.label} cluster -n {plan.name} --scale M --ray {address}"


def _say(text: str) -> None:
    stamp = datetime.now().strftime("%H:%M:%S")
    try:
        for line in text.splitlines():
            print(f"{stamp}  {line}", flush=True)
    except BrokenPipeError:  # nobody reads any more; the training goes on
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number ≥ 1")
    return int(text)


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e6 or (value > 1 and not value.is_integer()):
        raise argparse.ArgumentTypeError(f"{text} is neither a fraction below 1 nor a whole number")
    return value
