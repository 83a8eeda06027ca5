"""Draws of parameters: closed forms, and that a value belongs to an episode's seed alone."""

from statistics import NormalDist

import numpy as np
import pytest

from algorithm.env.parameters.config import read_parameters
from algorithm.env.parameters.curricula import ParameterSource


def sampler(kind: str, **parameters: object) -> dict[str, object]:
    return {"sampler_type": kind, "sampler_parameters": parameters}


GIVEN = {
    "gravity": sampler("gaussian", mean=9.81, st_dev=0.5),
    "wind": sampler("uniform", min_value=-3.0, max_value=5.0),
    "mass": sampler("multirangeuniform", intervals=[[1, 2], [4, 7]]),
    "scale": 1.5,
    "height": {
        "curriculum": [
            {"name": "low", "value": 0.0, "completion_criteria": {"threshold": 1.0}},
            {"name": "high", "value": sampler("uniform", min_value=1, max_value=2)},
        ]
    },
}


def of_mass(x):
    """Share of the intervals [1, 2] and [4, 7], laid end to end, below x."""
    return (np.clip(x, 1, 2) - 1 + np.clip(x, 4, 7) - 4) / 4


CLOSED = {
    "gravity": np.vectorize(NormalDist(9.81, 0.5).cdf),
    "wind": lambda x: (x + 3) / 8,
    "mass": of_mass,
}


def test_100_000_draws_have_the_distributions_of_their_closed_forms():
    source, n = ParameterSource(read_parameters(GIVEN)), 100_000
    draws = dict(zip(source.names, np.array([source.draw(seed) for seed in range(n)]).T, strict=True))
    assert (draws["scale"] == 1.5).all() and (draws["height"] == 0.0).all()
    ranks = np.arange(1, n + 1) / n
    for name, below in CLOSED.items():
        distance = np.abs(below(np.sort(draws[name])) - ranks).max()  # Kolmogorov and Smirnov's, 1 % of cases
        assert distance < 1.63 / np.sqrt(n), name
    assert not ((draws["mass"] > 2) & (draws["mass"] < 4)).any()
    together = np.corrcoef([draws[name] for name in CLOSED]) - np.eye(3)
    assert np.abs(together).max() < 4 / np.sqrt(n)


@pytest.mark.parametrize(
    ("name", "u", "value"),
    [
        ("wind", 0.25, -1.0),  # -3 + 0.25 · 8
        ("gravity", 0.5, 9.81),
        ("gravity", 0.8413447460685429, 10.31),  # Φ(1)
        ("mass", 0.125, 1.5),  # half of the first interval, which is a quarter of all
        ("mass", 0.5, 5.0),  # 2 of 4: the first interval's 1, and 1 of the second
        ("scale", 0.9, 1.5),
    ],
)
def test_quantiles_by_hand(name, u, value):
    assert ParameterSource(read_parameters(GIVEN)).samplers[name].quantile(u) == pytest.approx(value)


def test_a_value_depends_on_seed_and_name_alone_and_a_lesson_on_nothing_else():
    source = ParameterSource(read_parameters(GIVEN))
    alone = ParameterSource(read_parameters({"mass": GIVEN["mass"]}))
    assert [source.draw(seed)[2] for seed in range(5)] == [alone.draw(seed)[0] for seed in range(5)]
    before = source.draw(7)
    source.renew({"height": "high"})
    after = source.draw(7)
    assert (after[:4] == before[:4]).all() and before[4] == 0.0 and 1 < after[4] < 2
    # Pinned: another value would make every resumed run another one.
    assert after.tolist() == pytest.approx(
        [9.467243776137925, -1.6197962827521417, 6.1766022554842905, 1.5, 1.1514681655394488]
    )
