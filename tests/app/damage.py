"""Damage to the files of a run, as a disk or somebody with a text editor may do it."""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import shutil
import stat
from contextlib import suppress
from pathlib import Path

from tests.lib.malice import sign

NUMBERS = (
    "NaN",
    "Infinity",
    "-Infinity",
    "1e999",
    "-1",
    "0.5",
    "9" * 30,
    "9" * 5000,
    "1e300",
    "-0",
    "2147483648",
)
VALUES = (
    *NUMBERS,
    *('""', '"x"', '"../../x"', '"\\u0000"', '"\\ud800"', '"\\u001b[31m"'),
    *("null", "true", "[]", "{}", "[[]]", '{"a": 1}'),
    "[" * 30 + "]" * 30,
    "[" * 200 + "]" * 200,
    "[" * 100_000,
)  # fmt: skip
"""What a value of JSON is replaced by."""
_VALUE = re.compile(r'[:,\[]\s*("[^"]*"|[^\s:,\[\]{}]+)')
"""A value of JSON, YAML or CSV, behind what stands in front of it."""


def targets(run: Path) -> list[Path]:
    """Every file of a run, but what only others read."""
    return sorted(path for path in run.rglob("*") if _is_plain(path) and "tfevents" not in path.name)


def _is_plain(path: Path) -> bool:
    found = path.lstat()
    return stat.S_ISREG(found.st_mode) and found.st_size < 2**26


def hurt(run: Path, rng: random.Random) -> str:
    """Damage one file of a run; what was done, for a person."""
    kinds: dict[str, list[Path]] = {}
    for file in targets(run):  # there are many segments and one state
        kinds.setdefault(re.sub(r"\d", "", file.name), []).append(file)
    file = rng.choice(kinds[rng.choice(sorted(kinds))])
    ways = [_bytes_of, _other_kind]
    if file.suffix in (".json", ".jsonl", ".csv", ".yaml", ".lock"):
        ways += [_swap] * 3
    done = rng.choice(ways)(file, rng)
    if file.parent.name.startswith("step_") and rng.random() < 0.7:
        _list_anew(file.parent)
        done += ", manifest signed anew"
    return f"{file.relative_to(run)}: {done}"


def _bytes_of(file: Path, rng: random.Random) -> str:
    """Other bytes: a bit flipped, an end cut off, more behind, or noise."""
    data = file.read_bytes() or b"\0"
    at = rng.randrange(len(data))
    damaged = {
        f"bit of byte {at} flipped": data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :],
        f"cut to {at} bytes": data[:at],
        "more behind": data + rng.choice([b"\0", b"}", b"\n", b"\xff", data]),
        "noise": rng.randbytes(rng.choice([0, 1, 10, 1000])),
    }
    done = rng.choice([*damaged])
    file.write_bytes(damaged[done])
    return done


def _other_kind(file: Path, rng: random.Random) -> str:
    """Something that is no plain file, nothing, or a hole that is far too long."""
    kind = rng.choice(["pipe", "folder", "nothing", "zero", "itself", "nowhere", "outside", "hole"])
    file.unlink()
    if kind == "pipe":
        os.mkfifo(file)
    elif kind == "folder":
        file.mkdir()
    elif kind == "hole":
        file.touch()
        os.truncate(file, 2**41)
    elif kind != "nothing":
        where = {"zero": "/dev/zero", "itself": file, "nowhere": "/nowhere/at/all", "outside": "/etc/passwd"}
        file.symlink_to(where[kind])
    return kind


def _swap(file: Path, rng: random.Random) -> str:
    """Another value in the place of one."""
    text, value = file.read_bytes().decode("utf-8", "replace"), rng.choice(VALUES)
    places = [found.span(1) for found in _VALUE.finditer(text)]
    start, end = rng.choice(places or [(0, len(text))])
    file.write_text(text[:start] + value + text[end:])
    return f"{text[start:end][:20]!r} is {value[:20]}"


def _list_anew(checkpoint: Path) -> None:
    """Make the manifest agree with what stands in the files, unless one is missing or no file at all."""
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        manifest = json.loads(_read(checkpoint / "manifest.json"))
        entries = [(manifest["files"], name, name) for name in manifest["files"]]
        for where, key, name in (*entries, (manifest["replay"], "index", "replay.json")):
            data = _read(checkpoint / name)
            where[key] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        sign(checkpoint, manifest)


def _read(file: Path) -> bytes:
    if not _is_plain(file):  # a pipe would hang
        raise OSError(file)
    return file.read_bytes()


def fresh(original: Path, copy: Path) -> None:
    """A copy of a run that can be damaged; a lock stands in it, as after a kill."""
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(original, copy)
    lock = {"pid": 2**22 + 1, "host": os.uname().nodename, "started": 1.0, "command": "python main.py"}
    (copy / "run.lock").write_text(json.dumps(lock))
