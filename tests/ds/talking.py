"""A learner's server with a service that only notes what it is told, and raw ways to talk to it."""

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace

import grpc

from ds.net import protocol
from ds.net.client import Client
from ds.net.protocol import (
    SERVICE,
    Beat,
    Bye,
    Hello,
    Join,
    Receipt,
    StepMessage,
    WeightRequest,
    Welcome,
)
from ds.net.security import ActorSecurity, LearnerSecurity
from ds.net.server import Server
from tests.ds.samples import TAKEN, WELCOME

HOST = "127.0.0.1"
METHODS = tuple(protocol.METHODS.values())
MAX_MESSAGE = 2**20


@dataclass
class Notes:
    """The service. ``held``: how many delivers wait for ``release``."""

    seen: list[object] = field(default_factory=list)
    chunks: list[bytes] = field(default_factory=list)
    holding: bool = False
    held: int = 0
    release: asyncio.Event = field(default_factory=asyncio.Event)

    rules: SimpleNamespace = field(default_factory=lambda: SimpleNamespace(max_message=MAX_MESSAGE))

    async def hello(self, hello: Hello) -> Welcome:
        self.seen.append(hello)
        return WELCOME

    async def join(self, join: Join) -> Receipt:
        self.seen.append(join)
        return TAKEN

    async def deliver(self, message: StepMessage) -> Receipt:
        if self.holding:
            self.held += 1
            await self.release.wait()
        self.seen.append(message)
        return TAKEN

    async def beat(self, beat: Beat) -> Receipt:
        self.seen.append(beat)
        return TAKEN

    async def bye(self, bye: Bye) -> None:
        self.seen.append(bye)

    def weights(self, wanted: WeightRequest) -> list[bytes]:
        self.seen.append(wanted)
        return self.chunks


@dataclass
class Learner:
    """A server that listens, what it was told, and what went wrong in its loop."""

    server: Server
    port: int
    notes: Notes
    faults: list[tuple[str, str]]
    loop_errors: list[object]

    @property
    def kinds(self) -> list[str]:
        """Of the faults so far."""
        return [kind for kind, _ in self.faults]


@contextlib.contextmanager
def learner(
    security: LearnerSecurity | None = None, *, port: int = 0, host: str = HOST, **options: float
) -> Iterator[Learner]:
    """A learner until the end of the block."""
    notes, faults, errors = Notes(), [], []
    server = Server(
        notes,
        host=host,
        port=port,
        security=security or LearnerSecurity(),
        on_fault=lambda kind, what: faults.append((kind, what)),
        **options,
    )
    port = server.start()
    server.loop.set_exception_handler(lambda _, context: errors.append(context))
    try:
        yield Learner(server, port, notes, faults, errors)
    finally:
        server.close(0)


@contextlib.contextmanager
def actor(
    port: int, security: ActorSecurity | None = None, *, host: str = HOST, timeout: float = 20.0
) -> Iterator[Client]:
    """A client until the end of the block."""
    client = Client(host, port, security=security or ActorSecurity(), timeout=timeout)
    try:
        yield client
    finally:
        client.close()


@contextlib.contextmanager
def channel(port: int) -> Iterator[grpc.Channel]:
    """A bare channel, for what a client would not send."""
    options = [("grpc.max_send_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
    with grpc.insecure_channel(f"{HOST}:{port}", options=options) as bare:
        yield bare


def send(
    bare: grpc.Channel, method: str, body: bytes, **options: object
) -> tuple[grpc.StatusCode, str] | None:
    """Code and details of what the server answers to ``body``; None if it takes it."""
    try:
        list(bare.unary_stream(f"/{SERVICE}/{method}")(body, timeout=20, **options))
    except grpc.RpcError as error:
        return error.code(), error.details()
    return None
