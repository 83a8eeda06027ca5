"""Count the statements of the source, by package, and hold them to the budgets of pyproject.toml."""

from __future__ import annotations

import argparse
import ast
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ("algorithm", "ds", "asac")
EXTRAS = "algorithm/extras"
BUDGETS = {"core": ("algorithm", "asac"), "extras": (EXTRAS,), "ds": ("ds",), "tests": ("tests",)}
"""Keys of ``[tool.shape]`` in pyproject.toml, and the folders whose statements they limit; ``core`` is all of
its folders but the extras."""

ADVICE = "Whoever raises the number says in the commit what went instead, or why nothing could."
ROW = "{:24}{:>6}{:>8}{:>12}{:>8}{:>15}{:>15}"


@dataclass
class Shape:
    """Counts of a package; docstrings are not counted as statements.

    packed: assignments of a tuple to attributes, ``self.a, self.b = …``: several statements in one
    files, functions: number of lines of each
    """

    statements: int = 0
    packed: int = 0
    files: list[int] = field(default_factory=list)
    functions: list[int] = field(default_factory=list)

    def add(self, text: str) -> None:
        """Add the counts of a file's text. Raises SyntaxError if it cannot be parsed."""
        for node in ast.walk(ast.parse(text)):
            self.statements += isinstance(node, ast.stmt) and not _is_docstring(node)
            self.packed += _is_packed(node)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                self.functions.append((node.end_lineno or node.lineno) - node.lineno + 1)
        self.files.append(text.count("\n"))

    def row(self, name: str) -> str:
        """Return the package's line of the table."""
        counts = (len(self.files), sum(self.files), self.statements, self.packed)
        return ROW.format(name, *counts, _spread(self.files), _spread(self.functions))


def _is_docstring(node: ast.AST) -> bool:
    value = node.value if isinstance(node, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def _is_packed(node: ast.AST) -> bool:
    target = node.targets[0] if isinstance(node, ast.Assign) else None
    return isinstance(target, ast.Tuple) and any(isinstance(x, ast.Attribute) for x in target.elts)


def _spread(values: Sequence[int]) -> str:
    """Return median, ninth decile and maximum of values, as ``6/19/70``."""
    ordered = sorted(values) or [0]
    return "/".join(str(ordered[int(share * (len(ordered) - 1))]) for share in (0.5, 0.9, 1.0))


def measure(root: Path, folders: Sequence[str]) -> dict[str, Shape]:
    """Return the shape of each package in ``folders``, by name; print the files that cannot be parsed.

    Each folder of the extras is a package.
    """
    packages: defaultdict[str, Shape] = defaultdict(Shape)
    for file in (file for folder in folders for file in sorted((root / folder).rglob("*.py"))):
        path = file.relative_to(root)
        levels = 3 if path.as_posix().startswith(f"{EXTRAS}/") else 2
        try:
            packages["/".join(path.parts[:-1][:levels])].add(file.read_text("utf-8"))
        except SyntaxError as error:
            print(f"{path.as_posix()}: not counted, it cannot be parsed ({error})", file=sys.stderr)
    return packages


def print_table(packages: dict[str, Shape]) -> None:
    """Print a line for each package, the largest first, and a line of totals."""
    total = Shape()
    print(ROW.format("package", "files", "lines", "statements", "packed", "a file", "a function"))
    for name, shape in sorted(packages.items(), key=lambda item: -item[1].statements):
        print(shape.row(name))
        total.statements += shape.statements
        total.packed += shape.packed
        total.files += shape.files
        total.functions += shape.functions
    print(total.row("total"), " of lines: median/90 %/max")


def statements(root: Path) -> dict[str, int]:
    """Return the number of statements that each budget limits, by the budget's key."""
    shapes = {key: measure(root, folders) for key, folders in BUDGETS.items()}
    shapes["core"] = {name: shape for name, shape in shapes["core"].items() if not name.startswith(EXTRAS)}
    return {key: sum(shape.statements for shape in of.values()) for key, of in shapes.items()}


def check(root: Path) -> bool:
    """Return whether the source keeps its budgets; print those that it exceeds."""
    budgets = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["tool"]["shape"]
    exceeded = {key: number for key, number in statements(root).items() if number > budgets[key]}
    for key, number in exceeded.items():
        budget = f"the budget is {budgets[key]:,} ([tool.shape] {key} in pyproject.toml)"
        print(f"{key}: {number:,} statements, {budget}. {ADVICE}", file=sys.stderr)
    return not exceeded


def main(argv: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Print the table, or check the budgets; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="*", default=SOURCE, help=f"default: {' '.join(SOURCE)}")
    parser.add_argument("--check", action="store_true", help="compare with [tool.shape] of pyproject.toml")
    options = parser.parse_args(argv)
    if options.check:
        return int(not check(root))
    print_table(measure(root, options.folders))
    print("statements:", ", ".join(f"{key} {number:,}" for key, number in statements(root).items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
