"""Access to a learner, and encryption.

On this machine any user has access, unless a token was made. Beyond it, an actor needs the token, over TLS
with a certificate that signs itself; ``python -m ds.certificates`` makes both.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import secrets
import ssl
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path

from algorithm.config.schema import NetConfig
from algorithm.core.errors import StorageError, UsageError
from algorithm.core.system.files import open_file, others_may_read

TOKEN, AUTHORITY, CERTIFICATE, KEY = "token", "ca.pem", "learner.pem", "learner.key"
"""Files in the folder ``net_config.secrets``; actors need the first two."""


@dataclass(frozen=True)
class LearnerSecurity:
    """A learner's secrets; without token all are let in, without certificate and key nothing is encrypted.

    banner: warning for a person, if any.
    """

    token: str | None = field(default=None, repr=False)
    certificate: bytes | None = None
    key: bytes | None = field(default=None, repr=False)
    banner: str | None = None


@dataclass(frozen=True)
class ActorSecurity:
    """An actor's secrets. authority: PEM of the trusted certificates; without one nothing is encrypted."""

    token: str | None = field(default=None, repr=False)
    authority: bytes | None = None


def is_loopback(host: str) -> bool:
    """Return whether ``host`` can only be this machine. Names besides localhost are not looked up."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def learner_security(net: NetConfig, host: str) -> LearnerSecurity:
    """Return the secrets of a learner that listens at ``host``.

    Beyond this machine it makes a token if there is none yet; here it requires the one that there is, if any.
    Raises UsageError with what to do where a file is missing or open to everybody, StorageError where the
    token cannot be written.
    """
    folder = Path(net.secrets)
    if is_loopback(host):
        return LearnerSecurity(token=make_token(folder) if (folder / TOKEN).exists() else None)
    if net.insecure:
        return LearnerSecurity(token=make_token(folder), banner=_PLAIN_TEXT.format(host=host))
    # Those two mean all addresses, so a certificate cannot name them.
    name = "HOST" if host in ("0.0.0.0", "::") else host
    advice = f"make them: python -m ds.certificates {name} --folder {folder}\n" + _PLAIN
    certificate = _read(folder / CERTIFICATE, advice)
    _refuse_if_open(folder / KEY)
    key = _read(folder / KEY, advice)
    _refuse_if_no_pair(folder)
    for path in (folder / CERTIFICATE, folder / AUTHORITY):
        if path.exists():
            _refuse_if_expired(path, folder)
    return LearnerSecurity(token=make_token(folder), certificate=certificate, key=key)


def actor_security(net: NetConfig, host: str) -> ActorSecurity:
    """Return the secrets of an actor that dials ``host``. Raises UsageError where a file is missing.

    On this machine only the token is used, where there is one.
    """
    folder, here = Path(net.secrets), is_loopback(host)
    if here and not (folder / TOKEN).exists():
        return ActorSecurity()
    token = _read_token(folder / TOKEN, f"copy it from the learner's machine into {folder}")
    if net.insecure or here:
        return ActorSecurity(token=token)
    advice = f"copy it from the learner's machine into {folder}\n" + _PLAIN
    return ActorSecurity(token=token, authority=_read(folder / AUTHORITY, advice))


def make_token(folder: Path) -> str:
    """Return the token in ``folder``, drawn now if there is none; only its owner may read it.

    Raises StorageError where it cannot be written, UsageError where the one there cannot be used.
    """
    path = folder / TOKEN
    try:
        make_folder(folder)
        with contextlib.suppress(FileExistsError):
            write_new(path, f"{secrets.token_urlsafe(32)}\n".encode(), mode=0o600)
    except OSError as error:
        raise StorageError.of(error, what="the learner's token cannot be written", where=path) from error
    _refuse_if_open(path)
    return _read_token(path, "delete it: the learner makes another one")


def make_folder(folder: Path) -> None:
    """Make a folder for its owner alone, ignored by git. Raises OSError."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        write_new(folder / ".gitignore", b"*\n", mode=0o600)


def write_new(path: Path, content: bytes, *, mode: int) -> None:
    """Write a new file, with ``mode`` from its first moment. Raises OSError, FileExistsError too."""
    with os.fdopen(open_file(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode=mode), "wb") as file:
        file.write(content)


_PLAIN = "or, if you trust everyone on that network: -o net_config.insecure=true on both sides"


_PLAIN_TEXT = (
    "PLAIN TEXT: the learner listens at {host} without TLS (net_config.insecure). Anyone who can listen on "
    "that network can read everything, including the token, and can then pose as an actor."
)


def _read(path: Path, advice: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(
            "learner and actors on different machines need a token and certificates",
            where=path,
            why=error.strerror or str(error),
            fix=advice,
        ) from error


def _read_token(path: Path, advice: str) -> str:
    """Return the token in a file. Raises UsageError, with ``advice``, unless it is one word of ASCII."""
    token = _read(path, advice).decode("ascii", "replace").strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise UsageError("this is not a token", where=path, why="it is not one word of ASCII", fix=advice)
    return token


def _refuse_if_open(path: Path) -> None:
    if path.exists() and others_may_read(path):
        raise UsageError("everyone on this machine can read a secret", where=path, fix=f"chmod 600 {path}")


def _refuse_if_expired(path: Path, folder: Path) -> None:
    """Raise UsageError for a certificate that is not valid now."""
    from cryptography import x509  # not needed, and slow to import, on this machine alone

    renew = _renew(folder)
    try:
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError) as error:
        raise UsageError("a certificate cannot be read", where=path, why=str(error), fix=renew) from error
    now = datetime.now(timezone.utc)
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if not begin <= now < end:
        which = "has expired" if now >= end else "is not valid yet"
        raise UsageError(
            f"the learner's certificate {which}",
            where=path,
            why=f"it is valid from {begin:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M} UTC, "
            f"and it is {now:%Y-%m-%d %H:%M}: no actor would trust it",
            fix=renew if now >= end else f"set this machine's clock, or {renew}",
        )


def _renew(folder: Path) -> str:
    return (
        f"make new ones: python -m ds.certificates HOST --folder {folder} --replace "
        f"and copy {folder / AUTHORITY} to the actors"
    )


def _refuse_if_no_pair(folder: Path) -> None:
    """Raise UsageError unless certificate and key belong together; gRPC would only blame the port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(folder / CERTIFICATE, folder / KEY, password=lambda: "")
    except (ssl.SSLError, ValueError) as error:
        raise UsageError(
            "the learner's certificate and key cannot be used",
            where=folder,
            why=str(error),
            fix=f"make new ones: python -m ds.certificates HOST --folder {folder} --replace",
        ) from error
