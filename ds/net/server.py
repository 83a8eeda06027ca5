"""The learner's end of the sockets: an asyncio loop in a thread of its own, and gRPC without generated code.

Every method is a stream to gRPC though it carries one message: so the token is checked before any of the
message is read, and a message that is too large is seen. For a client that is the same on the wire.
"""

from __future__ import annotations

import asyncio
import hmac
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import unquote

import grpc
import grpc.aio

from ds.net.port import MAX_CONNECTIONS, most_connections, port_refused
from ds.net.protocol import (
    BUSY,
    METHODS,
    SECOND_MS,
    SERVICE,
    TOKEN_HEADER,
    Beat,
    Bye,
    Hello,
    Join,
    Message,
    StepMessage,
    WeightRequest,
    WireError,
    address,
    keepalive,
)
from ds.net.security import LearnerSecurity
from ds.net.wire import decode, encode

if TYPE_CHECKING:  # what receives needs no torch
    from ds.service import Service

MAX_CALLS = MAX_CONNECTIONS
"""Concurrent calls at most. An actor makes three: a message, a beat, and weights."""

BODY_S = 60.0
"""Seconds within which a message must arrive."""

GRACE_S = 2.0
"""Seconds that a message waits for its turn to arrive; then its actor is asked to send it later."""

MEMORY = 2**26
"""Bytes of all arriving messages."""

LEAST = 16
"""Messages that may arrive at a time, however large."""

OnPeerFault = Callable[[str, str], None]
CallContext: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


