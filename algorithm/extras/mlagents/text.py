"""Translated sections as YAML, with comments on each key and on those without counterpart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from textwrap import indent
from typing import Any

from algorithm.config.schema import MERGE_KEYS, Config
from algorithm.config.sections import DEFAULT_SECTION
from algorithm.config.tree import KeyPath
from algorithm.config.yaml_io import inline, write_yaml

_ORDER = [*Config.model_fields, *MERGE_KEYS]


@dataclass(frozen=True)
class OurValue:
    """A value of our file, and the comment behind it."""

    value: Any
    remark: str = ""


@dataclass
class OurSection:
    """The section to write, ``default``.

    lines:    values by path
    comments: at the head of the file: reason -> texts, each once
    """

    lines: dict[KeyPath, OurValue] = field(default_factory=dict)
    comments: dict[str, dict[str, None]] = field(default_factory=dict)

    def comment(self, text: str, why: str) -> None:
        """Add a comment; texts with the same reason share a line."""
        self.comments.setdefault(why, {})[text] = None


def yaml_of(section: OurSection, head: str) -> str:
    """Return the text of a file: ``head`` and all comments, then the section."""
    comments = [f"# ml-agents: {', '.join(texts)} — {why}" for why, texts in section.comments.items()]
    lines = [f"# {head}", *comments, "", f"{DEFAULT_SECTION}:", *_block(section, (), 1)]
    return "\n".join(lines) + "\n"


def _block(section: OurSection, path: KeyPath, depth: int) -> Iterator[str]:
    """Yield the lines of a block: values and inner blocks."""
    pad = "  " * depth
    names = list(dict.fromkeys(key[len(path)] for key in section.lines if key[: len(path)] == path != key))
    for name in names if path else sorted(names, key=_ORDER.index):
        at = (*path, name)
        line = section.lines.get(at)
        if line is None:
            yield f"{pad}{inline(name)}:"
            yield from _block(section, at, depth + 1)
        elif isinstance(line.value, Mapping) and name not in ("env_args",):
            yield f"{pad}{inline(name)}:{_remark(line)}"
            yield from indent(write_yaml(line.value), "  " * (depth + 1)).splitlines()
        else:
            yield f"{pad}{inline(name)}: {inline(line.value)}{_remark(line)}"


def _remark(line: OurValue) -> str:
    """Return the comment behind a value; empty without one."""
    return f" # {line.remark}" if line.remark else ""
