"""As much of Ray as the cluster uses: each life of a member is a real process, and nodes can be lost."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import shutil
import sys
import tempfile
import threading
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ds.cluster.member import Board, ProcessActor

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


class UnavailableError(ActorError):
    """The actor does not answer now."""


class BoardHandle:
    """The board, which is in this process; its calls are made at once, from several threads."""

    def __init__(self, board: Board) -> None:
        self._board, self._lock, self.killed = board, threading.Lock(), False

    def __getattr__(self, name: str) -> SimpleNamespace:
        def call(*arguments: Any) -> Any:
            with self._lock:
                return getattr(self._board, name)(*arguments)

        return SimpleNamespace(remote=call)

    def kill(self, restart: bool) -> None:
        """As if its process had died; a new one knows nothing."""
        self.killed = not restart
        if restart:
            self._board = Board(1)


class Call:
    """A call of ``live``, and the process that it is made in."""

    def __init__(self, address: str, board: BoardHandle, place: tuple[Any, ...]) -> None:
        self.error: Exception | None = None
        self._connection, theirs = _CONTEXT.Pipe()
        self.process = _CONTEXT.Process(target=_live, args=(theirs, address, place))
        self.process.start()
        theirs.close()
        threading.Thread(target=self._serve, args=(board,), daemon=True).start()

    def _serve(self, board: BoardHandle) -> None:
        with contextlib.suppress(EOFError, ConnectionError):
            while True:
                message = self._connection.recv()
                if isinstance(message, Exception):
                    self.error = message
                else:
                    self._connection.send(board.report.remote(*message))


def _live(connection: Connection, address: str, place: tuple[Any, ...]) -> None:
    def report(*message: Any) -> Any:
        connection.send(message)
        return connection.recv()

    ray: Any = SimpleNamespace(get=lambda ref: ref, util=SimpleNamespace(get_node_ip_address=lambda: address))
    sys.modules["ray"] = ray
    os.environ["RAY_AUTH_TOKEN"] = "secret"
    board = SimpleNamespace(report=SimpleNamespace(remote=report))
    try:
        ProcessActor().live(board, *place)
    except OSError as error:
        connection.send(error)


class MemberHandle:
    """A member; a call of its ``live`` starts a process where the next one is to be placed."""

    def __init__(self, ray: FakeRay) -> None:
        self._ray = ray
        self._place: tuple[Any, ...] = ()
        self.calls: list[Call] = []
        self.live = SimpleNamespace(remote=self._live)

    def _live(self, board: BoardHandle, *place: Any) -> Call:
        self._place = place
        self.calls.append(Call(self._ray.address, board, place))
        return self.calls[-1]

    def kill(self, restart: bool) -> None:
        """Kill its process; without a restart nobody else removes what it leaves."""
        for call in self.calls[-1:]:
            call.process.kill()
            call.process.join()
        if not restart and self._place:
            shutil.rmtree(Path(tempfile.gettempdir(), self._place[0]), ignore_errors=True)


class FakeRay:
    """The module. address: of the node where the next process is placed."""

    exceptions = SimpleNamespace(
        RayTaskError=TaskError, RayActorError=ActorError, ActorUnavailableError=UnavailableError
    )

    def __init__(self, gpus: int = 0) -> None:
        forkserver.ensure_running()  # it imports what is here now, whatever the current folder is later
        self.address = "127.0.0.1"
        self.boards: list[BoardHandle] = []
        self.placed: list[tuple[MemberHandle, dict[str, Any]]] = []
        self._gpus = gpus
        strategies = SimpleNamespace(
            NodeAffinitySchedulingStrategy=lambda node, soft: (node, soft),
            PlacementGroupSchedulingStrategy=lambda group: group,
        )
        self.util = SimpleNamespace(scheduling_strategies=strategies, placement_group=lambda bundles: bundles)

    def get_runtime_context(self) -> SimpleNamespace:
        return SimpleNamespace(get_node_id=lambda: "this node")

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": 4.0, "GPU": float(self._gpus)}

    def remote(self, kind: type) -> SimpleNamespace:
        def options(**chosen: Any) -> SimpleNamespace:
            return SimpleNamespace(remote=lambda *arguments: self._place(kind, chosen, arguments))

        return SimpleNamespace(options=options)

    def _place(self, kind: type, options: dict[str, Any], arguments: tuple[Any, ...]) -> Any:
        assert options["max_restarts"]
        if kind is Board:
            self.boards.append(BoardHandle(Board(*arguments)))
            return self.boards[-1]
        assert not arguments
        member = MemberHandle(self)
        self.placed.append((member, options))
        return member

    def wait(self, calls: list[Call], num_returns: int, timeout: float) -> tuple[list[Call], list[Call]]:
        return [call for call in calls if not call.process.is_alive()], []

    def get(self, answer: Any) -> Any:
        if not isinstance(answer, Call):
            return answer
        if answer.error is not None:
            raise TaskError(answer.error)
        raise UnavailableError("it has died")

    def kill(self, handle: Any, no_restart: bool = True) -> None:
        handle.kill(not no_restart)

    def close(self) -> None:
        """End all processes."""
        for member, _ in self.placed:
            member.kill(restart=False)
