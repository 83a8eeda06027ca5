"""As much of Ray as the cluster uses: its actors live in this process, and nodes can be lost."""

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


class TaskError(Exception):
    """What was called has raised."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


class ActorError(Exception):
    """The actor is gone."""


class Answer:
    """The answer of a call that has been made."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._value: Any = None
        self._error: Exception | None = None
        try:
            self._value = call()
        except ActorError as error:
            self._error = error
        except Exception as error:
            self._error = TaskError(error)

    def get(self) -> Any:
        if self._error is not None:
            raise self._error
        return self._value

    def __await__(self) -> Generator[Any, None, Any]:
        yield from asyncio.sleep(0).__await__()
        return self.get()


class Handle:
    """An actor; ``options`` of a call make it wait until Ray has started the actor again."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self.actor, self.killed, self.lost = make(), False, False

    def __getattr__(self, name: str) -> SimpleNamespace:
        def call(*arguments: Any) -> Any:
            if self.killed or self.lost:
                raise ActorError("it has died")
            return getattr(self.actor, name)(*arguments)

        def again(*arguments: Any) -> Any:
            if self.lost and not self.killed:
                self.actor, self.lost = self._make(), False
            return call(*arguments)

        def remote(call: Callable[..., Any]) -> Callable[..., Answer]:
            return lambda *arguments: Answer(lambda: call(*arguments))

        return SimpleNamespace(
            remote=remote(call), options=lambda max_task_retries: SimpleNamespace(remote=remote(again))
        )

    @property
    def process(self) -> BaseProcess:
        return self.actor._process

    def lose(self) -> None:
        """As if its node had died."""
        self.lost = True
        if isinstance(self.actor, ProcessActor):
            self.actor._end_former()


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
    """The module. address: of the node where the next process is placed."""

    exceptions = SimpleNamespace(RayTaskError=TaskError, RayActorError=ActorError)

    def __init__(self, gpus: int = 0) -> None:
        forkserver.ensure_running()  # it imports what is here now, whatever the current folder is later
        self.address = "127.0.0.1"
        self.placed: list[tuple[Handle, dict[str, Any]]] = []
        self._gpus = gpus
        self._patch = patch.object(member, "spawn", _spawn)
        self._patch.start()
        strategies = SimpleNamespace(
            NodeAffinitySchedulingStrategy=lambda node, soft: (node, soft),
            PlacementGroupSchedulingStrategy=lambda group: group,
        )
        self.util = SimpleNamespace(
            scheduling_strategies=strategies,
            placement_group=lambda bundles: bundles,
            get_node_ip_address=lambda: self.address,
        )

    def get_runtime_context(self) -> SimpleNamespace:
        return SimpleNamespace(get_node_id=lambda: "this node")

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": 4.0, "GPU": float(self._gpus)}

    def remote(self, kind: type) -> SimpleNamespace:
        def options(**chosen: Any) -> SimpleNamespace:
            return SimpleNamespace(remote=lambda *arguments: self._place(kind, chosen, arguments))

        return SimpleNamespace(options=options)

    def _place(self, kind: type, options: dict[str, Any], arguments: tuple[Any, ...]) -> Handle:
        assert options["max_restarts"] == -1
        self.placed.append((Handle(lambda: self.member(*arguments)), options))
        return self.placed[-1][0]

    def member(self, *arguments: Any) -> ProcessActor:
        """A member on the present node."""
        with patch.dict(sys.modules, {"ray": self, "__main__": ModuleType("__main__")}):  # type: ignore[dict-item]
            return ProcessActor(*arguments)

    def kill(self, handle: Handle) -> None:
        handle.lose()
        handle.killed = True

    def close(self) -> None:
        """End all processes."""
        for handle, _ in self.placed:
            self.kill(handle)
        self._patch.stop()
