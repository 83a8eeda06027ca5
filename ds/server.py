"""The learner's end of the sockets: an asyncio loop in a thread of its own, and gRPC without generated code.

Every method is a stream to gRPC though it carries one message: so the token is checked before any of the
message is read, and a message that is too large is seen. For a client that is the same on the wire.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import hmac
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Protocol, TypeVar
from urllib.parse import unquote

import grpc
import grpc.aio

from ds import transport
from ds.connections import ArrivalLimit, ConnectionLimiter, NoRoom, most_connections, port_refused
from ds.errors import WireError
from ds.protocol import (
    Beat,
    Bye,
    Hello,
    Join,
    Joined,
    Receipt,
    Refused,
    TrajectoryMessage,
    WeightRequest,
    Welcome,
)
from ds.security import LearnerSecurity
from ds.wire import decode, encode, sender

CONCURRENT = 1024
"""Maximum number of concurrent calls. 170 actors with five channels and a beat stay below."""

BODY_S = 60.0
"""Seconds within which a message must arrive."""

T = TypeVar("T")
Bodies = AsyncIterator[bytes]
OnPeerFault = Callable[[str, str], None]


class MessageHandler(Protocol):
    """Handler of decoded messages; runs in the server's loop."""

    def has_registered(self, actor: str) -> bool:
        """Return whether an actor is registered."""

    def unknown(self, kind: type[Any]) -> Receipt | Joined:
        """Return the answer to a message of this type from an unknown actor."""

    async def hello(self, hello: Hello, peer: str) -> Welcome | Refused:
        """Give an actor its slot."""

    async def join(self, join: Join) -> Joined | Refused:
        """Compare what must be the same on both sides."""

    async def deliver(self, message: TrajectoryMessage) -> Receipt:
        """Take a message."""

    async def beat(self, beat: Beat) -> Receipt:
        """Note a beat."""

    async def bye(self, bye: Bye) -> None:
        """Free an actor's slot."""

    def weights(self, wanted: WeightRequest) -> Iterable[bytes]:
        """Return chunks of the newest weights, none if there are no newer ones."""


class Server:
    """gRPC server in a thread of its own, from :meth:`start` to :meth:`close`.

    host, port:  where; port 0 takes one that is free.
    max_message: bytes of the largest message that is read.
    on_fault:    called in the loop with a kind (malformed, unauthenticated, incomplete), and who did what.
    handshake_s, idle_s: see ``ds.transport.server_options``.
    """

    def __init__(
        self,
        service: MessageHandler,
        *,
        host: str,
        port: int,
        security: LearnerSecurity,
        max_message: int,
        on_fault: OnPeerFault,
        handshake_s: float = 10.0,
        idle_s: float = 60.0,
    ) -> None:
        self.loop = asyncio.new_event_loop()
        self.loop.set_default_executor(ThreadPoolExecutor(1, "learner-reads"))
        self._host, self._port = host, port
        self._security = security
        self._most = most_connections()
        self._options = transport.server_options(
            max_message, connections=self._most, handshake_s=handshake_s, idle_s=idle_s
        )
        self._on_fault = on_fault
        self._handlers = _Handlers(service, security.token, max_message, on_fault)
        self._thread = threading.Thread(target=self._run, name="learner-server", daemon=True)
        self._server: grpc.aio.Server | None = None

    def start(self) -> int:
        """Listen; return the port. Raises UsageError that names the process which holds the port."""
        self._thread.start()
        try:
            return self._call(self._start())
        except BaseException:
            self._end()
            raise

    def close(self, grace: float) -> None:
        """Take no more calls, let the open ones go on for ``grace`` seconds, end the loop."""
        server, self._server = self._server, None
        if server is not None:
            self._call(server.stop(grace))
        self._end()

    async def _start(self) -> int:
        server = grpc.aio.server(options=self._options, maximum_concurrent_rpcs=CONCURRENT)
        server.add_generic_rpc_handlers((self._handlers.generic(),))
        at = transport.address(self._host, self._port)
        security = self._security
        try:
            if security.certificate is None or security.key is None:
                port = server.add_insecure_port(at)
            else:
                pair = (security.key, security.certificate)
                port = server.add_secure_port(at, grpc.ssl_server_credentials([pair]))
        except RuntimeError:
            port = 0
        if not port:
            raise port_refused(self._host, self._port)
        await server.start()
        self._server = server
        connections = ConnectionLimiter(int(port), self._most, self._on_fault)
        self._handlers.on_message = connections.note_message
        self._watching = asyncio.ensure_future(connections.watch())
        return int(port)

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        future: concurrent.futures.Future[T] = asyncio.run_coroutine_threadsafe(work, self.loop)
        return future.result()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()
        left = asyncio.all_tasks(self.loop)
        for task in left:
            task.cancel()
        self.loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()

    def _end(self) -> None:
        if self._thread.is_alive():
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join()


