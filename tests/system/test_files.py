"""Files on systems that differ: each way of theirs is played here on Linux."""

from __future__ import annotations

import errno
import fcntl
import os
import sys
from pathlib import Path

import pytest

from algorithm.core import system
from algorithm.core.errors import StorageError
from algorithm.core.reading import read_bytes
from algorithm.core.system import files
from algorithm.runs.files import GrowingFile, write_bytes


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "WINDOWS", True)
    for name in ("O_NOFOLLOW", "O_DIRECTORY"):
        monkeypatch.delattr(os, name)


def refuses(times: int, monkeypatch: pytest.MonkeyPatch, *methods: str) -> None:
    """Path's methods fail a number of times, as where another process has the file open."""
    left = [times]
    for method in methods:
        original = getattr(Path, method)

        def call(path: Path, *arguments: object, original=original, **words: object) -> object:
            if left[0]:
                left[0] -= 1
                raise PermissionError(errno.EACCES, "The process cannot access the file", str(path))
            return original(path, *arguments, **words)

        monkeypatch.setattr(Path, method, call)


def test_files_are_written_and_read_where_flags_and_folders_differ(windows: None, tmp_path: Path) -> None:
    write_bytes(tmp_path / "a", b"1\r\n2\n")
    assert read_bytes(tmp_path / "a") == b"1\r\n2\n"
    grows = GrowingFile(tmp_path / "b")
    grows.append(b"1\n")
    grows.append(b"2\n")
    grows.sync()
    assert (tmp_path / "b").read_bytes() == b"1\n2\n"


def test_a_link_is_refused_where_no_flag_does_so(windows: None, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    with pytest.raises(ValueError, match="symbolic link"):
        read_bytes(tmp_path / "link")
    assert read_bytes(tmp_path / "link", follow=True) == b"x"


def test_a_file_is_opened_in_binary(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Windows would translate the ends of lines."""
    seen: list[int] = []
    monkeypatch.setattr(files, "_FLAGS", 1 << 40)
    monkeypatch.setattr(os, "open", lambda path, flags, mode: seen.append(flags) or 7)
    assert files.open_file(tmp_path, os.O_RDONLY) == 7
    assert seen[0] & 1 << 40


@pytest.mark.parametrize("method", ["replace", "rename"])
def test_a_file_that_another_process_has_open_is_waited_for(
    method: str, windows: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").write_text("x")
    refuses(3, monkeypatch, method)
    getattr(files, method)(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "b").read_text() == "x"


def test_the_wait_has_an_end(windows: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_bytes(tmp_path / "a", b"old")
    refuses(10**6, monkeypatch, "replace")
    monkeypatch.setattr(files, "_RETRY_S", 0.1)
    with pytest.raises(StorageError, match="cannot be written"):
        write_bytes(tmp_path / "a", b"new")
    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [("a", b"old")]


def test_elsewhere_a_refusal_is_final(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_text("x")
    refuses(1, monkeypatch, "replace", "unlink")
    with pytest.raises(PermissionError):
        files.replace(tmp_path / "a", tmp_path / "b")
    refuses(1, monkeypatch, "unlink")
    with pytest.raises(PermissionError):
        files.remove_held(tmp_path / "a")


def test_a_held_file_is_left_to_whoever_closes_it(
    windows: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").write_text("x")
    refuses(1, monkeypatch, "unlink")
    files.remove_held(tmp_path / "a")
    assert (tmp_path / "a").exists()
    files.remove_held(tmp_path / "a")
    assert not (tmp_path / "a").exists()
    files.remove_held(tmp_path / "a")


def test_macos_is_asked_to_empty_the_memory_of_the_drive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def ask(handle: int, request: int) -> None:
        asked.append(request)
        if len(asked) > 1:
            raise OSError(errno.ENOTSUP, "a disk of the network")

    synced: list[int] = []
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(fcntl, "F_FULLFSYNC", 51, raising=False)
    monkeypatch.setattr(fcntl, "fcntl", ask)
    monkeypatch.setattr(os, "fsync", synced.append)
    files.sync(5)
    assert (asked, synced) == ([51], [])
    files.sync(6)
    assert (asked, synced) == ([51, 51], [6])


def test_rights_are_judged_where_a_mode_has_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").touch(mode=0o644)
    assert files.others_may_read(tmp_path / "a")
    (tmp_path / "a").chmod(0o640)
    assert not files.others_may_read(tmp_path / "a")
    (tmp_path / "a").chmod(0o644)
    monkeypatch.setattr(system, "WINDOWS", True)
    assert not files.others_may_read(tmp_path / "a")
