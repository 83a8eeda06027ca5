"""Reading a page back: what it shows, and whether it keeps the rules of every page."""

from __future__ import annotations

import re
from html.parser import HTMLParser

_VOID = {"meta", "path", "g"}


class Page(HTMLParser):
    """What stands in a page. Raises AssertionError for elements that are not closed in their order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.shown = ""
        self._open: list[str] = []
        self.feed(text)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in _VOID
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self._open:
            self.shown = " ".join(f"{self.shown} {data}".split())

    def all(self, tag: str) -> list[dict[str, str | None]]:
        """The attributes of every element of that name."""
        return [attributes for name, attributes in self.elements if name == tag]


def read(text: str) -> Page:
    """A page that loads nothing, runs nothing, and can be understood without being seen."""
    page = Page(text)
    assert page.all("html") == [{"lang": "en"}]
    assert len(page.all("title")) >= 1
    assert page.all("script") == []
    for name, attributes in page.elements:
        assert not any(key.startswith("on") for key in attributes), (name, attributes)
        assert str(attributes.get("src", "data:")).startswith("data:"), (name, attributes)
        assert not re.match(r"[a-z]+:", str(attributes.get("href", ""))), (name, attributes)
    assert all(svg.get("aria-label") or svg.get("aria-hidden") for svg in page.all("svg"))
    assert all(video.get("aria-label") for video in page.all("video"))
    assert all(cell.get("scope") in ("row", "col") for cell in page.all("th"))
    assert all(table.get("aria-label") for table in page.all("table"))
    return page
