"""Drift of a population's genes over its generations, in charts."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from algorithm.app.report.charts import Chart, Line, suits_logarithm
from algorithm.app.report.lineage import MemberOutcome, by_generation, gene_text
from algorithm.app.report.page import Section
from algorithm.app.report.theme import TONES
from algorithm.core.data import Double


def drifts(outcomes: Sequence[MemberOutcome]) -> Iterator[Section]:
    """Yield a section with a chart of each gene over generations; nothing without genes."""
    charts = []
    for path in dict.fromkeys(path for member in outcomes for path in member.genes):
        values = {
            generation: genes
            for generation, members in by_generation(outcomes).items()
            if (genes := [member.genes[path] for member in members if path in member.genes])
        }
        every = [value for genes in values.values() for value in genes]
        is_number = all(isinstance(value, int | float) and not isinstance(value, bool) for value in every)
        x = np.array(list(values), np.float64)
        lines = (_moments if is_number else _shares)(x, list(values.values()))
        charts.append(Chart(path, lines, log=is_number, along="generation"))
    note = (
        "Over the members of each generation. On a logarithmic scale mean and standard deviation are those "
        "of the logarithms."
    )
    if charts:
        yield Section(title="Drift of the genes", charts=charts, notes=[note])


def _moments(x: Double, values: Sequence[Sequence[float]]) -> list[Line]:
    """Return lines of a numeric gene over generations [G]: mean ± standard deviation, extremes.

    On a logarithmic scale mean and deviation are of the logarithms: a plain mean follows the largest value.
    """
    arrays = [np.array(genes, np.float64) for genes in values]
    is_log = suits_logarithm(np.concatenate(arrays))
    scaled = [np.log(array) for array in arrays] if is_log else arrays
    mean, std = (np.array([pick(array) for array in scaled]) for pick in (np.mean, np.std))
    curves = np.stack([mean, mean - std, mean + std])
    middle, low, high = np.exp(curves) if is_log else curves
    ends = [np.array([pick(array) for array in arrays]) for pick in (np.min, np.max)]
    label = "geometric mean ± std" if is_log else "mean ± std"
    return [
        Line(label=label, x=x, y=middle, band=(low, high), dots=True),
        Line(label="lowest and highest", x=x, y=ends[0], style="faint"),
        Line(label="", x=x, y=ends[1], style="faint"),
    ]


def _shares(x: Double, values: Sequence[Sequence[Any]]) -> list[Line]:
    """Return lines of a gene's choices over generations: share of members in %; rare choices share a line."""
    texts = [[gene_text(value) for value in genes] for genes in values]
    common = [text for text, _ in Counter(itertools.chain.from_iterable(texts)).most_common()]
    names = sorted(common if len(common) <= TONES else common[: TONES - 1])
    shares = {name: np.array([100 * genes.count(name) / len(genes) for genes in texts]) for name in names}
    if len(common) > TONES:
        shares[f"{len(common) - len(names)} others"] = 100 - np.sum(list(shares.values()), axis=0)
    return [
        Line(label=f"{name}, % of members", x=x, y=y, tone=tone, dots=True)
        for tone, (name, y) in enumerate(shares.items())
    ]
