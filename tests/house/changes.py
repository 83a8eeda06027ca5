"""The extras that a change cannot have broken, by the files that it touches and by who imports whom.

``python -m tests.house.changes COMMIT`` prints the words with which pytest leaves out the tests of those that
nothing has touched since that commit.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.house.import_rules import Module, all_imported, imports, within

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ("algorithm", "asac", "benchmarks", "ds", "scripts", "tests")
_FOLDERS = (("algorithm", "extras"), ("tests", "extras"))
_COMMON = ("tests.conftest", "tests.extras.conftest")


def changed_since(root: Path, commit: str) -> list[str]:
    """Return the files that differ from a commit, and those that git does not know."""
    commands = (
        ["diff", "--name-only", "--no-renames", "-z", commit, "--"],
        ["ls-files", "-zo", "--exclude-standard"],
    )
    outputs = [
        subprocess.run(["git", *words], cwd=root, check=True, capture_output=True) for words in commands
    ]
    return [file for output in outputs for file in output.stdout.decode().split("\0") if file]


def untouched(root: Path, changed: Iterable[str]) -> frozenset[str]:
    """Return the extras whose tests need not run for a change of these files.

    A module touches the extras that import it, or whose tests do, at any distance. What lies in the folder of
    an extra and is none touches that extra and those that import it. Pages touch nothing, and anything else
    everything. What an extra has from the table of names alone does not count.
    """
    graph, changed = read_graph(root), list(changed)
    extras = {folder.parent.name for folder in root.glob("tests/extras/*/__init__.py")}
    names = {extra: _needed(extra, graph) for extra in extras}
    return frozenset(
        extra for extra in extras if not any(_touches(file, names[extra], graph) for file in changed)
    )


def read_graph(root: Path) -> dict[str, set[str]]:
    """Return module -> the modules that its import runs, packages above it included."""
    files = [*root.glob("main*.py"), *(file for folder in SOURCE for file in (root / folder).rglob("*.py"))]
    texts = {_module(file.relative_to(root)): file for file in files}
    modules = [
        Module(name, file.read_text("utf-8"), file.name == "__init__.py") for name, file in texts.items()
    ]
    imported = {module.name: imports(module, texts.keys()) | {module.name} for module in modules}
    return {
        name: {above for target in targets for above in _with_packages(target)} & texts.keys()
        for name, targets in imported.items()
    }


def _module(path: Path) -> str:
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


def _with_packages(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[:end]) for end in range(1, len(parts) + 1)]


def _needed(extra: str, graph: Mapping[str, set[str]]) -> set[str]:
    """Return the modules of an extra and of its tests, and all that they import."""
    folders = [".".join([*folder, extra]) for folder in _FOLDERS]
    own = {name for name in graph if name in _COMMON or any(within(name, folder) for folder in folders)}
    return own.union(*(all_imported(name, graph) for name in own))


def _touches(file: str, needed: set[str], graph: Mapping[str, set[str]]) -> bool:
    path = Path(file)
    if path.suffix == ".py" and _module(path) in graph:
        return _module(path) in needed
    if path.parts[:2] in _FOLDERS and len(path.parts) > 3:
        return ".".join(path.parts[:3]) in needed
    return path.suffix != ".md" and path.parts[0] != "docs"


def main(commit: str, root: Path = ROOT) -> None:
    """Print the words, on one line."""
    print(*(f"--ignore=tests/extras/{name}" for name in sorted(untouched(root, changed_since(root, commit)))))


if __name__ == "__main__":
    main(sys.argv[1])
