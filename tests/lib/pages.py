"""Reading a page back: what it shows, and whether it keeps the rules of every page."""

from __future__ import annotations

import re
from xml.etree import ElementTree


class Page:
    """Text and elements of a page. Raises ParseError for elements that are not closed in their order."""

    def __init__(self, text: str) -> None:
        root = ElementTree.fromstring(text.replace(" controls muted loop playsinline", ""))
        self.elements = [(element.tag, dict(element.attrib)) for element in root.iter()]
        for style in root.iter("style"):
            style.text = ""
        self.shown = " ".join(" ".join(root.itertext()).split())

    def all(self, tag: str) -> list[dict[str, str]]:
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
