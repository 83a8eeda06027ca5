"""Files on systems that differ: each way of theirs is played here on Linux."""

import errno
import os
from pathlib import Path

import pytest

from algorithm.core import system
from algorithm.core.errors import StorageError
from algorithm.core.reading import read_bytes
from algorithm.core.system import files
from algorithm.store.files import GrowingFile, write_bytes


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "WINDOWS", True)
    for name in ("O_NOFOLLOW", "O_DIRECTORY"):
        monkeypatch.delattr(os, name)


def refuses(times: int, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    """A method of Path fails a number of times, as where another process has the file open."""
    original, left = getattr(Path, method), [PermissionError(errno.EACCES, "in use")] * times

    def call(path: Path, *arguments: object, **words: object) -> object:
        if left:
            raise left.pop()
        return original(path, *arguments, **words)

    monkeypatch.setattr(Path, method, call)


def test_files_are_written_and_read_where_flags_and_folders_differ(windows: None, tmp_path: Path) -> None:
    write_bytes(tmp_path / "a", b"1\r\n2\n")
    assert read_bytes(tmp_path / "a") == b"1\r\n2\n"
    grows = GrowingFile(tmp_path / "b")
    for line in (b"1\n", b"2\n"):
        grows.append(line)
    grows.sync()
    assert (tmp_path / "b").read_bytes() == b"1\n2\n"
    (tmp_path / "link").symlink_to(tmp_path / "b")
    with pytest.raises(ValueError, match="symbolic link"):  # no flag does so
        read_bytes(tmp_path / "link")
    assert read_bytes(tmp_path / "link", follow=True) == b"1\n2\n"


def test_a_file_is_opened_in_binary(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Windows would translate the ends of lines."""
    monkeypatch.setattr(files, "_FLAGS", 1 << 40)
    monkeypatch.setattr(os, "open", lambda path, flags, mode: flags)
    assert files.open_file(tmp_path, os.O_RDONLY) & 1 << 40


@pytest.mark.parametrize("method", ["replace", "rename"])
def test_a_file_that_another_process_has_open_is_waited_for(
    method: str, windows: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_PAUSE_S", 0.001)
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
    for method, change in (("replace", lambda a: files.replace(a, a)), ("unlink", files.remove_held)):
        refuses(1, monkeypatch, method)
        with pytest.raises(PermissionError):
            change(tmp_path / "a")


def test_a_held_file_is_left_to_whoever_closes_it(
    windows: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").write_text("x")
    refuses(1, monkeypatch, "unlink")
    for exists in (True, False, False):
        files.remove_held(tmp_path / "a")
        assert (tmp_path / "a").exists() is exists


@pytest.mark.parametrize(
    ("mode", "windows", "readable"), [(0o644, False, True), (0o640, False, False), (0o644, True, False)]
)
def test_rights_are_judged_where_a_mode_has_them(
    mode: int, windows: bool, readable: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").touch()
    (tmp_path / "a").chmod(mode)
    monkeypatch.setattr(system, "WINDOWS", windows)
    assert files.others_may_read(tmp_path / "a") is readable
