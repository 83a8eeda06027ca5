"""The one reader of a run's files: what it takes, and what it names instead of hanging or passing it on."""

import json
import os
import socket

import pytest

from algorithm.app.console.output import RunLog
from algorithm.core.errors import StorageError
from algorithm.core.reading import open_plain, parse_json, read_bytes, read_json, read_lines
from algorithm.store.files import GrowingFile

pytestmark = pytest.mark.fault("F42")


@pytest.mark.parametrize(("text", "why"), [
    ('{"a": NaN}', "NaN is not a JSON number"),
    ('{"a": -Infinity}', "-Infinity is not a JSON number"),
    ('{"a": 1e999}', "1e999 is too large a number"),
    ('{"a": ' + "9" * 41 + "}", "a whole number has 41 digits"),
    ("[" * 100_000, "nested too deeply"),
    (b'{"a": "\xff"}', "utf-8"),
    ("", "Expecting value"),
])  # fmt: skip
def test_what_is_no_strict_json_is_refused(text, why):
    with pytest.raises(ValueError, match=why):
        parse_json(text)


def test_what_a_run_writes_is_read():
    state = {"rng": 2**127 + 1, "x": [1.5, None, True, {"a": "ä"}], "deep": []}
    assert parse_json(json.dumps(state)) == state


def test_only_a_plain_file_of_a_bounded_size_is_read_and_nothing_is_waited_for(cwd):
    (cwd / "plain").write_bytes(b"12345")
    os.mkfifo("pipe")
    (cwd / "folder").mkdir()
    for name, target in (("link", "plain"), ("circle", "circle"), ("zero", "/dev/zero")):
        (cwd / name).symlink_to(target)
    (cwd / "hole").touch()
    os.truncate("hole", 2**41)
    before = sorted(cwd.iterdir())
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")
        for name in ("pipe", "folder", "socket", "link", "circle", "zero", "hole"):
            with pytest.raises(
                (ValueError, OSError), match=r"not a regular|directory|symbolic link|far too many"
            ):
                read_bytes(cwd / name)
            for read in (read_json, read_lines):
                with pytest.raises(StorageError):
                    read(cwd / name)
            for write in (lambda path: GrowingFile(path).append(b"x"), RunLog) if name != "hole" else ():
                with pytest.raises(OSError):
                    write(cwd / name)
        with pytest.raises(ValueError, match="not a regular file"):
            read_bytes(cwd / "zero", follow=True)
    assert read_bytes(cwd / "link", follow=True) == read_bytes(cwd / "plain", 5) == b"12345"
    with pytest.raises(ValueError, match="far too many"):
        open_plain(cwd / "plain", 4)
    assert sorted(cwd.iterdir()) == sorted([*before, cwd / "socket"])
