"""Break the source in one place at a time, and check that a test fails.

The mutations are in ``mutations.yaml`` beside this file. A mutation is found by its snippet alone, so its
file may move. A mutation is caught by a test that fails with it and passes without.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Literal

import yaml

ROOT = Path(__file__).resolve().parents[1]
TABLE = Path(__file__).with_suffix(".yaml")
SOURCE = ("algorithm", "ds")
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")

_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+::[^\[\s]+(?:\[.*?\])?)(?= - |$)", re.M)
_NO_TESTS = (4, 5)  # pytest's exit codes: a path that is not there, and nothing collected

State = Literal["caught", "SURVIVED", "timed out", "not applicable"]


@dataclass(frozen=True, kw_only=True)
class Mutation:
    """A mistake to plant.

    old, new: the text that it replaces, which occurs once in the source, and the text instead
    tests:    arguments of pytest; with ``--timeout=60`` a test that does not end counts as one that fails
    """

    area: str
    name: str
    old: str
    new: str
    tests: str


@dataclass(frozen=True)
class Outcome:
    """Outcome of a mutation; ``by``: the test that caught it, or the reason."""

    mutation: Mutation
    state: State
    by: str = ""

    @property
    def good(self) -> bool:
        """Whether a test has failed."""
        return self.state == "caught"

    @property
    def line(self) -> str:
        """Line of the report on the mutation."""
        return (
            f"{self.state:14} {self.mutation.area}: {self.mutation.name}{f'  {self.by}' if self.by else ''}"
        )


def read_table(file: Path = TABLE) -> list[Mutation]:
    """Return all mutations. Raises TypeError for a column that is unknown or missing."""
    table = yaml.safe_load(file.read_text("utf-8"))
    return [
        Mutation(area=area, name=name, **columns)
        for area, rows in table.items()
        for name, columns in rows.items()
    ]


def read_source(root: Path = ROOT) -> dict[Path, str]:
    """Return the text of each file that may be changed, by its path below ``root``."""
    files = (file for folder in SOURCE for file in sorted((root / folder).rglob("*.py")))
    return {file.relative_to(root): file.read_text("utf-8") for file in files}


def locate(mutation: Mutation, source: Mapping[Path, str]) -> Path:
    """Return the file with the snippet. Raises LookupError unless the source has it once."""
    counts = {path: text.count(mutation.old) for path, text in source.items() if mutation.old in text}
    if sum(counts.values()) != 1:
        places = ", ".join(f"{count} times in {path.as_posix()}" for path, count in counts.items())
        raise LookupError(
            f"{mutation.name}: the snippet must stand in the source once: {places or 'it is not there'}"
        )
    return next(iter(counts))


def copy_tree(target: Path) -> None:
    """Copy the working tree to ``target``: tracked files, and untracked ones that git does not ignore."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)


@contextmanager
def planted(tree: Path, path: Path, mutation: Mutation) -> Iterator[None]:
    """Change the tree by the mutation, for the length of the block."""
    file = tree / path
    before = file.read_text("utf-8")
    try:
        _write(file, before.replace(mutation.old, mutation.new))
        yield
    finally:
        _write(file, before)


def _write(file: Path, text: str) -> None:
    """Write a text, and remove the bytecode, since Python compares only size and seconds of a file."""
    file.write_text(text, "utf-8")
    Path(importlib.util.cache_from_source(str(file))).unlink(missing_ok=True)


