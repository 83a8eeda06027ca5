"""As much of Ray as the cluster uses: its actors live in this process."""

import asyncio
import multiprocessing
import os
import sys
from collections.abc import Callable, Generator
from multiprocessing import forkserver
from multiprocessing.process import BaseProcess
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

from ds.cluster import member
from ds.cluster.member import ProcessActor

# A server that has imported everything makes a new process in a moment.
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["tests.lib.preloaded", "tests.ds.preloaded"])


class Answer:
    """The answer of a call that has been made."""

    def __init__(self, value: object) -> None:
        self._value = value

    def __await__(self) -> Generator[Any, None, object]:
        yield from asyncio.sleep(0).__await__()
        return self._value


class Handle:
    """An actor, whose calls are made at once."""

    def __init__(self, actor: ProcessActor) -> None:
        self.actor = actor

    def __getattr__(self, name: str) -> SimpleNamespace:
        method = getattr(self.actor, name)
        call = SimpleNamespace(remote=lambda *arguments: Answer(method(*arguments)))
        call.options = lambda max_task_retries: call
        return call


def _spawn(function: Callable[..., None], arguments: tuple[object, ...], *, name: str) -> BaseProcess:
    process = _CONTEXT.Process(target=_fork, args=(function, arguments), name=name)
    process.start()
    return process


def _fork(function: Callable[..., None], arguments: tuple[object, ...]) -> None:
    """Its parent is the server, which it must outlive."""
    patch.object(member, "end_with_parent", os.setpgrp).start()
    os.environ["RAY_AUTH_TOKEN"] = "secret"
    function(*arguments)


class FakeRay:
    """The module."""

    exceptions = SimpleNamespace(RayTaskError=KeyError, RayActorError=KeyError)  # which nothing raises

    def __init__(self) -> None:
        forkserver.ensure_running()  # it imports what is here now, whatever the current folder is later
        self.placed: list[Handle] = []
        self._patch = patch.object(member, "spawn", _spawn)
        self._patch.start()
        self.util = SimpleNamespace(
            scheduling_strategies=SimpleNamespace(PlacementGroupSchedulingStrategy=lambda group: group),
            placement_group=lambda bundles: bundles,
            get_node_ip_address=lambda: "127.0.0.1",
        )

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": 4.0}

    def remote(self, kind: type) -> SimpleNamespace:
        def place(*arguments: Any) -> Handle:
            self.placed.append(Handle(self.member(*arguments)))
            return self.placed[-1]

        return SimpleNamespace(options=lambda max_restarts, **_: SimpleNamespace(remote=place))

    def member(self, *arguments: Any) -> ProcessActor:
        """A member on this node."""
        with patch.dict(sys.modules, {"ray": self, "__main__": ModuleType("__main__")}):  # type: ignore[dict-item]
            return ProcessActor(*arguments)

    def kill(self, handle: Handle) -> None:
        handle.actor._end_former()

    def close(self) -> None:
        """End all processes."""
        for handle in self.placed:
            self.kill(handle)
        self._patch.stop()
