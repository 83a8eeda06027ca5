"""Files generated from the schema: the commented default listings, and the Markdown page.

``python scripts/reference.py --write`` writes the files, ``--check`` compares them.
"""

from __future__ import annotations

import argparse
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Literal, get_args, get_origin

from pydantic.fields import FieldInfo

_ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(_ROOT))

# The path comes before.
from algorithm.config.schema import DISTRIBUTED_DEFAULTS, MERGE_KEYS, Config, fields  # noqa: E402
from algorithm.config.tree import KeyPath  # noqa: E402
from algorithm.config.validation import default_text, expected  # noqa: E402
from algorithm.config.yaml_io import inline  # noqa: E402
from algorithm.core.fields import block_of, facts_of  # noqa: E402
from scripts.reference_head import PAGE_HEAD  # noqa: E402

_WIDTH = 100

_YAML_HEAD = """\
Every key with its default. Generated from the schema by `python scripts/reference.py --write`.
Do not edit. A task's config.yaml lists only what differs, in sections of this shape.
[shared]: the learner and its actors need the same value. [fixed]: cannot change when a run is resumed.
"""

_SHORT = {
    "text that is not empty": "text",
    "a whole number": "int",
    "whole numbers": "ints",
    "a number": "float",
    "numbers": "floats",
    "a mapping": "mapping",
    "a list": "list",
}
"""Words of an error message → those of the page; earlier ones go first."""


def default_yaml(defaults: Mapping[str, object]) -> str:
    """Return the default listing: every key of `Config` with its description as a comment, in order.

    defaults: dotted path -> another default than the schema's
    """
    lines = _comment(" ".join(_YAML_HEAD.split()), "")
    for name, field in Config.model_fields.items():
        lines += ["", *_yaml_lines((name,), field, "", defaults)]
    lines += ["", *_comment(MERGE_KEYS["ma_config"], ""), "ma_config: null"]
    return "\n".join(lines) + "\n"


def _yaml_lines(
    path: tuple[str, ...], field: FieldInfo, indent: str, defaults: Mapping[str, object]
) -> Iterator[str]:
    """Yield the listing of a key, or of a block with all its keys."""
    block = block_of(field)
    marks = "".join(f"[{mark}] " for mark in _marks(field))
    choices = f" One of: {expected(path)}." if block is None and _is_choice(field) else ""
    yield from _comment(f"{marks}{field.description}{choices}", indent)
    if block is None:
        if facts_of(field).required:
            yield f"{indent}# {path[-1]}:"
            return
        other = defaults.get(".".join(path))
        yield f"{indent}{path[-1]}: {default_text(field) if other is None else inline(other)}"
        return
    yield f"{indent}{path[-1]}:"
    for key, inner in block.model_fields.items():
        yield from _yaml_lines((*path, key), inner, indent + "  ", defaults)


def _is_choice(field: FieldInfo) -> bool:
    """Return whether a key has a list of valid values."""
    kind = field.annotation
    return any(get_origin(part) is Literal for part in (kind, *get_args(kind)))


def _marks(field: FieldInfo) -> list[str]:
    """Return the marks of a key that stand in front of its description: ``shared``, ``fixed``."""
    facts = facts_of(field)
    marks = {"shared": facts.shared, "fixed": facts.fixed is not None}
    return [mark for mark, holds in marks.items() if holds]


def _comment(text: str, indent: str) -> list[str]:
    """Return text as lines of a YAML comment."""
    lead = f"{indent}# "
    return textwrap.wrap(text, _WIDTH, initial_indent=lead, subsequent_indent=lead, break_on_hyphens=False)


