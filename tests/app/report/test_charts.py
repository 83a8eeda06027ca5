"""Charts: curves and points stand where the values are; colours and type are the page's."""

import re

import numpy as np
import pytest

from algorithm.app.report.charts import Chart, Line
from algorithm.app.report.theme import DARK, LIGHT, TONES

INSIDE = (52, 306, 10, 154)
"""Left, right, top and bottom of the curves in a small chart."""


def line(y, *, x=None, **more):
    y = np.array(y, np.float64)
    return Line(label=more.pop("label", "a"), x=np.arange(len(y)) * 10.0 if x is None else x, y=y, **more)


def drawn(*lines, **more):
    return Chart("title", lines, **more).drawing


def paths(drawing, mark):
    """Corners of each path whose style contains ``mark``."""
    found = re.findall(r'<path d="([^"]+)" style="([^"]+)"', drawing.markup)
    return [
        [tuple(map(float, corner.split())) for corner in re.split("[MLz]", path)[1:] if corner.strip()]
        for path, style in found
        if mark in style
    ]


def texts(drawing):
    return [re.sub("<[^>]+>", "", text) for text in re.findall(r"<text.*?</text>", drawing.markup)]


def test_a_line_is_drawn_where_it_was_measured():
    # Steps 0 … 30 over the width; values 0 … 3 with 4 % of room at both ends of the height.
    left, right, top, bottom = INSIDE
    (path,) = paths(drawn(line([0, np.nan, 3, 0])), "stroke: var(--c0)")
    low, high = bottom - 0.04 / 1.08 * (bottom - top), top + 0.04 / 1.08 * (bottom - top)
    expected = [(left, low), (left + 2 / 3 * (right - left), high), (right, low)]
    assert np.array(path) == pytest.approx(np.array(expected), abs=0.1)


def test_a_band_goes_up_one_way_and_down_the_other():
    y = np.array([1.0, 2.0, np.nan])
    (corners,) = paths(drawn(line([1, 2, 3], band=(y - 1, y + 1))), "fill: var(--c0)")
    assert [x for x, _ in corners] == [52, 179, 179, 52]
    assert corners[0][1] < corners[3][1]  # upper end above the lower one: y grows downwards
    assert corners[1][1] < corners[2][1] < corners[3][1], "the lower end comes back from the right"


@pytest.mark.parametrize(
    ("values", "log", "ticks"),
    [
        ([0, 100], False, ["0", "20", "40", "60", "80", "100"]),
        ([-1750, -150], False, ["-1,500", "-1,000", "-500"]),
        ([1, 1000], True, ["1", "10", "100", "1,000"]),
        ([1, 10], True, ["2", "4", "6", "8", "10"]),  # not enough of a span for a logarithm
        ([-1, 100], True, ["0", "20", "40", "60", "80", "100"]),  # nor is there one of −1
        ([0.00001, 0.01], True, ["1e-05", "0.0001", "0.001", "0.01"]),
        ([0, 200_000], False, ["0", "50k", "100k", "150k", "200k"]),
    ],
)
def test_ticks_are_round(values, log, ticks):
    assert texts(drawn(line(values, x=np.array([0.0, 1.0])), log=log))[-len(ticks) :] == ticks


def test_a_drawing_has_the_colours_and_type_of_the_style_sheet_and_can_stand_beside_others():
    assert list(LIGHT) == list(DARK)
    assert len(set(LIGHT.values())) == len(LIGHT)  # one name a colour, so that a drawing can be recoloured
    lines = [line([k, k + 1], tone=k, dots=True) for k in range(TONES + 1)]
    lines += [line([1, 2], style=style) for style in ("run", "faint", "aim")]
    markup = drawn(*lines, line([5, 5], band=(np.zeros(2), np.ones(2)))).markup
    named = {f"var(--{name})" for name in LIGHT}
    assert set(re.findall(r"(?:fill|stroke): ([^;\"]+)", markup)) <= {"none", *named}
    for foreign in (" id=", "clip", "href", "font", "<style", "<defs", "xml", "<!"):
        assert foreign not in markup


def test_points_say_their_values():
    drawing = drawn(line([1.5, 2.5], dots=True))
    assert [point.text for point in drawing.points] == ["step 0: 1.5", "step 10: 2.5"]
    places = [(point.x, point.y) for point in drawing.points]
    assert np.array(places) == pytest.approx(np.array([(52, 148.7), (306, 15.3)]), abs=0.1)
    both = drawn(line([1], label="above"), line([2], label="below"), line([3], style="aim")).points
    assert [point.text for point in both] == ["below, step 0: 2", "above, step 0: 1"]


def test_a_chart_can_be_read_without_being_seen():
    chart = Chart("Return", [line([np.nan, 3, 1, 2], label="loss"), line([1, 2], label="")])
    assert chart.label == "Return: loss from 3 to 2, lowest 1, highest 3"
    empty = Chart("f", [line([np.nan, np.nan])])
    assert empty.label == "f: nothing was measured"
    assert paths(empty.drawing, "var(--c0)") == []


@pytest.mark.parametrize("y", [[-1e308, 1e308], [5e-324, 1e308], [1e20, 1e20 + 1], [3, 3], [0, 0]])
@pytest.mark.parametrize("x", [[0.0, 1.0], [0.0, 1e308]])
@pytest.mark.filterwarnings("error")
def test_numbers_of_any_size_are_drawn(x, y):
    drawing = drawn(line(y, x=np.array(x), band=(np.array(y), np.array(y))), log=True)
    assert not re.search("nan|inf", drawing.markup)
