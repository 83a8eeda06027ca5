"""The zip file of an export: files of a run, and ``manifest.json``. Loads no torch."""

from __future__ import annotations

import io
import re
import struct
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from algorithm.core.errors import StorageError, described
from algorithm.core.program import VERSION
from algorithm.core.reading import check_zip, open_plain, parse_json
from algorithm.store.checkpoints.manifest import is_step
from algorithm.store.files import json_text
from algorithm.store.names import is_name

FORMAT = 2
"""Version of the format; a reader refuses any other."""

MANIFEST, CONFIG, RESULT = "manifest.json", "config.yaml", "result.json"
WEIGHTS, CODE = "model.safetensors", ".py"

_KNOWN = re.compile(
    rf"{re.escape(MANIFEST)}|{re.escape(CONFIG)}|{re.escape(RESULT)}"
    rf"|([^/]+/)?{re.escape(WEIGHTS)}|.+{re.escape(CODE)}",
    re.S,
)
"""Names of members."""

LARGEST = 2**31
"""Maximum size in bytes of an export."""

_DIRECTORY = 2**20
"""Maximum size in bytes of the directory, whose entries take ten times as much in memory."""

_MOST_MEMBERS = 1_000

_TIME = (1980, 1, 1, 0, 0, 0)
_DAMAGE = (zipfile.BadZipFile, ValueError, NotImplementedError, RuntimeError, EOFError, struct.error)
"""Errors of ``zipfile`` for a damaged or forged file; it compares the members' checksums."""


@dataclass(frozen=True, kw_only=True)
class ExportManifest:
    """Content of ``manifest.json``.

    version: of the program that wrote it
    env:     label of the task, such as ``gym/pendulum``
    name:    of the run
    step:    of the checkpoint
    spaces:  behaviour -> observation and action spaces as JSON; empty if unknown
    """

    env: str
    name: str
    step: int
    spaces: Mapping[str, Any]
    version: str = VERSION

    @property
    def text(self) -> str:
        """The manifest as JSON."""
        return json_text({"format": FORMAT, **vars(self)})

    @classmethod
    def read(cls, data: bytes, source: str) -> ExportManifest:
        """Parse :attr:`text`. source: of the export, for errors. Raises StorageError."""
        try:
            content = parse_json(data)
            format_, version = content.pop("format"), content["version"]
            if format_ != FORMAT:
                raise refused(source, f"it is format {format_!r:.80} of version {version:.80}")
            manifest = cls(**content)
            names = [*manifest.env.split("/"), *manifest.name.split("/", 1), version]
            if not all(map(is_name, names)) or not is_step(manifest.step):
                raise ValueError(f"{names}, {manifest.step!r:.80} are not valid names and step")
            dict(manifest.spaces)
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise refused(source, f"its {MANIFEST} is invalid ({described(error)})") from error
        return manifest


def pack(files: Mapping[str, bytes]) -> bytes:
    """Return the zip of files, by name; equal files give equal bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in sorted(files):
            archive.writestr(zipfile.ZipInfo(name, _TIME), files[name])
    return buffer.getvalue()


def unpack(file: Path, source: str) -> tuple[ExportManifest, dict[str, bytes]]:
    """Return manifest and members (name -> bytes) of an export, ``source`` in errors. Raises StorageError."""
    try:
        with open_plain(file, LARGEST, follow=True) as opened:
            check_zip(opened, _DIRECTORY)
            with zipfile.ZipFile(opened) as archive:
                infos = archive.infolist()
                _check_members(infos, file.stat().st_size)
                members = {info.filename: archive.read(info) for info in infos}
    except OSError as error:
        raise StorageError.of(error, what="the export cannot be read", where=source) from error
    except _DAMAGE as error:
        raise refused(source, f"its content cannot be read: {error}") from error
    if not {MANIFEST, CONFIG} <= members.keys() or not any(map(is_network, members)):
        raise refused(source, f"it is not a zip of --export: it lacks {MANIFEST}, {CONFIG} or {WEIGHTS}")
    return ExportManifest.read(members.pop(MANIFEST), source), members


def is_network(name: str) -> bool:
    """Return whether a file of networks has this name."""
    return PurePosixPath(name).name == WEIGHTS


def refused(source: str, why: str) -> StorageError:
    """Return the error for an export that is damaged or forged."""
    return StorageError(
        "the export cannot be used", where=source, why=why, fix="get it again from where it was exported"
    )


def _check_members(infos: Sequence[zipfile.ZipInfo], size: int) -> None:
    """Raise ValueError for members that ``pack`` never writes, by the zip's directory alone."""
    if len(infos) > _MOST_MEMBERS:  # reading empty ones takes time too
        raise ValueError(f"it has {len(infos):,} members")
    names = [info.orig_filename for info in infos]
    if len({*names}) < len(names):
        raise ValueError("a name is in it twice")
    for info in infos:
        name = info.orig_filename
        if not (all(map(is_name, name.split("/"))) and _KNOWN.fullmatch(name)):  # nor one that leads out
            raise ValueError(f"{name!r} is not a file of an export")
        if info.compress_type != zipfile.ZIP_STORED:
            raise ValueError(f"{name} is compressed, which members of an export never are")
    if sum(info.file_size for info in infos) >= size:  # several names for the same bytes
        raise ValueError("its members claim more bytes than it has")
