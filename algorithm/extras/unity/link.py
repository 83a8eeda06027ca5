"""The connection to a Unity player: a gRPC server for one client, in which every wait is bounded.

It replaces the package's communicator, which listens on every interface, gives two trainings the same port,
and waits for ever if a player ends during the handshake.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, Literal, TypeVar

from typing_extensions import override

from algorithm.core.errors import UsageError
from algorithm.core.system.ports import port_error, refusal
from algorithm.env.pool.watchdog import ActiveTime
from algorithm.extras.unity.package import load

Listen = Literal["loopback", "all"]

_LOGGER = logging.getLogger(__name__)
_POLL_S = 0.1  # between two checks of the player's process
_HANDLER_POLL_S = 1.0  # between two checks whether a waiting call still needs an answer
_PORTS = 1000  # tried from the first one on
_MESSAGE_BYTES = 2**30  # gRPC's own limit is 4 MB, about a hundred cameras of 84 × 84
_OK, _GOODBYE = 200, 400  # status of a message

_used_ports: set[int] = set()
_port_lock = threading.Lock()

_R = TypeVar("_R")


class LinkError(Exception):
    """Error of an exchange with a player.

    kind: ``ended``: the process has ended, ``hangs``: no answer in time, ``goodbye``: it has ended properly,
          ``lost``: the connection is lost, ``garbled``: the message is invalid, ``version``: the protocol has
          another version
    """

    def __init__(
        self, kind: Literal["ended", "hangs", "goodbye", "lost", "garbled", "version"], why: str
    ) -> None:
        super().__init__(why)
        self.kind, self.why = kind, why


class PlayerLink:
    """Server for one player, with the interface of the package's ``Communicator``.

    port:    first port to try; with ``fixed`` the only one, unless another player of this process has it
    listen:  ``loopback`` for this machine only, ``all`` for every interface; IPv4
    timeout: seconds to wait for a message, -1 for ever; time in which this process is stopped does not count
    loss:    returns an error if the player cannot answer any more, such as after the end of its process
    remark:  line on an unusual version of the player's protocol

    Raises UsageError if no port can be bound.
    """

    def __init__(
        self,
        port: int,
        *,
        fixed: bool,
        listen: Listen,
        timeout: float,
        loss: Callable[[], LinkError | None],
    ) -> None:
        load()
        from mlagents_envs.communicator_objects.unity_message_pb2 import UnityMessageProto

        self._message = UnityMessageProto
        self._goodbye: bytes = UnityMessageProto(header={"status": _GOODBYE}).SerializeToString()
        self._timeout, self._loss = timeout, loss
        self._received: queue.SimpleQueue[Any] = queue.SimpleQueue()  # messages, or a LinkError
        self._replies: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._peer = ""
        self._peer_lock = threading.Lock()
        self._closing = threading.Event()
        self._closed = False
        self.remark = ""
        self._pool = _DaemonThreads(4)  # a waiting call, a goodbye, and other clients to refuse
        self._server, self.port = self._bind(port, fixed, listen)
        self._server.start()

    @property
    def connected(self) -> bool:
        """Whether a message of the player has arrived."""
        return bool(self._peer)

    def initialize(self, inputs: Any, poll_callback: object = None) -> Any:  # noqa: ANN401 - a protobuf message
        """Return the player's first message, after the handshake. Raises LinkError."""
        output = self._receive()
        if not output.HasField("rl_initialization_output"):
            raise LinkError("garbled", "its first message is not that of a Unity player")
        theirs = output.rl_initialization_output
        ours = str(inputs.rl_initialization_input.communication_version)
        if theirs.communication_version != ours:
            version = theirs.communication_version or "without a version"
            made_with = (
                f", from com.unity.ml-agents {theirs.package_version}" if theirs.package_version else ""
            )
            self.remark = f"the player uses protocol {version}{made_with}; this program uses {ours}"
            if version.partition(".")[0] != ours.partition(".")[0]:
                raise LinkError("version", self.remark)
        self._send(inputs)
        self._receive()  # an empty message; its answer is the first reset
        return output

    def exchange(self, inputs: Any, poll_callback: object = None) -> Any:  # noqa: ANN401 - a protobuf message
        """Send the actions and return the player's next message. Raises LinkError."""
        self._send(inputs)
        return self._receive()

    def say_goodbye(self) -> None:
        """Answer the waiting call, and every later one, with the command to quit."""
        self._closing.set()
        self._replies.put(self._goodbye)

    def close(self) -> None:
        """Send the command to quit and release the port; further calls do nothing."""
        if self._closed:
            return
        self._closed = True
        self.say_goodbye()
        self._server.stop(0.5).wait()
        self._pool.shutdown()
        with _port_lock:
            _used_ports.discard(self.port)

    def _send(self, inputs: Any) -> None:  # noqa: ANN401 - a protobuf message
        """Queue the actions as the answer to the player's call."""
        message = self._message(header={"status": _OK}, unity_input=inputs)
        self._replies.put(message.SerializeToString())

    def _receive(self) -> Any:  # noqa: ANN401 - a protobuf message
        """Return the player's next message. Raises LinkError."""
        active = ActiveTime(_POLL_S)
        while True:
            try:
                received = self._received.get(timeout=_POLL_S)
                break
            except queue.Empty:
                loss = self._loss()
            if loss is not None:
                received = self._last_received(loss)
                break
            if 0 < self._timeout < active.update():
                raise LinkError("hangs", f"no message for {self._timeout:g} s")
        if isinstance(received, LinkError):
            raise received
        return received.unity_output

    def _last_received(self, loss: LinkError) -> Any:  # noqa: ANN401 - a message or a LinkError
        """Return a message sent before the end of the player, such as its goodbye, else ``loss``."""
        try:
            received = self._received.get(timeout=_POLL_S)
        except queue.Empty:
            return loss
        return loss if isinstance(received, LinkError) and received.kind == "lost" else received

    def _answer(self, request: bytes, context: Any) -> bytes:  # noqa: ANN401 - gRPC brings no types
        """Return the answer to a call, made by the thread that steps; runs in a thread of the pool."""
        import grpc
        from google.protobuf.message import DecodeError

        with self._peer_lock:
            self._peer = self._peer or context.peer()
        if context.peer() != self._peer:
            _LOGGER.warning("port %d: %s turned away, %s is connected", self.port, context.peer(), self._peer)
            context.abort(grpc.StatusCode.PERMISSION_DENIED, "another player is connected to this port")
        try:
            message = self._message.FromString(request)
        except DecodeError as error:
            self._received.put(LinkError("garbled", f"its message cannot be decoded: {error}"))
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "not a message of a Unity player")
        if message.header.status != _OK:
            self._received.put(
                LinkError("goodbye", f"it closed the connection, with status {message.header.status}")
            )
            return self._goodbye
        answered = threading.Event()
        lost = LinkError("lost", "the connection was cut")
        in_time = context.add_callback(lambda: None if answered.is_set() else self._received.put(lost))
        self._received.put(message)
        if not in_time:  # the call has ended already, so the callback is not called
            self._received.put(lost)
        reply = self._goodbye
        while context.is_active() and not self._closing.is_set():
            try:
                reply = self._replies.get(timeout=_HANDLER_POLL_S)
                answered.set()  # before the return, since the callback may run at any time
                break
            except queue.Empty:
                continue
        return reply

    def _bind(self, port: int, fixed: bool, listen: Listen) -> tuple[Any, int]:
        """Return a server and its port, the first free one. Raises UsageError."""
        host = "127.0.0.1" if listen == "loopback" else "0.0.0.0"
        for candidate in range(port, min(port + _PORTS, 65536)):
            with _port_lock:
                if candidate in _used_ports:
                    continue
                server = self._bind_server(host, candidate)
                if server is not None:
                    _used_ports.add(candidate)
                    return server, candidate
            if fixed:
                raise port_error([host], candidate)
        raise UsageError(
            "no port is free for the Unity player",
            where="base_config.unity_args.port",
            why=f"none from {port} to {candidate} can be used",
            fix="set another first port, such as 20000",
        )

    def _bind_server(self, host: str, port: int) -> Any | None:  # noqa: ANN401 - gRPC brings no types
        """Return a server bound to the port; None if the port is taken."""
        if refusal(host, port):  # gRPC would print its own lines
            return None
        import grpc

        handler = grpc.unary_unary_rpc_method_handler(self._answer)
        server = grpc.server(
            self._pool,
            handlers=[
                grpc.method_handlers_generic_handler(
                    "communicator_objects.UnityToExternalProto", {"Exchange": handler}
                )
            ],
            options=[
                ("grpc.so_reuseport", 0),
                ("grpc.max_receive_message_length", _MESSAGE_BYTES),
                ("grpc.max_send_message_length", _MESSAGE_BYTES),
            ],
        )
        try:
            server.add_insecure_port(f"{host}:{port}")
        except RuntimeError:  # another process was faster
            server.stop(None)
            return None
        return server


class _DaemonThreads(Executor):
    """Executor whose threads, unlike ThreadPoolExecutor's, do not keep the interpreter from ending."""

    def __init__(self, number: int) -> None:
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._number = number
        for _ in range(number):
            threading.Thread(target=self._run, name="unity link", daemon=True).start()

    @override
    def submit(self, fn: Callable[..., _R], /, *args: Any, **kwargs: Any) -> Future[_R]:
        future: Future[_R] = Future()

        def call() -> None:
            try:
                future.set_result(fn(*args, **kwargs))
            except BaseException as error:
                future.set_exception(error)

        self._work.put(call)
        return future

    @override
    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        for _ in range(self._number):
            self._work.put(None)

    def _run(self) -> None:
        while (call := self._work.get()) is not None:
            call()
