"""Every example in the documentation works: code runs, configuration loads, links lead on.

A block of a language that is not known here is a failure and not a pass.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from algorithm.config import Config, ConfigError, load_config, load_config_file
from scripts.pages import PAGES as GENERATED
from scripts.pages import filled

ROOT = Path(__file__).resolve().parents[2]
NO_PAGES_OF_OURS = {".venv", ".git", "models", "node_modules", ".peers"}

UNCHECKED_LANGUAGES = {"text", "json", "csv", "js", "mermaid", "sh"}
"""Languages without a check here; the commands of ``sh`` have theirs in ``test_doc_commands``."""

FENCE = re.compile(r"^(?P<fence>`{3,})(?P<language>[^\n`]*)\n(?P<text>.*?)^(?P=fence) *$", re.M | re.S)
LINK = re.compile(r"!?\[[^\]]*\]\((?P<target>[^)\s]+)(?: \"[^\"]*\")?\)")
HEADING = re.compile(r"^#+ (?P<title>.+?)\s*$", re.M)


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: Path
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def find_pages() -> list[Path]:
    """Every Markdown page of the project."""
    pages = ROOT.rglob("*.md")
    return sorted(page for page in pages if not NO_PAGES_OF_OURS & set(page.relative_to(ROOT).parts))


def blocks_of(page: Path, text: str) -> list[Block]:
    """The fenced blocks of a page."""
    return [
        Block(page, text.count("\n", 0, m.start()) + 1, m["language"].strip(), m["text"])
        for m in FENCE.finditer(text)
    ]


def commands_of(text: str) -> list[list[str]]:
    """The commands of a shell block as words; comments, prompts and variables set in front are left out."""
    lines = text.replace("\\\n", " ").splitlines()
    commands = [shlex.split(line.removeprefix("$ "), comments=True) for line in lines]
    return [words for words in map(_without_variables, commands) if words]


def _without_variables(words: list[str]) -> list[str]:
    while words and re.match(r"[A-Z_]+=", words[0]):
        words = words[1:]
    return words


def check_yaml(text: str, folder: Path) -> None:
    """Fail unless the text is a section of a configuration, or several under their names, and loads."""
    file = folder / "config.yaml"
    file.write_text(text)
    content = yaml.safe_load(text)
    if looks_like_section(content):
        load_config_file(file)
        return
    sections = content if isinstance(content, dict) else {}
    assert sections, "not a configuration: call the block text"
    for name, section in sections.items():
        assert looks_like_section(section), f"{name} is not a section of a configuration: call the block text"
        load_config(str(folder), name)


def looks_like_section(content: Any) -> bool:
    """Whether some key is one of a configuration's blocks, or would like to be."""
    if not isinstance(content, dict):
        return False
    return any(
        key in Config.model_fields or key == "inherited" or str(key).endswith("_config") for key in content
    )


def slug(title: str) -> str:
    """The anchor that a heading gets on the project's pages."""
    plain = re.sub(r"[`*]|\[|\]\([^)]*\)", "", title).lower()
    return re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")


def dead_links(page: Path, text: str) -> list[str]:
    """Relative links of a page that lead nowhere, anchors included."""
    return [
        target for target in LINK.findall(FENCE.sub("", text)) if not _leads_somewhere(page, text, target)
    ]


def _leads_somewhere(page: Path, text: str, target: str) -> bool:
    if re.match(r"[a-z]+:", target):
        return True
    path, _, anchor = target.partition("#")
    goal = page.parent / path if path else page
    if path and not goal.exists():
        return False
    if not anchor or goal.suffix != ".md":
        return True
    headings = HEADING.findall(FENCE.sub("", goal.read_text("utf-8") if path else text))
    return anchor in map(slug, headings)


PAGES = find_pages()
BLOCKS = [block for page in PAGES for block in blocks_of(page, page.read_text("utf-8"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    assert dead_links(page, page.read_text("utf-8")) == []


def test_generated_parts_are_up_to_date() -> None:
    for name in GENERATED:
        text = (ROOT / "docs" / name).read_text("utf-8")
        assert filled(text) == text, "run python scripts/pages.py --write"


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_examples_work(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_block(block, tmp_path, monkeypatch)


def check_block(block: Block, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail unless the block works."""
    if block.language == "python":
        monkeypatch.chdir(folder)
        # The page's own would learn.
        shorter = re.sub(r"(max_step=|learn\()[\d_]{4,}", r"\g<1>60", block.text)
        exec(compile(shorter, str(block), "exec"), {"__name__": "example"})
    elif block.language == "yaml":
        check_yaml(block.text, folder)
    else:
        assert block.language in UNCHECKED_LANGUAGES, f"{block}: what language is this? (a block needs one)"


@pytest.mark.parametrize(
    ("language", "text", "error"),
    [
        ("python", "raise ValueError", ValueError),
        ("python", "1 +", SyntaxError),
        ("yaml", "sac_config: {n_stepp: 3}", ConfigError),
        ("yaml", "default: {sac_config: {n_step: two}}", ConfigError),
        ("yaml", "sack_config: {n_step: 2}", ConfigError),
        ("yaml", "steps: {n: 2}", AssertionError),
        ("yaml", "- 1", AssertionError),
        ("", "anything", AssertionError),
    ],
)
def test_a_wrong_example_fails(
    language: str, text: str, error: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(error):
        check_block(Block(ROOT / "page.md", 1, language, text), tmp_path, monkeypatch)


def test_blocks_and_links_are_found() -> None:
    text = "# A *b* `c`!\n\n[x](#a-b-c) [y](#d) [z](nowhere.md) ![](Makefile) <https://x.org>\n```sh\n[q](gone)\n```\n"
    page = ROOT / "page.md"
    assert dead_links(page, text) == ["#d", "nowhere.md"]
    assert blocks_of(page, text) == [Block(page, 4, "sh", "[q](gone)\n")]
    assert commands_of("A=1 b c # d\n\n$ e \\\n  f") == [["b", "c"], ["e", "f"]]


def test_a_row_about_environments_is_a_suite_with_a_section_and_an_extra_that_exists() -> None:
    page = (ROOT / "docs" / "environments.md").read_text("utf-8")
    extras = (ROOT / "pyproject.toml").read_text("utf-8")
    rows = dict(re.findall(r"^\| \[([\w ]+)\]\(#[^|]+\|[^|]+\|[^|]+\| (\S+) \|", page, re.M))
    assert re.findall(r"^## (.+)$", page, re.M) == [*rows, "Security"]
    assert [suite for suite, extra in rows.items() if extra == "none"] == ["Gymnasium"]
    for extra in set(rows.values()) - {"none"}:
        assert re.search(rf"^{extra.strip('`')} = \[", extras, re.M)
