"""The actor's end of the sockets: a method for each message, safe to call from several threads."""

from __future__ import annotations

import socket
import ssl
from dataclasses import dataclass
from typing import NoReturn, TypeVar

import grpc
import msgspec

from ds import transport
from ds.errors import Busy, LearnerRefused, Unreachable, WireError
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
from ds.security import TOKEN, ActorSecurity
from ds.wire import decode, encode

STREAM_FACTOR = 10
"""Deadline of a stream in deadlines of a call: weights may be large and the network slow."""

M = TypeVar("M")
N = TypeVar("N")

_SAME_VERSION = "see that a learner listens there, and that both sides have the same version of the program"

_FIXES = {
    grpc.StatusCode.UNAUTHENTICATED: f"copy the file {TOKEN} from the learner's net_config.secrets; "
    "where the learner was started with --insecure, add that too",
    grpc.StatusCode.RESOURCE_EXHAUSTED: "lower base_config.max_episode_length, "
    "the transitions of the longest message; it must be the same on both sides",
}

_PASSING = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.ABORTED,
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.UNKNOWN,
)


class Client:
    """Connection to the learner at ``host:port``; it reconnects by itself.

    timeout: seconds that an answer may take.

    All methods raise Unreachable for what may pass, Busy if the learner is there and takes no more calls now,
    and LearnerRefused for what will not pass: refusals, token, certificates, sizes, other versions.
    """

    def __init__(self, host: str, port: int, *, security: ActorSecurity, timeout: float) -> None:
        self._host, self._port = host, port
        self._at = transport.address(host, port)
        self._security = security
        self._timeout = timeout
        if security.authority is None:
            self._channel = grpc.insecure_channel(self._at, options=transport.CLIENT)
        else:
            credentials = grpc.ssl_channel_credentials(root_certificates=security.authority)
            self._channel = grpc.secure_channel(self._at, credentials, options=transport.CLIENT)
        self._metadata = ((transport.TOKEN, f"Bearer {security.token}"),) if security.token else ()

    def hello(self, hello: Hello) -> Welcome:
        """Request a slot."""
        return self._accepted(self._request("Hello", hello, (Welcome, Refused)))

    def join(self, join: Join) -> Joined:
        """Have compared what must be the same on both sides."""
        return self._accepted(self._request("Join", join, (Joined, Refused)))

    def deliver(self, message: TrajectoryMessage) -> Receipt:
        """Send a trajectory message."""
        return self._request("Deliver", message, (Receipt, Receipt))

    def beat(self, beat: Beat) -> Receipt:
        """Send a beat."""
        return self._request("Beat", beat, (Receipt, Receipt))

    def bye(self, bye: Bye) -> None:
        """Leave."""
        self._call("Bye", encode(bye))

    def weights(self, wanted: WeightRequest) -> list[bytes]:
        """Return all chunks of the newest weights; none if there are no newer ones."""
        body, deadline = encode(wanted), self._timeout * STREAM_FACTOR
        try:
            call = self._channel.unary_stream(f"/{transport.SERVICE}/Weights")
            return list(call(body, timeout=deadline, metadata=self._metadata))
        except grpc.RpcError as error:
            self._raise(error)
        except ValueError as error:
            raise Unreachable(_line(str(error))) from error

    def close(self) -> None:
        """Close the connection; pending and later calls raise Unreachable."""
        self._channel.close()

    def _request(self, method: str, message: msgspec.Struct, kinds: tuple[type[M], type[N]]) -> M | N:
        answer = self._call(method, encode(message))
        try:
            return decode(kinds, answer)
        except WireError as error:
            raise self._refused(f"its answer cannot be read: {error}", _SAME_VERSION) from error

    def _call(self, method: str, body: bytes) -> bytes:
        try:
            call = self._channel.unary_unary(f"/{transport.SERVICE}/{method}")
            answer: bytes = call(body, timeout=self._timeout, metadata=self._metadata)
            return answer
        except grpc.RpcError as error:
            self._raise(error)
        except ValueError as error:  # the channel is closed
            raise Unreachable(_line(str(error))) from error

    def _accepted(self, answer: M | Refused) -> M:
        if isinstance(answer, Refused):
            raise self._refused("\n".join((answer.reason, *answer.differences)), answer.fix)
        return answer

    def _raise(self, error: grpc.RpcError) -> NoReturn:
        """Raise the error of ours that a gRPC error means."""
        code, details = error.code(), _line(error.details() or "")
        if code is grpc.StatusCode.RESOURCE_EXHAUSTED and details.startswith(transport.BUSY):
            raise Busy("it has no hand free at the moment") from error
        if code is grpc.StatusCode.UNAVAILABLE:
            finding = probe(self._host, self._port, self._security.authority, timeout=min(self._timeout, 3.0))
            if finding is not None:
                raise self._refused(finding.why, finding.fix) from error
        if code in _PASSING:
            raise Unreachable(passing(code, details, timeout=self._timeout)) from error
        raise self._refused(details or code.name.lower(), _FIXES.get(code, _SAME_VERSION)) from error

    def _refused(self, why: str, fix: str) -> LearnerRefused:
        return LearnerRefused("the learner refuses this actor", where=self._at, why=why, fix=fix)


