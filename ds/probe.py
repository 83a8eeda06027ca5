"""Why a connection does not come about; gRPC says no more than that the learner is unavailable."""

from __future__ import annotations

import socket
import ssl
from dataclasses import dataclass

_CERTIFICATES = (
    "copy ca.pem from the learner's net_config.secrets, or make certificates for this HOST there: "
    "python -m ds.certificates HOST --replace"
)


@dataclass(frozen=True)
class Finding:
    """A reason that will not pass by itself."""

    why: str
    fix: str


def probe(host: str, port: int, authority: bytes | None, *, timeout: float) -> Finding | None:
    """Connect once more, with the system's own means; None where the reason may pass.

    authority: PEM of the certificates that are trusted; None for an actor that talks in plain text.
    timeout:   seconds.
    """
    try:
        context = _context(authority)
    except (ssl.SSLError, ValueError):
        return Finding("this actor's ca.pem holds no certificate", _CERTIFICATES)
    try:
        with socket.create_connection((host, port), timeout) as plain:
            return _greet(context, plain, host, encrypted=authority is not None)
    except OSError:  # nobody listens, or the network is away
        return None


def _context(authority: bytes | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_alpn_protocols(["h2"])
    if authority is None:  # only to learn whether the other side speaks TLS: nothing is sent
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    else:
        context.load_verify_locations(cadata=authority.decode("ascii", "replace"))
    return context


def _greet(context: ssl.SSLContext, plain: socket.socket, host: str, *, encrypted: bool) -> Finding | None:
    try:
        with context.wrap_socket(plain, server_hostname=host):
            if encrypted:
                return None
            return Finding(
                "the learner speaks TLS, this actor plain text",
                "dial the learner by its name or address, as in net_config.learner_host, and take back "
                "net_config.insecure",
            )
    except ssl.SSLCertVerificationError as error:
        return Finding(f"the learner's certificate is not trusted: {error.verify_message}", _CERTIFICATES)
    except ssl.SSLError as error:
        if not encrypted or error.reason != "WRONG_VERSION_NUMBER":
            return None
        return Finding(
            "this actor speaks TLS, the learner plain text",
            "start the learner with net_config.learner_host set and without net_config.insecure",
        )
