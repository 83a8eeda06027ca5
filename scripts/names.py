"""Find docstrings and local names that are empty without the code around them.

There are four kinds: a docstring that begins with "Return what", "that", "those" or "it"; one of at most
four words that only repeats the name it describes; one in which code acts like a person; and a variable
whose name does not describe its value.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ("algorithm", "ds", "asac", "scripts")
NAMES = ("found", "own", "one", "given", "came", "said", "told")
"""Names of variables that describe nothing."""

PRONOUN = re.compile(r"Returns? (?:what|that|those|it)\b")
PERSON = re.compile(
    r"\b(?:who|whom|whoever|knows?|knew|wants?|wanted|tells?|told|says?|said|asks?|asked|hears?|heard|speaks?|"
    r"believes?|thinks?|forgets?|lives?|lived)\b"
)
"""Verbs of people, and the pronouns of people."""

FILLERS = frozenset("a an the this that its it their them one of for to in on with by as is are be".split())  # noqa: SIM905 - a list of 21 lines
"""Words that add nothing to a name."""

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


class Finding(NamedTuple):
    """A fault: its place in the source, its kind, and the text or name."""

    path: Path
    line: int
    kind: str
    text: str


def docstring_kinds(node: ast.Module | Definition, text: str) -> Iterator[str]:
    """Yield the kinds of faults that a docstring has."""
    if PRONOUN.match(text):
        yield "return"
    if PERSON.search(text):
        yield "person"
    words = re.findall(r"[a-z]+", text.lower())
    if len(words) <= 4 and isinstance(node, Definition):
        name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", node.name).lower()
        known = FILLERS | {word.removesuffix("s") for word in name.split("_")}
        if all(word in FILLERS or word.removesuffix("s") in known for word in words):
            yield "empty"


def findings(path: Path) -> Iterator[Finding]:
    """Yield the faults of a file."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Module | Definition) and (text := ast.get_docstring(node)):
            line = node.body[0].lineno
            for kind in docstring_kinds(node, text):
                yield Finding(path, line, kind, text.splitlines()[0])
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in NAMES:
            yield Finding(path, node.lineno, "name", node.id)
        if isinstance(node, ast.arg) and node.arg in NAMES:
            yield Finding(path, node.lineno, "name", node.arg)


def main(argv: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Print the faults of the source, or of files; return 1 if there are any."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", action="store_true", help="print numbers only, of each package and kind")
    parser.add_argument("paths", nargs="*", type=Path, help="files or folders (default: all of the source)")
    options = parser.parse_args(argv)
    folders = options.paths or [root / name for name in SOURCE]
    paths = [path.resolve() for path in folders]
    files = [file for path in paths for file in ([path] if path.is_file() else sorted(path.rglob("*.py")))]
    faults = [fault for file in files for fault in findings(file)]
    if options.count:
        counts = Counter((fault.path.parent, fault.kind) for fault in faults)
        for (folder, kind), number in sorted(counts.items()):
            print(f"{folder.resolve().relative_to(root)!s:40}{kind:10}{number:>6}")
        print(dict(Counter(fault.kind for fault in faults)))
    else:
        for path, line, kind, text in faults:
            print(f"{path}:{line}: {kind}: {text}", file=sys.stderr)
    return int(bool(faults))


if __name__ == "__main__":
    raise SystemExit(main())
