"""Hooks of the documentation site: pages from outside ``docs/``, links, flags, docstrings."""

from __future__ import annotations

import argparse
import logging
import os
import re
import sys
from pathlib import Path
from typing import Any

import griffe
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from typing_extensions import override

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from algorithm.config.cli import train_parser  # noqa: E402 - the path comes before
from algorithm.config.cli_ds import distributed_parser  # noqa: E402

OUTSIDE = ("CHANGELOG.md", "CONTRIBUTING.md", "algorithm/README.md", "benchmarks/README.md")

_LOGGER = logging.getLogger("mkdocs.hooks.site")
_LINK = re.compile(r"(?P<image>!?)\[(?P<text>[^\]]*)\]\((?P<target>[^)\s#]*)(?P<anchor>#[^)\s]*)?\)")
_FENCE = re.compile(r"(^(`{3,}).*?^\2 *$)", re.M | re.S)
_FIELD = re.compile(r"^(?P<names>\*{0,2}\w+(?:, \w+)*): +", re.M)


def outside() -> list[str]:
    """Return the pages of the site that lie outside ``docs/``, by their paths in the project."""
    tasks = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("envs/*/*/README.md"))
    return [*OUTSIDE, *tasks]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages from outside."""
    for path in outside():
        files.append(File.generated(config, path, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let the links of a page lead to other pages of the site; those to code become plain text."""
    own = page.file.src_uri
    for program, parser in (("asac", train_parser()), ("asac-ds", distributed_parser())):
        markdown = markdown.replace(f"<!-- flags: {program} -->", _flags(parser))
    folder = Path(own if own in outside() else f"docs/{own}").parent

    def replaced(found: re.Match[str]) -> str:
        target, anchor = found["target"], found["anchor"] or ""
        if not target or re.match(r"[a-z]+:", target):
            return found[0]
        goal = os.path.normpath(folder / target)
        inside = goal.removeprefix("docs/")
        if files.get_file_from_path(inside) is None:
            if not (ROOT / goal).exists():  # --strict counts it
                _LOGGER.warning("%s links to %s, which does not exist", own, target)
            return found["text"]
        relative = os.path.relpath(inside, Path(own).parent)
        return f"{found['image']}[{found['text']}]({Path(relative).as_posix()}{anchor})"

    parts = _FENCE.split(markdown)  # text, fenced block, its fence, text, …
    return "".join(
        _LINK.sub(replaced, part) if number % 3 == 0 else part
        for number, part in enumerate(parts)
        if number % 3 < 2
    )


def _flags(parser: argparse.ArgumentParser) -> str:
    """Return the flags of a command as tables, one for each group."""
    tables = []
    for group in parser._action_groups:
        rows = []
        for action in group._group_actions:
            words = ", ".join(f"`{word}`" for word in action.option_strings) or f"`{action.dest}`"
            value = action.metavar or (action.dest.upper() if action.nargs != 0 else "")
            said = (action.help or "").replace("|", "\\|")
            rows.append(f"| {words} | {f'`{value}`' if value and action.option_strings else ''} | {said} |")
        if rows:
            tables.append(
                "\n".join([f"### {group.title}", "", "| flag | value | meaning |", "|---|---|---|", *rows])
            )
    return "\n\n".join(tables)


class Fields(griffe.Extension):
    """Lines ``name: meaning`` of docstrings as lists, and names of Sphinx roles as code."""

    @override
    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            text = re.sub(r":\w+:`~?([^`]+)`", r"`\1`", obj.docstring.value.replace("``", "`"))
            blocks = text.split("\n\n")
            obj.docstring.value = "\n\n".join(map(_as_list, blocks))


def _as_list(block: str) -> str:
    """Return a paragraph with its lines ``name: meaning`` as a list."""
    text = _FIELD.sub(lambda found: f"\n- `{found['names']}`: ", block)
    head, _, rest = text.partition("\n- ")
    if not rest:
        return text
    items = re.sub(r"\n(?=[A-Z])", "\n\n", rest.replace("\n\n- ", "\n- "))
    return f"{head.strip()}\n\n- {items}".strip()
