"""The zip of an export: written in one fixed form, read only if it is exactly what was written.

Its members are stored without compression, in the order of their names, with one fixed time.
``manifest.json`` has size and SHA-256 of every other member. The comment at the end of the zip is the SHA-256
of all bytes before it, so that a changed byte is found wherever it is. Loads no torch.
"""

from __future__ import annotations

import hashlib
import io
import re
import stat
import struct
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from algorithm.core.errors import StorageError, described
from algorithm.core.program import VERSION
from algorithm.core.reading import parse_json, read_bytes
from algorithm.runs.checkpoints.manifest import Entry, is_step
from algorithm.runs.files import json_text
from algorithm.runs.names import is_name

FORMAT = 1
"""Version of the format; a reader refuses any other."""

MANIFEST, CONFIG, CARD, RESULT = "manifest.json", "config.yaml", "README.md", "result.json"
EVALUATION, WEIGHTS, PLOTS, CODE = "evaluation.json", "model.safetensors", "plots", ".py"

LARGEST = 2**31 - 2**24
"""Maximum size in bytes of an export; a zip of that size needs none of the 64-bit records."""

MOST = 1000
"""Maximum number of its members."""

_LIMITS = {MANIFEST: 2**18, CONFIG: 2**18, RESULT: 2**22, EVALUATION: 2**22, CARD: 2**20}
_LIMITS_BY_SUFFIX = {CODE: 2**20, ".png": 2**24}
"""Maximum size in bytes of a member; networks have that of the export. Text is slow to parse."""

_SEAL = b"sha256:"
_DIGEST = 64  # hexadecimal digits
_TIME = (1980, 1, 1, 0, 0, 0)
_MODE = stat.S_IFREG | 0o644
_END = struct.Struct("<4s4H2LH")  # the record at the end of a zip
_LONGEST = 512  # bytes of a member in the directory
_FAULTS = (
    zipfile.BadZipFile,
    ValueError,
    LookupError,
    NotImplementedError,
    RuntimeError,
    EOFError,
    OSError,
    struct.error,
)
"""What ``zipfile`` raises for a file that is not what it seems."""


@dataclass(frozen=True, kw_only=True)
class ExportManifest:
    """Content of ``manifest.json``.

    version: of the program that wrote it
    env:     label of the task, such as ``gym/pendulum``
    name:    of the run
    step:    of the checkpoint
    spaces:  behaviour → what its agents see and do, as JSON; empty where that is unknown
    files:   all other members
    """

    env: str
    name: str
    step: int
    spaces: Mapping[str, Any]
    files: Mapping[str, Entry]
    version: str = field(default=VERSION)

    @property
    def text(self) -> str:
        """As JSON."""
        return json_text(
            {
                "format": FORMAT,
                "program": {"name": "advanced-soft-actor-critic", "version": self.version},
                "env": self.env,
                "name": self.name,
                "step": self.step,
                "spaces": dict(self.spaces),
                "files": {name: self.files[name].listed for name in sorted(self.files)},
            }
        )


def pack(files: Mapping[str, bytes]) -> bytes:
    """Return the zip of these members, the same bytes for the same members. Raises StorageError."""
    sizes = {name: len(data) for name, data in files.items()}
    for name, size in {**sizes, "it": sum(sizes.values())}.items():
        if size > _limit(name):
            why = f"{name} has {size:,} bytes, {_limit(name):,} is the limit"
            raise StorageError("the export is too large", why=why)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(files):
            info = zipfile.ZipInfo(name, _TIME)
            info.create_system, info.external_attr = 3, _MODE << 16  # the same on every system
            archive.writestr(info, files[name])
        archive.comment = _SEAL + b"0" * _DIGEST
    data = buffer.getvalue()[:-_DIGEST]
    return data + hashlib.sha256(data).hexdigest().encode()


def unpack(file: Path, source: str) -> tuple[ExportManifest, dict[str, bytes]]:
    """Return manifest and members of an export, every byte verified before any of it is used.

    source: name of the export for errors. Raises StorageError.
    """
    try:
        data = read_bytes(file, LARGEST, follow=True)
    except OSError as error:
        raise StorageError.of(error, what="the export cannot be read", where=source) from error
    except ValueError as error:
        raise refused(source, str(error)) from error
    _check_seal(data, source)
    _check_directory(data, source)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            infos = archive.infolist()
            _check_members(infos, len(data), source)
            members = {info.filename: archive.read(info) for info in infos}
    except _FAULTS as error:
        raise refused(source, f"its content cannot be read: {error}") from error
    manifest = _read_manifest(members.pop(MANIFEST, None), source)
    _check_files(manifest, members, source)
    return manifest, members


def refused(source: str, why: str) -> StorageError:
    """Return the error for an export that is not what was written."""
    return StorageError(
        "the export cannot be used", where=source, why=why, fix="get it once more from where it was exported"
    )