def run_tests(tree: Path, arguments: Sequence[str], limit: float) -> tuple[int | None, str]:
    """Run pytest in a tree; return its exit code, None after ``limit`` seconds, and its output."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout=0", "--tb=no"]
    environ = {
        **os.environ,
        **dict.fromkeys(THREADS, "1"),
        "PYTHONPATH": str(tree),
        "CI": "1",
        "COLUMNS": "400",
    }
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output:
        process = subprocess.Popen(
            [*command, *arguments],
            cwd=tree,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # so that processes of the tests can be killed
        )
        try:
            code: int | None = process.wait(limit)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            _end_group(process)
        output.seek(0)
        return code, output.read()


def _end_group(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    finally:
        process.wait()


def examine(
    mutation: Mutation, source: Mapping[Path, str], trees: SimpleQueue[Path], limit: float
) -> Outcome:
    """Run the tests of a mutation in a free tree that has it; return the outcome."""
    try:
        path = locate(mutation, source)
    except LookupError as error:
        return Outcome(mutation, "not applicable", str(error))
    tree = trees.get()
    try:
        with planted(tree, path, mutation):
            code, output = run_tests(tree, ["-x", *shlex.split(mutation.tests)], limit)
    finally:
        trees.put(tree)
    failed = _FAILED.search(output)
    if code is None:
        return Outcome(mutation, "timed out", f"after {limit:g} s: {mutation.tests}")
    if code in _NO_TESTS:
        return Outcome(mutation, "not applicable", f"no such tests: {mutation.tests}")
    if code == 0:
        return Outcome(mutation, "SURVIVED", mutation.tests)
    if failed is None:  # nothing could be imported, so no test has run
        return Outcome(mutation, "not applicable", f"pytest ended with {code}: {output[-300:]!r}")
    return Outcome(mutation, "caught", failed[1])


def without_false_alarms(outcomes: Sequence[Outcome], tree: Path) -> Iterator[Outcome]:
    """Yield the outcomes, less those of tests that also fail without the mutation.

    Raises RuntimeError if the tests cannot be run without mutations.
    """
    tests = sorted({outcome.by for outcome in outcomes if outcome.good})
    code, output = run_tests(tree, tests, limit=3600.0) if tests else (0, "")
    if code not in (0, 1):
        raise RuntimeError(f"without mutations pytest ended with {code}: {output[-300:]}")
    fails = set(_FAILED.findall(output))
    for outcome in outcomes:
        alarm = Outcome(outcome.mutation, "not applicable", f"fails without it, too: {outcome.by}")
        yield alarm if outcome.good and outcome.by in fails else outcome


def chosen(names: Sequence[str], table: Sequence[Mutation]) -> list[Mutation]:
    """Return the mutations of these names or areas, all without any. Raises KeyError for an unknown one."""
    known = {name for mutation in table for name in (mutation.name, mutation.area)}
    if unknown := sorted(set(names) - known):
        raise KeyError(f"there is no mutation and no area {', '.join(unknown)}; --list shows them")
    return [each for each in table if not names or {each.name, each.area} & set(names)]


def main(argv: Sequence[str] | None = None) -> int:
    """Try mutations; return 1 if one was not caught."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="mutations or areas (default: all)")
    parser.add_argument("--jobs", type=int, default=2, help="processes at once, each in a copy of the tree")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds for the tests of a mutation")
    parser.add_argument("--list", action="store_true", help="show them and their tests, and try none")
    options = parser.parse_args(argv)
    try:
        mutations = chosen(options.names, read_table())
    except KeyError as error:
        parser.error(error.args[0])
    if options.list:
        for mutation in mutations:
            print(f"{mutation.area}: {mutation.name}  {mutation.tests}")
        return 0
    with tempfile.TemporaryDirectory(prefix="mutations_") as folder:
        outcomes = try_all(mutations, Path(folder), jobs=options.jobs, limit=options.limit)
    caught = sum(outcome.good for outcome in outcomes)
    print(f"{caught} of {len(outcomes)} mutations caught")
    for outcome in outcomes:
        if not outcome.good:
            print(outcome.line)
    return 0 if caught == len(outcomes) else 1


def try_all(mutations: Sequence[Mutation], folder: Path, *, jobs: int, limit: float) -> list[Outcome]:
    """Try the mutations in copies of the tree below ``folder``; print each outcome as it comes."""
    source, trees, outcomes = read_source(), SimpleQueue[Path](), list[Outcome]()
    for number in range(jobs):
        copy_tree(folder / str(number))
        trees.put(folder / str(number))
    with ThreadPoolExecutor(jobs) as threads:
        for outcome in threads.map(lambda mutation: examine(mutation, source, trees, limit), mutations):
            print(outcome.line, flush=True)
            outcomes.append(outcome)
    return list(without_false_alarms(outcomes, trees.get()))


if __name__ == "__main__":
    sys.exit(main())
