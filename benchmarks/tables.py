"""Fill the tables of the documentation from ``results/``, or check that they are up to date.

A page says where a table goes by a comment, ``table: NAME``, and where it ends by another, ``end``. What
stands between them is written anew; the rest of the page is left as it is. Nothing is measured here.
"""

from __future__ import annotations

import re
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path

from benchmarks.cells import Missing, Results
from benchmarks.harness import RESULTS, ROOT
from benchmarks.rendering import TABLES

NAMES = "evidence learners"
PAGES = (
    *sorted((ROOT / "benchmarks" / "studies").glob("*.md")),
    *(ROOT / "docs" / f"{name}.md" for name in NAMES.split()),
)
"""Pages that hold tables; links in a table are relative to them."""

_BLOCK = re.compile(
    r"^<!-- table: (?P<name>\S+) -->$(?P<text>.*?)(?P<end>^<!-- end -->$|^(?=<!-- table:)|\Z)", re.M | re.S
)


class PageError(Exception):
    """A page asks for a table in a way that cannot be followed."""


def fill(page: str, folder: Path) -> str:
    """The page with every table from the results in a folder.

    Raises PageError for a table that is not known or that has no end.
    """

    def replace(block: re.Match[str]) -> str:
        if not block["end"]:
            raise PageError(f"table {block['name']} has no <!-- end -->")
        return f"<!-- table: {block['name']} -->\n\n{render(block['name'], folder)}\n\n<!-- end -->"

    return _BLOCK.sub(replace, page)


def render(name: str, folder: Path) -> str:
    """A table as Markdown, and what it was measured with; a sentence in its place where nothing was measured.

    Raises PageError for a name that is not known.
    """
    results = Results(folder)
    try:
        text = TABLES[name](results) if name in TABLES else results.stored(name)
    except Missing as missing:
        return f"Not measured yet: `make bench ONLY={missing}`."
    if text is None:
        raise PageError(f"there is no table {name}; known are {', '.join(TABLES)} and those of studies")
    return f"{text}\n\n{results.source()}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Write or check the pages."""
    parser = ArgumentParser(prog="python -m benchmarks.tables", description=(__doc__ or "").splitlines()[0])
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--write", action="store_true", help="write the tables into the pages")
    what.add_argument("--check", action="store_true", help="exit code 1 if a page is not up to date")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the figures")
    parser.add_argument("--pages", nargs="+", type=Path, default=list(PAGES))
    options = parser.parse_args(arguments)
    stale = []
    for page in options.pages:
        before = page.read_text("utf-8")
        try:
            after = fill(before, options.results)
        except PageError as error:
            sys.exit(f"{page.name}: {error}")
        if before == after:
            continue
        if options.write:
            page.write_text(after, "utf-8")
        else:
            stale.append(page.name)
    if stale:
        sys.exit(f"{', '.join(stale)}: not up to date, write with: python -m benchmarks.tables --write")


if __name__ == "__main__":
    main()
