"""Hooks of the documentation site, which add pages from outside ``docs/`` and mend links."""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
OUTSIDE = (
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "algorithm/README.md",
    "benchmarks/README.md",
)

_LOGGER = logging.getLogger("mkdocs.hooks.site")
_LINK = re.compile(r"(?P<image>!?)\[(?P<text>[^\]]*)\]\((?P<target>[^)\s#]*)(?P<anchor>#[^)\s]*)?\)")
_FENCE = re.compile(r"(^(`{3,}).*?^\2 *$)", re.M | re.S)


def outside() -> list[str]:
    """Return the pages of the site that lie outside ``docs/``, by their paths in the project."""
    return [*OUTSIDE, *_glob("benchmarks/studies/*.md"), *_glob("envs/*/*/README.md")]


def _glob(pattern: str) -> list[str]:
    return sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob(pattern))


def on_config(config: MkDocsConfig) -> None:
    """Add a section with all studies to the navigation."""
    config.nav = [*(config.nav or []), {"Studies": _glob("benchmarks/studies/*.md")}]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages from outside ``docs/`` to the site."""
    for path in outside():
        files.append(File.generated(config, path, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Return a page whose links lead to other pages of the site; links to code become plain text."""
    source = page.file.src_uri
    folder = Path(source if source in outside() else f"docs/{source}").parent

    def replaced(link: re.Match[str]) -> str:
        target, anchor = link["target"], link["anchor"] or ""
        if not target or re.match(r"[a-z]+:", target):
            return link[0]
        goal = os.path.normpath(folder / target)
        inside = goal.removeprefix("docs/")
        if files.get_file_from_path(inside) is None:
            if not (ROOT / goal).exists():  # --strict counts it
                _LOGGER.warning("%s links to %s, which does not exist", source, target)
            return link["text"]
        relative = os.path.relpath(inside, Path(source).parent)
        return f"{link['image']}[{link['text']}]({Path(relative).as_posix()}{anchor})"

    pieces = _FENCE.split(markdown)  # text, fenced block, its fence, text, …
    return "".join(
        _LINK.sub(replaced, piece) if number % 3 == 0 else piece
        for number, piece in enumerate(pieces)
        if number % 3 < 2
    )
