"""Numbers in words."""

import pytest

from algorithm.core.wording import counted, duration, plus_minus, short, steps_text


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
