"""Templates: everything is escaped, nothing is loaded."""

import re

import numpy as np
import pytest
from jinja2 import UndefinedError

from algorithm.app.report.charts import Chart, Line
from algorithm.app.report.page import render
from algorithm.app.report.report import Tile
from algorithm.app.report.theme import DARK, LIGHT
from tests.report.pages import read

EVIL = "<script>alert('&\"')</script>"


def report(text: str) -> str:
    lines = [Line(label=text, x=np.arange(2.0), y=np.array([1.0, 2.0])) for _ in range(2)]
    row = {"key": text, "value": text, "changed": True, "preset": text, "default": text}
    curves = {"curve": Chart(text, lines, large=True), "diagnostics": [Chart(text, lines)]}
    return render(
        "report.html",
        title=text,
        subtitle=text,
        problems=[text],
        tiles=[Tile(text, text, text)],
        behaviours=[{"suffix": text, "measured": True, "evaluated": True, **curves}],
        videos=[{"name": text, "path": text, "href": "x"}] * 2,
        video_data="",
        settings={"text": text, "rows": [row], "drawn": [text]},
        origin=[(text, text)],
        commands=[(text, text)],
    )


def comparison(text: str) -> str:
    lines = [Line(label=text, x=np.arange(2.0), y=np.array([1.0, 2.0]))]
    curves = Chart(text, lines, large=True)
    return render(
        "comparison.html",
        title=text,
        subtitle=text,
        problems=[text],
        names=[text],
        behaviours=[{"suffix": text, "curves": curves, "head": [text], "outcomes": [[text, text]]}],
        settings=[[text, text, text]],
        runs=[{"name": text, "href": "x", "cells": [text]}],
        commands=[(text, text)],
    )


@pytest.mark.parametrize("page", [report, comparison])
def test_text_is_never_markup(page):
    whole, plain = page(EVIL), page("plain")
    assert "<script" not in whole
    assert read(whole).shown.count(EVIL) == read(plain).shown.count("plain") > 10
    assert [name for name, _ in read(whole).elements] == [name for name, _ in read(plain).elements]


@pytest.mark.parametrize("page", [report, comparison])
def test_a_page_may_fetch_and_run_nothing(page):
    whole = page("t")
    assert "default-src 'none'" in str(read(whole).all("meta"))
    assert "script-src" not in whole
    assert not re.search(r"url\(|@import|https?:", whole)


def test_tables_have_headers_for_rows_and_columns():
    scopes = [cell["scope"] for cell in read(report("t")).all("th")]
    assert scopes == ["col"] * 4 + ["row"]


def test_only_several_lines_need_names():
    one, two = read(comparison("name")), read(report("name"))
    assert [cell["class"] for cell in one.all("span")] == []
    assert [cell["class"] for cell in two.all("span")] == ["key"] * 4


def test_a_page_has_colours_for_light_and_for_dark():
    light, dark = report("t").split("prefers-color-scheme: dark", 1)
    for name in LIGHT:
        assert f"--{name}: {LIGHT[name]};" in light
        assert f"--{name}: {DARK[name]};" in dark


def test_a_text_that_is_missing_is_an_error():
    with pytest.raises(UndefinedError):
        render("report.html", title="t")
