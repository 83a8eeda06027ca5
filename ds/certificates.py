"""Makes what learner and actors on different machines need: ``python -m ds.certificates HOST [HOST …]``.

The learner's certificate signs itself, and actors trust no other one.
"""

from __future__ import annotations

import argparse
import importlib
import ipaddress
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path

from algorithm.core.errors import StorageError, UsageError, UserError
from algorithm.core.extras import needs
from ds.net.security import AUTHORITY, CERTIFICATE, KEY, TOKEN, make_folder, make_token, write_new

with suppress(ImportError):  # `main` says what to install
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_HOST = re.compile(r"(\*\.)?[a-z0-9_][a-z0-9_-]*(\.[a-z0-9_][a-z0-9_-]*)*", re.I)
"""Name of a host."""

_MAX_DAYS = 36_500

_SKEW = timedelta(days=1)
"""Tolerance for different clocks of the machines."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m ds.certificates", description=__doc__)
    parser.add_argument("hosts", nargs="+", metavar="HOST", help="name or address that actors connect to")
    parser.add_argument("--folder", type=Path, default=Path(".secrets"), help="default: %(default)s")
    parser.add_argument("--days", type=int, default=365, help="how long they are valid; default: %(default)s")
    parser.add_argument("--replace", action="store_true", help="replace existing ones")
    args = parser.parse_args(arguments)
    if not 1 <= args.days <= _MAX_DAYS:
        parser.error(f"--days {args.days}: give 1 to {_MAX_DAYS}")
    try:
        with needs("ds", "making certificates"):
            importlib.import_module("cryptography.x509")
        make(args.folder, args.hosts, days=args.days, replace=args.replace)
    except UserError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    print(f"the learner's certificate for {', '.join(args.hosts)} is valid for {args.days} days")
    print(f"copy {args.folder / TOKEN} and {args.folder / AUTHORITY} to {args.folder} of each actor")
    return 0


def make(folder: Path, hosts: Sequence[str], *, days: int, replace: bool = False) -> None:
    """Write the learner's certificate, its key, and what actors trust to ``folder``; a token if it has none.

    hosts: names and IP addresses that actors connect to
    days:  validity of the certificate
    Raises UsageError if one of the three files exists and ``replace`` is false, or if a host cannot be
    encoded as a name; StorageError if a file cannot be written.
    """
    files = {folder / name: content for name, content in signed(hosts, days=days).items()}
    there = [str(path) for path in files if path.exists()]
    if there and not replace:
        raise UsageError(
            "there already are certificates",
            where=", ".join(there),
            why="actors that have the old ones would not trust new ones",
            fix="keep them, or add --replace and copy the new ca.pem to the actors",
        )
    try:
        make_folder(folder)
        for path, content in files.items():
            path.unlink(missing_ok=True)
            write_new(path, content, mode=0o600 if path.name == KEY else 0o644)
    except OSError as error:
        raise StorageError.of(error, what="the certificates cannot be written", where=folder) from error
    make_token(folder)


def signed(hosts: Sequence[str], *, days: int) -> dict[str, bytes]:
    """Return PEM by the names of files: what actors trust, the learner's certificate (the same), and its key.

    hosts, days: see :func:`make`. Raises UsageError for a host that cannot be encoded as a name.
    """
    names = [_name(host) for host in hosts]
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(timezone.utc)
    learner = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "soft actor-critic learner")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(learner)
        .issuer_name(learner)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    public = certificate.public_bytes(pem)
    return {AUTHORITY: public, CERTIFICATE: public, KEY: secret}


def _name(host: str) -> x509.GeneralName:
    with suppress(ValueError):
        return x509.IPAddress(ipaddress.ip_address(host))
    if not _HOST.fullmatch(host):
        raise UsageError(
            "this is not a host", where=repr(host), fix="give a name or an address, without port or scheme"
        )
    return x509.DNSName(host)


if __name__ == "__main__":
    sys.exit(main())