class Server:
    """gRPC server in a thread of its own, from :meth:`start` to :meth:`close`.

    host, port:  where; port 0 takes one that is free.
    on_fault:    called in the loop with a kind (malformed, unauthenticated, incomplete), and peer and cause.
    handshake_s: a connection that does not come about in this time is closed; one without a call for
    idle_s:      too.
    """

    def __init__(
        self,
        service: Service,
        *,
        host: str,
        port: int,
        security: LearnerSecurity,
        on_fault: OnPeerFault,
        handshake_s: float = 10.0,
        idle_s: float = 60.0,
    ) -> None:
        self._service, self._host, self._port = service, host, port
        self._security, self._on_fault = security, on_fault
        self._max_message = service.rules.max_message
        self._options = [
            *keepalive(),
            ("grpc.http2.min_ping_interval_without_data_ms", 5 * SECOND_MS),
            ("grpc.max_receive_message_length", self._max_message),
            ("grpc.per_message_decompression", 0),  # a small message stays one: compressed it is malformed
            ("grpc.so_reuseport", 0),  # else a second learner would share the port and half of the actors
            ("grpc.max_concurrent_streams", 16),  # an actor needs three
            ("grpc.http2.bdp_probe", 0),  # else megabytes of each message arrive before anybody asks for it
            ("grpc.max_allowed_incoming_connections", most_connections()),
            ("grpc.max_connection_idle_ms", int(idle_s * SECOND_MS)),
            ("grpc.server_handshake_timeout_ms", int(handshake_s * SECOND_MS)),
        ]
        self._deliveries, self._others = (ArrivalLimit(self._max_message) for _ in range(2))
        self._listening: Future[int] = Future()
        self._closing = asyncio.Event()
        self._grace = 0.0
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._serve()), name="learner-server", daemon=True
        )

    def start(self) -> int:
        """Listen; return the port. Raises UsageError that names the process which holds the port."""
        self._thread.start()
        return self._listening.result()

    def close(self, grace: float) -> None:
        """Take no more calls, let the open ones go on for ``grace`` seconds, end the loop."""
        if self._thread.is_alive():
            self._grace = grace
            self.loop.call_soon_threadsafe(self._closing.set)
            self._thread.join()

    async def _serve(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.loop.set_default_executor(ThreadPoolExecutor(1, "learner-reads"))
        try:
            server = grpc.aio.server(options=self._options, maximum_concurrent_rpcs=MAX_CALLS)
            server.add_generic_rpc_handlers((self._handlers(),))
            port = self._listen(server)
            await server.start()
        except Exception as error:  # for the caller of ``start``
            self._listening.set_exception(error)
            return
        self._listening.set_result(port)
        await self._closing.wait()
        await server.stop(self._grace)

    def _listen(self, server: grpc.aio.Server) -> int:
        at, security = address(self._host, self._port), self._security
        try:
            if security.certificate is None or security.key is None:
                return int(server.add_insecure_port(at))
            pair = (security.key, security.certificate)
            return int(server.add_secure_port(at, grpc.ssl_server_credentials([pair])))
        except RuntimeError:
            raise port_refused(self._host, self._port) from None

    def _handlers(self) -> grpc.GenericRpcHandler:
        """Return all methods under their names."""
        service = self._service
        unary: dict[type[Message], Callable[[Any], Awaitable[Any]]] = {
            Hello: service.hello,
            Join: service.join,
            StepMessage: service.deliver,
            Beat: service.beat,
            Bye: service.bye,
        }
        handlers = {
            METHODS[kind]: grpc.stream_unary_rpc_method_handler(partial(self._answer, kind, method))
            for kind, method in unary.items()
        }
        handlers[METHODS[WeightRequest]] = grpc.stream_stream_rpc_method_handler(self._weights)
        return grpc.method_handlers_generic_handler(SERVICE, handlers)

    async def _answer(
        self,
        kind: type[Any],
        method: Callable[[Any], Awaitable[Any]],
        bodies: AsyncIterator[bytes],
        context: CallContext,
    ) -> bytes:
        answer = await method(await self._message(kind, bodies, context))
        return b"" if answer is None else encode(answer)

    async def _weights(self, bodies: AsyncIterator[bytes], context: CallContext) -> AsyncIterator[bytes]:
        wanted = await self._message(WeightRequest, bodies, context)
        for chunk in self._service.weights(wanted):
            yield chunk

    async def _message(
        self,
        kind: type[Any],
        bodies: AsyncIterator[bytes],
        context: CallContext,
    ) -> Any:  # noqa: ANN401 - a message of that kind
        """Return the one message of a call; a call without one is counted and aborted."""
        peer = unquote(context.peer()).partition(":")[2]  # gRPC forgets it when the connection ends
        code, fault, reason = grpc.StatusCode.INVALID_ARGUMENT, "malformed", ""
        arriving = self._deliveries if kind is StepMessage else self._others
        try:
            if not self._has_token(context):
                code, fault = grpc.StatusCode.UNAUTHENTICATED, "unauthenticated"
                raise WireError("wrong token or none")
            body = await arriving.read(bodies)
            if body is None:  # gRPC hides why; a message that is too large was answered already
                fault = "incomplete"
                raise WireError(
                    f"incomplete message: it is larger than {self._max_message} bytes, or its "
                    "connection broke"
                )
            return decode(kind, body)
        except NoRoom:
            code, fault = grpc.StatusCode.RESOURCE_EXHAUSTED, "crowded"
            reason = f"{BUSY}: {arriving.most} messages are arriving, the maximum"
        except asyncio.TimeoutError:
            code, reason = grpc.StatusCode.DEADLINE_EXCEEDED, f"no complete message within {BODY_S:.0f} s"
        except WireError as error:
            reason = str(error)
        self._on_fault(fault, f"{peer}: {reason}")
        await context.abort(code, reason)
        raise AssertionError("abort raises")

    def _has_token(self, context: CallContext) -> bool:
        if self._security.token is None:
            return True
        tokens = [str(value) for key, value in context.invocation_metadata() or () if key == TOKEN_HEADER]
        expected = f"Bearer {self._security.token}".encode()
        return len(tokens) == 1 and hmac.compare_digest(tokens[0].encode("utf-8", "replace"), expected)


def most_at_a_time(largest: int) -> int:
    """Return how many messages of at most ``largest`` bytes may be held at the same time."""
    return max(LEAST, MEMORY // largest)


class NoRoom(Exception):  # noqa: N818
    """Too many messages are arriving for this one."""


class ArrivalLimit:
    """Limit on messages of at most ``largest`` bytes that arrive in one event loop.

    When as many are arriving as there may be, the next one waits in line for :data:`GRACE_S`.
    """

    def __init__(self, largest: int) -> None:
        self.most = most_at_a_time(largest)
        self._free = asyncio.Semaphore(self.most)

    async def read(self, bodies: AsyncIterator[bytes]) -> bytes | None:
        """Return the first of ``bodies``; None if there is none.

        Raises NoRoom, and TimeoutError after :data:`BODY_S`.
        """
        try:
            await asyncio.wait_for(self._free.acquire(), GRACE_S)
        except asyncio.TimeoutError:
            raise NoRoom from None
        try:
            return await asyncio.wait_for(anext(aiter(bodies), None), BODY_S)
        except asyncio.CancelledError:  # gRPC does so where a message is too large
            return None
        finally:
            self._free.release()
