"""Pages: everything is escaped, nothing is loaded."""

import re

import numpy as np

from algorithm.app.report.charts import Chart, Line
from algorithm.app.report.page import Page, Section, Tile, code, link
from tests.lib.pages import read

EVIL = "<script>alert('&\"')</script>"


def everything(text: str) -> str:
    """A page in which each place that takes a text has this one."""
    two = [Line(label=text, x=np.arange(2.0), y=np.array([1.0, 2.0])) for _ in range(2)]
    section = Section(
        title=text,
        text=[text],
        chart=Chart(text, two, large=True),
        charts=[Chart(text, two[:1])],
        head=[text, text],
        rows=[[link(text, "x y"), code(text)], [code(text), text]],
        films=[(text, "ZmlsbQ==")],
        links=[link(text, "x")],
        facts=[(text, text)],
        notes=[text],
    )
    tiles = [Tile(text, text, text)]
    return Page(
        title=text,
        subtitle=text,
        sections=[section],
        problems=[text],
        commands=[(text, text)],
        tiles=tiles,
    ).html


def test_text_is_never_markup_and_a_page_fetches_and_runs_nothing():
    whole, plain = everything(EVIL), everything("plain")
    assert "<script" not in whole and not re.search(r"script-src|url\(|@import|https?:", plain)
    assert read(whole).shown.count(EVIL) == read(plain).shown.count("plain") > 20
    assert [name for name, _ in read(whole).elements] == [name for name, _ in read(plain).elements]
    assert "default-src 'none'" in str(read(whole).all("meta"))
    assert [cell["scope"] for cell in read(whole).all("th")] == ["col"] * 2 + ["row"] * 2
    assert [cell["href"] for cell in read(whole).all("a")] == ["x%20y", "x"]
    assert [cell["class"] for cell in read(whole).all("span")] == ["key"] * 2, "only several lines need names"
    assert all(table.get("aria-label") for table in read(whole).all("table"))
