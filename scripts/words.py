"""Count the words of prose on the pages, and hold their number to the budget of pyproject.toml.

Prose is text without blocks of code and tables, on pages that are not generated.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
GENERATED = ("api.md", "configuration.md", "metrics.md")
"""Pages of ``docs/`` that a script writes."""

CODE = re.compile(r"^ *(?P<fence>`{3,})[^\n`]*\n.*?^ *(?P=fence) *$", re.M | re.S)
TABLE = re.compile(r"^ *\|.*\n?", re.M)
COMMENT = re.compile(r"<!--.*?-->", re.S)
TARGET = re.compile(r"(?<=\])\([^)\s]+(?: \"[^\"]*\")?\)")


def pages(root: Path) -> list[Path]:
    """Return the pages whose prose is counted."""
    docs = sorted(page for page in (root / "docs").glob("*.md") if page.name not in GENERATED)
    return [root / "README.md", root / "CONTRIBUTING.md", *docs]


def prose(text: str) -> str:
    """Return a page without its code, tables, comments and the targets of its links."""
    for left_out in (CODE, COMMENT, TABLE, TARGET):
        text = left_out.sub("", text)
    return text


def words(text: str) -> int:
    """Return the number of words in a page's prose, without marks of Markdown."""
    return sum(any(char.isalnum() for char in word) for word in prose(text).split())


def main(argv: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Print the counts; with ``--check`` return 1 if there are more pages or words than the budget allows."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--check", action="store_true", help="hold the counts to [tool.words] of pyproject.toml"
    )
    options = parser.parse_args(argv)
    counts = {page.relative_to(root): words(page.read_text("utf-8")) for page in pages(root)}
    for page, count in counts.items():
        print(f"{page!s:32}{count:>8,}")
    generated = [name for name in GENERATED if (root / "docs" / name).exists()]
    total, number = sum(counts.values()), len(counts) + len(generated)
    print(f"{f'{number} pages':32}{total:>8,}")
    budget = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["tool"]["words"]
    if options.check and (total > budget["prose"] or number > budget["pages"]):
        limits = f"{budget['pages']} pages and {budget['prose']:,} words of prose"
        print(f"more than {limits} ([tool.words] in pyproject.toml): say it shorter", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
