"""Ray found or started, with messages for a person where that fails. It is an extra: imported here only."""

from __future__ import annotations

import ipaddress
import os
import socket
from pathlib import Path
from types import ModuleType

from algorithm.core.errors import UsageError, UserError
from algorithm.env.install_hints import install_command
from ds.cluster.target_size import NAMESPACE

PROJECT = Path(__file__).resolve().parents[2]
"""Folder of the packages, and in a checkout of ``main_ds.py``."""

_ANSWER_S = 5.0


def python_arguments(script: str, module: str) -> tuple[str, ...]:
    """Return what Python runs a program by: a checkout's script, or the module of an installed package."""
    file = PROJECT / script
    return (str(file),) if file.is_file() else ("-m", module)


class ClusterAway(UserError):  # noqa: N818 - what happened
    """No Ray cluster answers, or it refuses this command."""

    exit_code = 3


def start_ray() -> ModuleType:
    """Start a Ray of this machine only, which ends with this process. Raises UsageError without the package.

    It counts one CPU, since Ray starts a process for each of them in advance: ask it for none.
    """
    os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # Ray's only switch to stay on the loopback
    ray = _import_ray()
    # "local": whatever else runs on this machine, or RAY_ADDRESS says.
    ray.init("local", num_cpus=1, include_dashboard=False, **_options(ray))
    return ray


def join_ray(address: str) -> ModuleType:
    """Join the cluster at ``HOST:PORT``, or ``auto`` for the one of this machine.

    Raises UsageError for an address that is none, ClusterAway where no cluster answers or accepts it.
    """
    _check_answers(address)
    if _has_token():
        os.environ.setdefault("RAY_AUTH_MODE", "token")
    if _is_loopback(address):
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # the one that start_ray made
    ray = _import_ray()
    try:
        ray.init(address=address, **_options(ray))
    except (ConnectionError, RuntimeError, ValueError) as error:
        cause = str(error.__cause__ or error).strip().splitlines()[-1]
        raise ClusterAway(
            "the Ray cluster does not let this command in",
            where=f"--ray {address}",
            why=cause,
            fix="the versions of Python and Ray must be those of the cluster, and so must be its token: "
            "~/.ray/auth_token or the variable RAY_AUTH_TOKEN",
        ) from error
    return ray


def gcs_address(ray: ModuleType) -> str:
    """Return the address for another command's ``--ray``."""
    return str(ray.get_runtime_context().gcs_address)


def _import_ray() -> ModuleType:
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    try:
        import ray
    except ModuleNotFoundError as error:
        if error.name != "ray":
            raise
        raise UsageError(
            "ray is not installed",
            where="the role cluster",
            why="it is an extra of its own",
            fix=install_command("ray"),
        ) from None
    return ray


def _options(ray: ModuleType) -> dict[str, object]:
    return {
        "namespace": NAMESPACE,
        "log_to_driver": False,
        "logging_level": "ERROR",
        # Workers import what they run from here, so that no code is sent to them.
        "job_config": ray.job_config.JobConfig(code_search_path=[str(PROJECT)]),
    }


def _check_answers(address: str) -> None:
    """Raise UsageError or ClusterAway at once; Ray itself would wait for minutes."""
    if address == "auto":
        return
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit() or "://" in address:
        raise UsageError(
            f"{address!r} is no address of a Ray cluster",
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


def _is_loopback(address: str) -> bool:
    host = address.rpartition(":")[0].strip("[]")
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
