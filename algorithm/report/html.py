"""HTML pages from parts that escape whatever is not markup already. Nothing is loaded from a network."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from algorithm.report.page_style import STYLE

_VOID = frozenset({"meta", "path", "line"})
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; media-src data:"


class Markup(str):
    """Text that is markup. Every other text is escaped where it enters a page."""

    __slots__ = ()


Content = str | None
"""Text or :class:`Markup`; None is left out."""


def tag(name: str, /, *content: Content, **attributes: object) -> Markup:
    """One element; text in it and in its attributes is escaped.

    attributes: a trailing underscore is dropped (``class_``), others become hyphens (``stroke_width``). None
    and False are left out, True is an attribute without value.
    """
    opened = f"<{name}{''.join(_attribute(*item) for item in attributes.items())}"
    if name in _VOID:
        return Markup(opened + "/>")
    return Markup(f"{opened}>{join(content)}</{name}>")


def join(parts: Iterable[Content]) -> Markup:
    """Several contents behind each other; text among them is escaped."""
    return Markup("".join(_safe(part) for part in parts if part is not None))


def section(title: str, *content: Content) -> Markup:
    """A titled section; None without content."""
    return tag("section", tag("h2", title), *content)


def table(label: str, head: Sequence[Content], rows: Iterable[Sequence[Content]]) -> Markup:
    """A table whose columns and rows have headers; a wide one scrolls inside itself.

    label: what it is a table of, for those who do not see it
    """
    headers = [tag("th", cell, scope="col") for cell in head]
    body = [tag("tr", tag("th", row[0], scope="row"), *(tag("td", cell) for cell in row[1:])) for row in rows]
    whole = tag("table", tag("thead", tag("tr", *headers)), tag("tbody", *body), aria_label=label)
    return tag("div", whole, class_="scroll", tabindex="0", role="region", aria_label=label)


def pairs(rows: Iterable[tuple[str, Content]]) -> Markup:
    """Pairs of a word and what there is to say about it."""
    return tag("dl", *(tag("div", tag("dt", key), tag("dd", value)) for key, value in rows), class_="facts")


def commands(rows: Iterable[tuple[str, str]]) -> Markup:
    """What each command does, and the command to copy."""
    return join(tag("div", tag("p", purpose), tag("pre", tag("code", line))) for purpose, line in rows)


def notice(*content: Content) -> Markup:
    """Something that is wrong or missing, and stands out."""
    return tag("p", *content, class_="notice")


def page(title: str, *content: Content) -> Markup:
    """A whole page. It holds no script, and its policy lets none run and nothing be fetched."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", title),
        tag("style", Markup(STYLE)),
    )
    return Markup(
        "<!DOCTYPE html>\n" + tag("html", head, tag("body", tag("main", *content)), lang="en") + "\n"
    )


def _attribute(name: str, value: object) -> str:
    if value is None or value is False:
        return ""
    name = name.removesuffix("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escape(str(value))}"'


def _safe(part: str) -> str:
    return part if isinstance(part, Markup) else escape(part)