def markdown() -> str:
    """Return the reference page: how merging works and a list for each block."""
    parts, loose, places = [PAGE_HEAD], [], dict[tuple[str, ...], str]()
    for name, field in Config.model_fields.items():
        block = block_of(field)
        if block is None:
            loose.append(_item(name, *_values((name,), field)))
        else:
            items, again = _items(fields(block, (name,)), places)
            parts.append(_section(f"### {name}", field.description or "", items, again))
    loose.append(_item("ma_config", "`null`, mapping", MERGE_KEYS["ma_config"]))
    return "\n".join([*parts, _section("### Other keys", "", loose)])


def _items(
    keys: Iterable[tuple[KeyPath, FieldInfo]], places: dict[tuple[str, ...], str]
) -> tuple[list[str], str]:
    """Return the items of a block's list, and a paragraph about its keys that are explained elsewhere.

    places: name and meaning of a key → the block that explains it; those of this block are added
    """
    items, again = [], dict[str, list[str]]()
    for path, field in keys:
        name, (values, text) = ".".join(path[1:]), _values(path, field)
        default, _, others = values.partition(", ")
        place = places.setdefault((path[-1], others, text), ".".join(path[:-1]))
        if place == ".".join(path[:-1]):
            items.append(_item(name, values, text))
        else:
            again.setdefault(place, []).append(f"`{name}: {default.strip('`')}`")
    return items, "\n".join(f"As in `{place}`: {', '.join(same)}.\n" for place, same in again.items())


def _section(title: str, text: str, items: Sequence[str], after: str = "") -> str:
    """Return a Markdown section: title, text, list, and a paragraph after it."""
    lead = [title, "", *([text, ""] if text else [])]
    last = [after] if after else []
    return "\n".join([*lead, *items, "", *last])


def _values(path: KeyPath, field: FieldInfo) -> tuple[str, str]:
    """Return the values of a key, the default first, and its meaning."""
    marks = "".join(mark[0].upper() for mark in _marks(field))
    default = "*required*" if facts_of(field).required else f"`{default_text(field)}`"
    words = reduce(lambda text, pair: text.replace(*pair), _SHORT.items(), expected(path))
    words = re.sub(r"from (-?\d+) to (-?\d+)", r"\1–\2", words).partition(" such as ")[0]
    words = re.sub(r"([≥≤<>]) ", r"\1", words)
    if re.match(r"`-?\d", default):
        words = re.sub(r"\b(int|float) (?=[-\d≥≤<>])", "", words)
    others = [word for word in words.split(" or ") if word != default.strip("`")]
    if default.strip("`") in ("true", "false") and len(others) == 1:
        others = []
    return ", ".join([default, *others]), f"{field.description}{f'<sup>{marks}</sup>' if marks else ''}"


def _item(name: str, values: str, text: str) -> str:
    """Return an entry of a Markdown list."""
    return f"- `{name}` ({values}): {text}"


def generated() -> dict[Path, str]:
    """Return path below the project's root → content of the file."""
    return {
        Path("algorithm/default_config.yaml"): default_yaml({}),
        Path("ds/default_config.yaml"): default_yaml(DISTRIBUTED_DEFAULTS),
        Path("docs/configuration.md"): markdown(),
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Write or check the generated files; return 1 if one of them is out of date."""
    return keep(generated(), "python scripts/reference.py", argv)


def keep(files: Mapping[Path, str], program: str, argv: Sequence[str] | None = None) -> int:
    """Write or check generated files, as the arguments choose; return 1 if one of them is out of date.

    files: path below the project's root → content; program: name of the module, for messages
    """
    parser = argparse.ArgumentParser(prog=program)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--write", action="store_true", help="write the files")
    what.add_argument("--check", action="store_true", help="name the files that are out of date")
    write, stale = parser.parse_args(argv).write, False
    for path, text in files.items():
        file = _ROOT / path
        if write:
            file.parent.mkdir(exist_ok=True)
            file.write_text(text, "utf-8")
        elif not file.is_file() or file.read_text("utf-8") != text:
            stale = True
            print(f"{path} is out of date: run {program} --write", file=sys.stderr)
    return int(stale)


if __name__ == "__main__":
    raise SystemExit(main())
