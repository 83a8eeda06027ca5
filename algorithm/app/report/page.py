"""Pages of sections: every text is escaped, nothing is loaded from a network."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from markupsafe import Markup

from algorithm.app.report.charts import Chart
from algorithm.app.report.theme import DARK, LIGHT
from algorithm.core.spec import DEFAULT_BEHAVIOUR

if TYPE_CHECKING:
    from jinja2 import Template


@dataclass(frozen=True)
class Tile:
    """A number at the top of a page."""

    label: str
    value: str
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Section:
    """A part of a page below its title; empty fields are left out, the others follow in this order.

    text:   paragraphs
    chart, charts: a large one, small ones
    head, rows: a table, whose first column heads the rows
    films:  names and contents in base64
    links:  see :func:`link`
    facts:  names and values
    notes:  paragraphs below all
    """

    title: str
    text: Sequence[str] = ()
    chart: Chart | None = None
    charts: Sequence[Chart] = ()
    head: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    films: Sequence[tuple[str, str]] = ()
    links: Sequence[str] = ()
    facts: Sequence[tuple[str, str]] = ()
    notes: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class Page:
    """A page: tiles at its top, sections, commands at its end.

    problems: warnings at its top
    commands: purposes and lines to be copied
    """

    title: str
    subtitle: str
    sections: Sequence[Section]
    problems: Sequence[str] = ()
    commands: Sequence[tuple[str, str]] = ()
    tiles: Sequence[Tile] = ()

    @property
    def html(self) -> str:
        """The page as HTML."""
        return page_template().render(vars(self))


def heading(title: str, behaviour: str) -> str:
    """Return a title with the name of a behaviour, which is left out for the default one."""
    return title if behaviour == DEFAULT_BEHAVIOUR else f"{title}: {behaviour}"


def link(text: str, path: str) -> str:
    """Return a link to a file, by its path from the page."""
    return Markup('<a href="{}">{}</a>').format(quote(path), text)


def link_to_page(text: str, run: Path, place: Path) -> str:
    """Return a link from a page in the folder ``place`` to that of a run, or the text if it has none."""
    page = run / "report.html"
    return link(text, Path(os.path.relpath(page, place)).as_posix()) if page.exists() else text


def code(text: str) -> str:
    """Return text in HTML's style for code."""
    return Markup("<code>{}</code>").format(text)


@lru_cache(maxsize=1)
def page_template() -> Template:
    """Return the template of all pages; a missing value raises an error."""
    from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

    templates = Environment(
        loader=PackageLoader("algorithm.app.report"),
        autoescape=select_autoescape(),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.globals.update(light=LIGHT, dark=DARK)
    return templates.get_template("page.html")
