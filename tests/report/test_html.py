"""Pages: everything is escaped, nothing is loaded; charts show what was measured."""

import re

import numpy as np
import pytest

from algorithm.report.html import Markup, commands, join, notice, page, pairs, section, table, tag
from algorithm.report.svg import Line, Scale, chart, describe, figure, large_figure, thinned
from algorithm.wording import counted, duration, plus_minus, short, steps_text
from tests.report.pages import read

EVIL = "<script>alert('&\"')</script>"


def line(y, *, x=None, **more):
    y = np.array(y, np.float64)
    return Line(label=more.pop("label", "a"), x=np.arange(len(y)) * 10.0 if x is None else x, y=y, **more)


def test_elements_by_hand():
    assert tag("p", "a<b", Markup("<b>c</b>"), None) == "<p>a&lt;b<b>c</b></p>"
    assert tag("a", "x", href='"', class_="k", aria_label=1, hidden=True, id=None, loop=False) == (
        '<a href="&quot;" class="k" aria-label="1" hidden>x</a>'
    )
    assert tag("meta", charset="utf-8") == '<meta charset="utf-8"/>'
    assert join(["<", tag("b")]) == "&lt;<b></b>"


def test_text_is_never_markup():
    whole = page(
        EVIL,
        tag("p", EVIL, title=EVIL),
        section(EVIL, EVIL),
        table(EVIL, [EVIL], [[EVIL, EVIL]]),
        pairs([(EVIL, EVIL)]),
        commands([(EVIL, EVIL)]),
        notice(EVIL),
        large_figure(EVIL, [line([1, 2], label=EVIL), line([1, 2], label=EVIL)]),
    )
    assert "<script" not in whole
    assert read(whole).shown.count(EVIL) == 15


def test_a_page_may_fetch_and_run_nothing():
    whole = page("t")
    assert "default-src 'none'" in str(read(whole).all("meta"))
    assert "script-src" not in whole
    assert not re.search(r"url\(|@import|https?:", whole)


def test_tables_have_headers_for_rows_and_columns():
    assert read(page("t", table("numbers", ["a", "b"], [["x", "1"], ["y", "2"]]))).all("th") == [
        {"scope": "col"},
        {"scope": "col"},
        {"scope": "row"},
        {"scope": "row"},
    ]


@pytest.mark.parametrize(
    ("values", "log", "ticks"),
    [
        ([0, 100], False, [0, 20, 40, 60, 80, 100]),
        ([-1750, -150], False, [-1500, -1000, -500]),
        ([1, 1000], True, [1, 10, 100, 1000]),
        ([1, 10], True, [2, 4, 6, 8, 10]),  # not enough of a span for a logarithm
        ([-1, 1000], True, [0, 200, 400, 600, 800, 1000]),  # nor is there one of −1
        ([3, 3], False, [2, 3, 4]),
        ([0, 0], False, [-0.4, -0.2, 0, 0.2, 0.4]),
        ([], False, [0, 0.2, 0.4, 0.6, 0.8, 1]),
    ],
)
def test_ticks_are_round_and_within(values, log, ticks):
    scale = Scale(np.array(values, np.float64), log=log)
    assert scale.ticks(4) == pytest.approx(ticks)
    places = scale.place(np.array(ticks, np.float64))
    assert (places >= 0).all()
    assert (places <= 1).all()


def test_places_by_hand():
    # 4 % of room at both ends: 0 … 100 is drawn from −4 to 104.
    assert Scale(np.array([0.0, 100.0])).place(np.array([50.0, 0.0])) == pytest.approx([0.5, 4 / 108])
    assert Scale(np.array([0.0, 100.0]), tight=True).place(np.array([25.0])) == pytest.approx([0.25])
    assert Scale(np.array([1.0, 100.0]), log=True, tight=True).place(np.array([10.0])) == pytest.approx([0.5])


