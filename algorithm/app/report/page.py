"""Pages from the templates beside this file: every text is escaped, nothing is loaded from a network."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from algorithm.app.report.theme import DARK, LIGHT

if TYPE_CHECKING:
    from jinja2 import Environment


def render(template: str, **content: object) -> str:
    """Return the page of a template with its ``content``."""
    return _templates().get_template(template).render(content)


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
    templates.filters["cell"] = lambda text: text.replace("|", "&#124;")  # of a table in Markdown
    return templates