class _Handlers:
    """gRPC methods: bytes to messages, and answers to bytes."""

    def __init__(
        self, service: MessageHandler, token: str | None, max_message: int, on_fault: OnPeerFault
    ) -> None:
        self._service = service
        self._expected = None if token is None else f"Bearer {token}".encode()
        self._max_message = max_message
        self._on_fault = on_fault
        self._trajectories, self._others = ArrivalLimit(max_message), ArrivalLimit(max_message)
        self.on_message: Callable[[str], None] = lambda peer: None
        """Callback with the peer of each message that could be read."""

    def generic(self) -> grpc.GenericRpcHandler:
        """Return all methods under their names."""
        service = self._service
        unary: dict[str, tuple[type[Any], Callable[[Any], Awaitable[Any]]]] = {
            "Join": (Join, service.join),
            "Deliver": (TrajectoryMessage, service.deliver),
            "Beat": (Beat, service.beat),
            "Bye": (Bye, service.bye),
        }
        handlers = {
            name: grpc.stream_unary_rpc_method_handler(partial(self._answer, kind, method))
            for name, (kind, method) in unary.items()
        }
        handlers["Hello"] = grpc.stream_unary_rpc_method_handler(self._hello)
        handlers["Weights"] = grpc.stream_stream_rpc_method_handler(self._weights)
        return grpc.method_handlers_generic_handler(transport.SERVICE, handlers)

    async def _answer(
        self,
        kind: type[Any],
        method: Callable[[Any], Awaitable[Any]],
        bodies: Bodies,
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> bytes:
        message = await self._message(kind, bodies, context)
        answer = self._service.unknown(kind) if message is None else await method(message)
        return b"" if answer is None else encode(answer)

    async def _hello(self, bodies: Bodies, context: grpc.aio.ServicerContext[Any, Any]) -> bytes:
        hello = await self._message(Hello, bodies, context)
        assert hello is not None
        return encode(await self._service.hello(hello, _peer(context)))

    async def _weights(
        self, bodies: Bodies, context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[bytes]:
        wanted = await self._message(WeightRequest, bodies, context)
        assert wanted is not None
        for chunk in self._service.weights(wanted):
            yield chunk

    async def _message(
        self, kind: type[T], bodies: Bodies, context: grpc.aio.ServicerContext[Any, Any]
    ) -> T | None:
        """Return the one message of a call; a call without one is counted and aborted.

        None for a large one from an actor that is not registered.
        """
        peer = _peer(context)  # gRPC forgets it when the connection ends
        if not self._known(context):
            self._on_fault("unauthenticated", f"{peer}: wrong token or none")
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "wrong token or none")
        try:
            arriving = self._trajectories if kind is TrajectoryMessage else self._others
            body = await arriving.read(bodies, BODY_S)
        except NoRoom:
            self._on_fault(
                "crowded", f"{peer}: {arriving.most} messages are arriving, as many as there may be"
            )
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{transport.BUSY}: too many arrive")
        except StopAsyncIteration:  # gRPC hides which; a message that is too large was answered already
            reason = f"no whole message: it is larger than {self._max_message} bytes, or its connection broke"
            self._on_fault("incomplete", f"{peer}: {reason}")
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, reason)
        except asyncio.TimeoutError:
            self._on_fault("malformed", f"{peer}: no whole message within {BODY_S:.0f} s")
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "no whole message in time")
        try:
            actor = sender(body)
            if not actor:
                message = decode(kind, body)
            elif self._service.has_registered(actor):
                # One at a time: they share an interpreter with the training.
                message = await asyncio.to_thread(decode, kind, body)
            else:
                return None
        except WireError as error:
            self._on_fault("malformed", f"{peer}: {error}")
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        self.on_message(peer)
        return message

    def _known(self, context: grpc.aio.ServicerContext[Any, Any]) -> bool:
        if self._expected is None:
            return True
        given = [value for key, value in context.invocation_metadata() or () if key == transport.TOKEN]
        value = given[0] if len(given) == 1 else ""
        return hmac.compare_digest(
            value.encode("utf-8", "replace") if isinstance(value, str) else value, self._expected
        )


def _peer(context: grpc.aio.ServicerContext[Any, Any]) -> str:
    """Return address and port, without gRPC's prefix."""
    return unquote(context.peer()).partition(":")[2]