def test_a_long_line_keeps_its_peaks():
    y = np.zeros(10_000)
    y[1234], y[8765] = 5.0, -5.0
    y[2000:2010] = np.nan
    x, thin = thinned(np.arange(10_000.0), y, most=100)
    assert len(x) <= 200
    assert (np.diff(x) > 0).all()
    assert thin[x == 1234] == 5.0
    assert thin[x == 8765] == -5.0
    assert thinned(np.arange(5.0), np.arange(5.0))[0].tolist() == [0, 1, 2, 3, 4]


def test_a_line_is_drawn_where_it_was_measured():
    # Steps 0 … 30 over 254 of 320 pixels from 52; values 0 … 3 with 4 % of room over 144 pixels from 10.
    drawn = chart([line([0, np.nan, 3, 0])], label="l", width=320, height=180)
    (path,) = re.findall(r'<path d="([^"]+)" class="line t0"', drawn)
    assert path == "M52.0 148.7L221.3 15.3L306.0 148.7"


def test_a_band_goes_up_one_way_and_down_the_other():
    y = np.array([1.0, 2.0, np.nan])
    drawn = chart([line([1, 2, 3], band=(y - 1, y + 1))], label="l", width=320, height=180)
    (band,) = re.findall(r'<path d="([^"]+)" class="band t0"', drawn)
    corners = [tuple(map(float, p.split())) for p in re.split("[ML]", band.removesuffix("Z"))[1:]]
    assert [x for x, _ in corners] == [52, 179, 179, 52]
    assert corners[0][1] < corners[3][1]  # upper end above the lower one: y grows downwards
    assert corners[1][1] < corners[2][1]


def test_points_say_what_they_are():
    drawn = read(page("t", figure("f", [line([1.5, 2.5], dots=True)])))
    assert "step 0: 1.5" in drawn.shown
    assert len(drawn.all("circle")) == 2
    single = read(page("t", figure("f", [line([7.0])])))
    assert "step 0: 7" in single.shown  # one point alone would not be seen as a line


def test_a_chart_can_be_read_without_being_seen():
    assert describe([line([np.nan, 3, 1, 2], label="loss")]) == "loss from 3 to 2, lowest 1, highest 3"
    assert describe([line([1], label="")]) == "nothing was measured"
    (wide, narrow) = read(page("t", large_figure("Return", [line([3, 1, 2])]))).all("svg")
    assert wide["aria-label"] == narrow["aria-label"] == "Return: a from 3 to 2, lowest 1, highest 3"
    assert (wide["class"], narrow["class"]) == ("wide", "narrow")


def test_a_chart_of_nothing_is_empty():
    drawn = read(page("t", figure("f", [line([np.nan, np.nan])])))
    assert drawn.all("svg")[0]["aria-label"] == "f: nothing was measured"
    assert drawn.all("path") == []


def test_only_several_lines_need_names():
    assert "alone" not in read(page("t", figure("f", [line([1, 2], label="alone")]))).shown
    both = read(page("t", figure("f", [line([1, 2], label="one"), line([1, 2], label="two")]))).shown
    assert "one two" in both


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (500.0, "500"),
        (451.34, "451.3"),
        (-177.3, "-177.3"),
        (12345.6, "12,346"),
        (999.99, "1,000"),
        (99.99, "100"),
        (2.5, "2.5"),
        (0.00312, "0.00312"),
        (0.5e-4, "5.00e-05"),
        (1e30, "1.00e+30"),
        (float("nan"), "unknown"),
        (float("inf"), "unknown"),
    ],
)
def test_numbers_are_short(value, text):
    assert short(value) == text


def test_other_words():
    assert plus_minus(-177.3, 69.31) == "-177.3 ± 69.3"
    assert plus_minus(0.72, 0.05) == "0.720 ± 0.050"
    assert plus_minus(2.0, float("nan")) == "2"
    assert [steps_text(n) for n in (0, 500, 12_000, 1_500_000)] == ["0", "500", "12k", "1.5M"]
    assert [duration(s) for s in (2.34, 48, 59.6, 725, 11_220)] == [
        "2.3 s",
        "48 s",
        "1 min 0 s",
        "12 min 5 s",
        "3 h 7 min",
    ]
    assert [counted(n, "run") for n in (0, 1, 1200)] == ["0 runs", "1 run", "1,200 runs"]
