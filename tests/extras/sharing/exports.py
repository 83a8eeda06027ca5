"""Exports of a run that was really trained, and changed ones of somebody who forges with care."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

from algorithm.extras.sharing.archive import MANIFEST, pack


def members_of(file: Path) -> dict[str, bytes]:
    """Every member, the manifest among them."""
    with zipfile.ZipFile(file) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def forge(file: Path, target: Path, change: Callable[[dict[str, bytes]], object], **manifest: object) -> Path:
    """A changed export. manifest: entries that replace those of the old one."""
    files = members_of(file)
    content = json.loads(files.pop(MANIFEST))
    change(files)
    text = json.dumps(content | manifest, indent=2, ensure_ascii=False) + "\n"
    target.write_bytes(pack({**files, MANIFEST: text.encode()}))
    return target


def with_config(old: str, new: str) -> Callable[[dict[str, bytes]], None]:
    """A change of a line of the configuration."""

    def change(files: dict[str, bytes]) -> None:
        text = files["config.yaml"].decode()
        assert old in text
        files["config.yaml"] = text.replace(old, new, 1).encode()

    return change


def zipped(members: Mapping[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    """A zip of any members."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, data in members.items():
            archive.writestr(zipfile.ZipInfo(name), data, compression)
    return buffer.getvalue()
