"""The zip file of an export: files of a run, and ``manifest.json`` with their SHA-256. Loads no torch."""

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
from algorithm.store.checkpoints.manifest import Entry, is_step
from algorithm.store.files import json_text
from algorithm.store.names import is_name

FORMAT = 1
"""Version of the format; a reader refuses any other."""

MANIFEST, CONFIG, RESULT = "manifest.json", "config.yaml", "result.json"
EVALUATION, WEIGHTS, PLOTS, CODE = "evaluation.json", "model.safetensors", "plots", ".py"

_ALONE = (MANIFEST, CONFIG, RESULT, EVALUATION)
_SEVERAL = re.compile(rf"([^/]+/)?{re.escape(WEIGHTS)}|{PLOTS}/[^/]+\.png|.+{re.escape(CODE)}", re.S)
"""Names of members: those that occur once, and a pattern for networks, plots and code."""

LARGEST = 2**31 - 2**24
"""Maximum size in bytes of an export, and of a file of networks in it."""

MOST = 1000
"""Maximum number of its members."""

_DIRECTORY = MOST * 2**9
_PARSED = 2**18
_OTHERS = 2**24
"""Maximum sizes in bytes: of the directory, whose entries take ten times as much in memory; of manifest and
configuration, which are slow to parse; and of all but networks."""

_TIME = (1980, 1, 1, 0, 0, 0)
_DAMAGE = (zipfile.BadZipFile, ValueError, NotImplementedError, RuntimeError, EOFError, struct.error)
"""Errors of ``zipfile`` for a damaged or forged file."""


@dataclass(frozen=True, kw_only=True)
class ExportManifest:
    """Content of ``manifest.json``.

    version: of the program that wrote it
    env:     label of the task, such as ``gym/pendulum``
    name:    of the run
    step:    of the checkpoint
    spaces:  behaviour -> observation and action spaces as JSON; empty if unknown
    files:   name -> size and checksum of each other member
    """

    env: str
    name: str
    step: int
    spaces: Mapping[str, Any]
    files: Mapping[str, Entry]
    version: str = VERSION

    @property
    def text(self) -> str:
        """The manifest as JSON."""
        files = {name: entry.listed for name, entry in sorted(self.files.items())}
        return json_text({"format": FORMAT, **vars(self), "files": files})

    @classmethod
    def read(cls, data: bytes, source: str) -> ExportManifest:
        """Parse :attr:`text`. source: of the export, for errors. Raises StorageError."""
        try:
            content = parse_json(data)
            format_, version = content.pop("format"), content["version"]
            files = {name: Entry.read(entry) for name, entry in content.pop("files").items()}
            manifest = cls(**content, files=files)
            names = [*manifest.env.split("/"), *manifest.name.split("/", 1), version]
            if not all(map(is_name, names)) or not is_step(manifest.step):
                raise ValueError(f"{names}, {manifest.step!r:.80} are not valid names and step")
            dict(manifest.spaces)
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise refused(source, f"its {MANIFEST} is invalid ({described(error)})") from error
        if format_ != FORMAT:
            raise refused(
                source, f"it is format {format_!r:.80} of version {version}; {VERSION} reads {FORMAT}"
            )
        return manifest


def pack(files: Mapping[str, bytes]) -> bytes:
    """Return the zip of files, by name; equal files give equal bytes. Raises StorageError above a limit."""
    sizes = {name: len(data) for name, data in files.items()}
    for name, size in {WEIGHTS: sum(sizes.values()), **sizes}.items():
        if size > _limit(name):
            why = f"{name} has {size:,} bytes, {_limit(name):,} is the limit"
            raise StorageError("the export is too large", why=why)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in sorted(files):
            archive.writestr(zipfile.ZipInfo(name, _TIME), files[name])
    return buffer.getvalue()


def unpack(file: Path, source: str) -> tuple[ExportManifest, dict[str, bytes]]:
    """Return manifest and members (name -> bytes) of an export, all verified by checksums.

    source: name of the export for errors. Raises StorageError.
    """
    try:
        with open_plain(file, LARGEST, follow=True) as opened:
            check_zip(opened, _DIRECTORY)
            with zipfile.ZipFile(opened) as archive:
                infos = archive.infolist()
                _check_members(infos, file.stat().st_size)
                members = {info.filename: archive.read(info) for info in infos}
        manifest = ExportManifest.read(members.pop(MANIFEST), source)
        for name in members.keys() & {RESULT, EVALUATION}:
            if not isinstance(parse_json(members[name]), dict):
                raise ValueError(f"{name} is not an object")
    except OSError as error:
        raise StorageError.of(error, what="the export cannot be read", where=source) from error
    except KeyError as error:
        raise refused(source, f"it is not a zip of --export: it lacks {error}") from error
    except _DAMAGE as error:
        raise refused(source, f"its content cannot be read: {error}") from error
    entries = {name: Entry.of(data) for name, data in members.items()}
    for name in sorted(entries.keys() | manifest.files.keys()):
        if entries.get(name) != manifest.files.get(name):
            raise refused(source, f"{name} is missing, or not what was written")
    if CONFIG not in entries or not any(PurePosixPath(name).name == WEIGHTS for name in entries):
        raise refused(source, f"it lacks {CONFIG} or networks ({WEIGHTS})")
    return manifest, members


def refused(source: str, why: str) -> StorageError:
    """Return the error for an export that is damaged or forged."""
    return StorageError(
        "the export cannot be used", where=source, why=why, fix="get it again from where it was exported"
    )


def _limit(name: str) -> int:
    """Return the maximum size of a member, in bytes."""
    if name in (MANIFEST, CONFIG):
        return _PARSED
    return LARGEST if PurePosixPath(name).name == WEIGHTS else _OTHERS


def _check_members(infos: Sequence[zipfile.ZipInfo], size: int) -> None:
    """Raise ValueError for members that ``pack`` never writes, by the zip's directory alone."""
    names = [info.orig_filename for info in infos]
    if len(names) > MOST or len({*names}) < len(names):
        raise ValueError(f"a name is in it twice, or it has {len(names):,} members; {MOST:,} is the limit")
    for info in infos:
        if not _is_known(info.orig_filename):
            raise ValueError(f"{info.orig_filename!r} is not a file of an export")
        if info.compress_type != zipfile.ZIP_STORED:
            raise ValueError(f"{info.filename} is compressed, which members of an export never are")
        if info.file_size > _limit(info.filename):
            raise ValueError(f"{info.filename} has {info.file_size:,} bytes, far too many")
    if sum(info.file_size for info in infos) >= size:  # several names for the same bytes
        raise ValueError("its members claim more bytes than it has")


def _is_known(name: str) -> bool:
    """Return whether a member's name is a relative path without ``..`` and of a known kind."""
    if not all(map(is_name, name.split("/"))):
        return False
    return name in _ALONE or bool(_SEVERAL.fullmatch(name))
