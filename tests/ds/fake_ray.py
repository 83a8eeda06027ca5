"""As much of Ray as the cluster uses, in this process: hosts run real processes, nodes can be lost."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any


class TaskError(Exception):
    """What was called has raised."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


class ActorError(Exception):
    """The actor is gone."""


class UnavailableError(ActorError):
    """The actor does not answer now."""


class Handle:
    """An actor; its calls are made at once."""

    def __init__(self, ray: FakeRay, target: Any) -> None:
        self._ray, self._target, self._dead = ray, target, False

    def __getattr__(self, name: str) -> SimpleNamespace:
        return SimpleNamespace(remote=lambda *arguments: self._call(name, *arguments))

    def _call(self, name: str, *arguments: Any) -> Callable[[], Any]:
        if self._dead:
            return _raising(ActorError("dead"))
        if name == "where":
            return lambda: (self._ray.address, f"node of {self._ray.address}")
        try:
            answer = getattr(self._target, name)(*arguments)
        except OSError as error:
            return _raising(TaskError(error))
        return lambda: answer

    def kill(self) -> None:
        """As if the process of the actor had died, and with it its child."""
        if not self._dead and hasattr(self._target, "signal"):
            self._target.signal(9)
        self._dead = True


class FakeRay:
    """The module. address: of the node where the next actor is placed; dies: each new host."""

    exceptions = SimpleNamespace(
        RayTaskError=TaskError, RayActorError=ActorError, ActorUnavailableError=UnavailableError
    )
    util = SimpleNamespace(
        scheduling_strategies=SimpleNamespace(NodeAffinitySchedulingStrategy=lambda node, soft: (node, soft))
    )

    def __init__(self, gpus: int = 0) -> None:
        self.address = "127.0.0.1"
        self.placed: list[tuple[Handle, dict[str, Any]]] = []
        self._gpus = gpus
        self.dies = False

    def get_runtime_context(self) -> SimpleNamespace:
        return SimpleNamespace(get_node_id=lambda: "this node")

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": 4.0, "GPU": float(self._gpus)}

    def remote(self, kind: type) -> SimpleNamespace:
        def options(**chosen: Any) -> SimpleNamespace:
            def place(*arguments: Any) -> Handle:
                handle = Handle(self, kind(*arguments))
                self.placed.append((handle, chosen))
                if self.dies and "name" not in chosen:
                    handle.kill()
                return handle

            return SimpleNamespace(remote=place)

        return SimpleNamespace(options=options)

    def wait(self, refs: list[Any], timeout: float) -> tuple[list[Any], list[Any]]:
        return refs, []

    def get(self, ref: Callable[[], Any]) -> Any:
        return ref()

    def kill(self, handle: Handle) -> None:
        handle.kill()


def _raising(error: Exception) -> Callable[[], Any]:
    def get() -> Any:
        raise error

    return get
