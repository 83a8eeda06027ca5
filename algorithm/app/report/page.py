"""Pages of sections: every text is escaped, nothing is loaded from a network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import lru_cache
from typing import TYPE_CHECKING
from urllib.parse import quote

from markupsafe import Markup

from algorithm.app.report.charts import Chart
from algorithm.app.report.theme import DARK, LIGHT

if TYPE_CHECKING:
    from jinja2 import Environment


@dataclass(frozen=True)
class Tile:
    """A number at the top of a page."""

    label: str
    value: str
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Section:
    """A part of a page below its title; what is empty is left out, the rest stands in this order.

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


def page(
    title: str,
    subtitle: str,
    sections: Sequence[Section],
    *,
    problems: Sequence[str],
    commands: Sequence[tuple[str, str]],
    tiles: Sequence[Tile] = (),
) -> str:
    """Return a page. problems: warnings at its top; commands: purposes and lines to be copied."""
    content = {"sections": sections, "problems": problems, "commands": commands, "tiles": tiles}
    return render("page.html", title=title, subtitle=subtitle, **content)


def render(template: str, **content: object) -> str:
    """Return a template beside this file with its ``content``."""
    return _templates().get_template(template).render(content)


def link(text: str, path: str) -> str:
    """Return a link to a file, by its path from the page."""
    return Markup('<a href="{}">{}</a>').format(quote(path), text)


def code(text: str) -> str:
    """Return text in the type of code."""
    return Markup("<code>{}</code>").format(text)


def bold(text: str) -> str:
    """Return text that stands out."""
    return Markup("<b>{}</b>").format(text)


def written_now() -> tuple[str, str]:
    """Return the fact of when a page was written."""
    return "this page", f"written {datetime.now(timezone.utc).isoformat(timespec='seconds')}"


@lru_cache(maxsize=1)
def _templates() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

    templates = Environment(
        loader=PackageLoader("algorithm.app.report"),
        autoescape=select_autoescape(),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.globals.update(light=LIGHT, dark=DARK)
    return templates
