"""The actor's end of the sockets, safe to call from several threads."""

from __future__ import annotations

import socket
import ssl
from typing import NoReturn, TypeVar

import grpc

from ds.net.protocol import (
    BUSY,
    METHODS,
    SECOND_MS,
    SERVICE,
    TOKEN_HEADER,
    Busy,
    Bye,
    LearnerRefused,
    Message,
    Refused,
    Unreachable,
    WeightRequest,
    WireError,
    address,
    keepalive,
)
from ds.net.security import TOKEN, ActorSecurity
from ds.net.wire import decode, encode

_OPTIONS = [
    *keepalive(),
    ("grpc.initial_reconnect_backoff_ms", SECOND_MS // 5),
    ("grpc.max_reconnect_backoff_ms", 2 * SECOND_MS),  # the default is two minutes
    ("grpc.min_reconnect_backoff_ms", 5 * SECOND_MS),  # how long a connection may take
    ("grpc.enable_http_proxy", 0),  # a proxy of the environment is for the web
    ("grpc.use_local_subchannel_pool", 1),  # a connection for each client
    ("grpc.max_send_message_length", -1),  # the learner's limit holds, and names itself
]

STREAM_FACTOR = 10
"""Deadline of a stream in deadlines of a call: weights may be large and the network slow."""

M = TypeVar("M", bound=Message)

_SAME_VERSION = (
    "make sure that a learner listens there, and that both sides have the same version of the program"
)

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
        self._at = address(host, port)
        self._security = security
        self._timeout = timeout
        if security.authority is None:
            self._channel = grpc.insecure_channel(self._at, options=_OPTIONS)
        else:
            credentials = grpc.ssl_channel_credentials(root_certificates=security.authority)
            self._channel = grpc.secure_channel(self._at, credentials, options=_OPTIONS)
        self._metadata = ((TOKEN_HEADER, f"Bearer {security.token}"),) if security.token else ()

    def ask(self, message: Message, kind: type[M]) -> M:
        """Send a message; return the answer, of type ``kind``."""
        (body,) = self._call(message)
        try:
            answer: M | Refused = decode(kind | Refused, body)
        except WireError as error:
            raise self._refused(f"its answer cannot be read: {error}", _SAME_VERSION) from error
        if isinstance(answer, Refused):
            raise self._refused("\n".join((answer.reason, *answer.differences)), answer.fix)
        return answer

    def bye(self, bye: Bye) -> None:
        """Leave."""
        self._call(bye)

    def weights(self, wanted: WeightRequest) -> list[bytes]:
        """Return all chunks of the newest weights; none if there are no newer ones."""
        return self._call(wanted)

    def close(self) -> None:
        """Close the connection; pending and later calls raise Unreachable."""
        self._channel.close()

    def _call(self, message: Message) -> list[bytes]:
        path, body = f"/{SERVICE}/{METHODS[type(message)]}", encode(message)
        rest = {"timeout": self._timeout, "metadata": self._metadata}
        try:
            if isinstance(message, WeightRequest):
                rest["timeout"] = STREAM_FACTOR * self._timeout
                return list(self._channel.unary_stream(path)(body, **rest))
            return [self._channel.unary_unary(path)(body, **rest)]
        except grpc.RpcError as error:
            self._raise(error)
        except ValueError as error:  # the channel is closed
            raise Unreachable(_line(str(error))) from error

    def _raise(self, error: grpc.RpcError) -> NoReturn:
        """Raise the error of ours that a gRPC error means."""
        code, details = error.code(), _line(error.details() or "")
        if code is grpc.StatusCode.RESOURCE_EXHAUSTED and details.startswith(BUSY):
            raise Busy("it is busy") from error
        if code is grpc.StatusCode.UNAVAILABLE:
            finding = probe(self._host, self._port, self._security.authority, timeout=min(self._timeout, 3.0))
            if finding is not None:
                raise self._refused(*finding) from error
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


def probe(host: str, port: int, authority: bytes | None, *, timeout: float) -> tuple[str, str] | None:
    """Connect once more with a plain socket; return a reason that will not pass and its fix, if there is one.

    authority: PEM of the certificates that are trusted; None for an actor that talks in plain text.
    timeout:   seconds.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_alpn_protocols(["h2"])
    if authority is None:  # only to detect TLS on the other side: nothing is sent
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    else:
        try:
            context.load_verify_locations(cadata=authority.decode("ascii", "replace"))
        except (ssl.SSLError, ValueError):
            return "this actor's ca.pem holds no certificate", _CERTIFICATES
    try:
        with (
            socket.create_connection((host, port), timeout) as plain,
            context.wrap_socket(plain, server_hostname=host),
        ):
            return None if authority is not None else _TLS_THERE
    except ssl.SSLCertVerificationError as error:
        return f"the learner's certificate is not trusted: {error.verify_message}", _CERTIFICATES
    except ssl.SSLError as error:
        return _TLS_HERE if authority is not None and error.reason == "WRONG_VERSION_NUMBER" else None
    except OSError:  # no listener, or no network
        return None


_TLS_THERE = (
    "the learner uses TLS, this actor plain text",
    "connect to the learner by its name or address, as in net_config.learner_host, and unset "
    "net_config.insecure",
)
_TLS_HERE = (
    "this actor uses TLS, the learner plain text",
    "start the learner with net_config.learner_host set and without net_config.insecure",
)

_WORDS = (
    ("Connection refused", "nothing listens there"),
    ("Socket closed", "it closed the connection"),
    ("Connection reset", "it closed the connection"),
    ("GOAWAY", "it closed the connection"),
    ("Broken pipe", "it closed the connection"),
    ("keepalive", "the connection is dead"),
    ("No route to host", "there is no route to it"),
    ("Network is unreachable", "there is no route to it"),
    ("Name or service not known", "its host name is unknown"),
    ("DNS resolution failed", "its host name is unknown"),
    ("FD Shutdown", "connecting took too long"),
    ("onnection timed out", "connecting took too long"),
    ("onnect timeout", "connecting took too long"),
)
"""(part of a gRPC message, its meaning); the first match counts."""


def passing(code: grpc.StatusCode, details: str, *, timeout: float) -> str:
    """Return a transient reason in few words. timeout: seconds that the call was given."""
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return f"no answer within {timeout:.3g} s"
    known = (words for part, words in _WORDS if part in details)
    return next(known, f"{code.name.lower()}: {details}")