def _check_seal(data: bytes, source: str) -> None:
    if not data.startswith(b"PK"):
        raise refused(source, "it is no zip")
    seal = data[-_DIGEST - len(_SEAL) :]
    if not seal.startswith(_SEAL):
        raise refused(source, "it was cut short or changed, or it is no zip of --export")
    if hashlib.sha256(data[:-_DIGEST]).hexdigest().encode() != seal[len(_SEAL) :]:
        raise refused(source, "it was changed: its SHA-256 is not the one that was written")


def _check_directory(data: bytes, source: str) -> None:
    """Refuse a directory that is too long to be read, by the record behind it and the one of 64 bits."""
    place = len(data) - _END.size - len(_SEAL) - _DIGEST
    if place < 0 or data[place : place + 4] != b"PK\5\6" or data[max(place - 20, 0) :][:4] == b"PK\6\7":
        raise refused(source, "its directory is not as --export writes it")
    _, _, _, _, members, size, _, _ = _END.unpack_from(data, place)
    if members > MOST or size > MOST * _LONGEST:
        raise refused(source, f"it has {members:,} members or more, {MOST:,} is the limit")


def _limit(name: str) -> int:
    return _LIMITS.get(name, _LIMITS_BY_SUFFIX.get(PurePosixPath(name).suffix, LARGEST))


def _check_members(infos: list[zipfile.ZipInfo], size: int, source: str) -> None:
    """Refuse members that ``pack`` never writes, by the directory of the zip alone."""
    seen = set()
    for info in infos:
        name = info.orig_filename
        if name in seen:
            raise refused(source, f"{name!r} is in it twice")
        seen.add(name)
        kind = stat.S_IFMT(info.external_attr >> 16)
        if kind != stat.S_IFREG or info.is_dir():
            raise refused(source, f"{name!r} is a link, a folder or a device")
        if info.compress_type != zipfile.ZIP_STORED or info.compress_size != info.file_size:
            raise refused(source, f"{name!r} is compressed, which members of an export never are")
        if name != info.filename or not _is_known(name):
            raise refused(source, f"{name!r} is no file of an export")
        if info.file_size > _limit(name):
            raise refused(source, f"{name!r} has {info.file_size:,} bytes, {_limit(name):,} is the limit")
    if sum(info.file_size for info in infos) >= size:
        raise refused(source, "its members claim more bytes than it has")


def _is_known(name: str) -> bool:
    """Return whether an export may have such a member: a plain name that stays inside, of a known kind."""
    parts = name.split("/")
    if not all(map(is_name, parts)):
        return False
    path = PurePosixPath(name)
    return (
        name in (MANIFEST, CONFIG, CARD, RESULT, EVALUATION)
        or (path.name == WEIGHTS and len(parts) <= 2)
        or (parts[0] == PLOTS and len(parts) == 2 and path.suffix == ".png")
        or path.suffix == CODE
    )


def _read_manifest(data: bytes | None, source: str) -> ExportManifest:
    if data is None:
        raise refused(source, f"it has no {MANIFEST}")
    try:
        content = parse_json(data)
        if type(content["format"]) is not int:
            raise TypeError("its format is no number")
        version = _plain(content["program"]["version"])
        if content["format"] != FORMAT:
            raise StorageError(
                "the export has another format",
                where=source,
                why=f"it is format {content['format']}, written by version {version}; "
                f"this is version {VERSION}, which reads format {FORMAT}",
                fix="use the version that wrote it",
            )
        manifest = ExportManifest(
            env=_plain(content["env"]),
            name=_plain(content["name"]),
            step=content["step"],
            spaces=dict(content["spaces"]),
            files={name: Entry.read(entry) for name, entry in content["files"].items()},
            version=version,
        )
        if not is_step(manifest.step) or manifest.text.encode() != data:
            raise ValueError("it is not in the form in which it is written")
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise refused(source, f"its {MANIFEST} is none ({described(error)})") from error
    return manifest


def _plain(text: object) -> str:
    """Return a short text that can be shown. Raises ValueError for any other value."""
    if not isinstance(text, str) or not re.fullmatch(r"[^\x00-\x1f\x7f-\x9f]{1,400}", text):
        raise ValueError(f"{text!r:.80} is no name")
    return text


def _check_files(manifest: ExportManifest, members: Mapping[str, bytes], source: str) -> None:
    """Refuse members that are not exactly those of the manifest, and a manifest that lacks what all have."""
    listed = manifest.files
    if missing := sorted(listed.keys() - members.keys()):
        raise refused(source, f"it lacks {', '.join(missing)}, which its manifest names")
    if more := sorted(members.keys() - listed.keys()):
        raise refused(source, f"its manifest does not name {', '.join(more)}")
    for name, entry in listed.items():
        if len(members[name]) != entry.nbytes:
            raise refused(source, f"{name} has {len(members[name]):,} bytes, {entry.nbytes:,} were written")
        if Entry.of(members[name]) != entry:
            raise refused(source, f"{name} is not what was written: it has another SHA-256")
    for needed in (CONFIG, CARD):
        if needed not in listed:
            raise refused(source, f"it has no {needed}")
    if not any(PurePosixPath(name).name == WEIGHTS for name in listed):
        raise refused(source, f"it has no networks ({WEIGHTS})")