def _line(text: str) -> str:
    return " ".join(text.split())


_CERTIFICATES = (
    "copy ca.pem from the learner's net_config.secrets, or make certificates for this HOST there: "
    "python -m ds.certificates HOST --replace"
)


@dataclass(frozen=True)
class ConnectionProblem:
    """Permanent reason why no connection comes about."""

    why: str
    fix: str


def probe(host: str, port: int, authority: bytes | None, *, timeout: float) -> ConnectionProblem | None:
    """Connect once more with a plain socket; None where the reason may pass.

    authority: PEM of the certificates that are trusted; None for an actor that talks in plain text.
    timeout:   seconds.
    """
    try:
        context = _context(authority)
    except (ssl.SSLError, ValueError):
        return ConnectionProblem("this actor's ca.pem holds no certificate", _CERTIFICATES)
    try:
        with socket.create_connection((host, port), timeout) as plain:
            return _greet(context, plain, host, encrypted=authority is not None)
    except OSError:  # no listener, or no network
        return None


def _context(authority: bytes | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_alpn_protocols(["h2"])
    if authority is None:  # only to detect TLS on the other side: nothing is sent
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    else:
        context.load_verify_locations(cadata=authority.decode("ascii", "replace"))
    return context


def _greet(
    context: ssl.SSLContext, plain: socket.socket, host: str, *, encrypted: bool
) -> ConnectionProblem | None:
    try:
        with context.wrap_socket(plain, server_hostname=host):
            if encrypted:
                return None
            return ConnectionProblem(
                "the learner speaks TLS, this actor plain text",
                "dial the learner by its name or address, as in net_config.learner_host, and take back "
                "net_config.insecure",
            )
    except ssl.SSLCertVerificationError as error:
        return ConnectionProblem(
            f"the learner's certificate is not trusted: {error.verify_message}", _CERTIFICATES
        )
    except ssl.SSLError as error:
        if not encrypted or error.reason != "WRONG_VERSION_NUMBER":
            return None
        return ConnectionProblem(
            "this actor speaks TLS, the learner plain text",
            "start the learner with net_config.learner_host set and without net_config.insecure",
        )


_WORDS = (
    ("Connection refused", "nobody listens there"),
    ("Socket closed", "it hung up"),
    ("Connection reset", "it hung up"),
    ("GOAWAY", "it hung up"),
    ("Broken pipe", "it hung up"),
    ("keepalive", "the connection is dead"),
    ("No route to host", "no way leads there"),
    ("Network is unreachable", "no way leads there"),
    ("Name or service not known", "its name is not known"),
    ("DNS resolution failed", "its name is not known"),
    ("FD Shutdown", "no connection came about in time"),
    ("onnection timed out", "no connection came about in time"),
    ("onnect timeout", "no connection came about in time"),
)
"""(part of a gRPC message, its meaning); the first match counts."""


def passing(code: grpc.StatusCode, details: str, *, timeout: float) -> str:
    """Return a transient reason in few words. timeout: seconds that the call was given."""
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return f"no answer within {timeout:.3g} s"
    known = (words for part, words in _WORDS if part in details)
    return next(known, f"{code.name.lower()}: {details}")
