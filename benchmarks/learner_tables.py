"""The tables of ``learners`` and ``lanes``: an update by option, signal and device; collecting in lanes."""

from __future__ import annotations

from statistics import median

from benchmarks.cells import Results, table


def learners(results: Results) -> str:
    """Time of an update by learner, in units of the plain one's of the same round."""
    found, rows = results["learners"]["milliseconds"], []
    for name, ms in found.items():
        ratios = sorted(value / plain for value, plain in zip(ms, found["plain"], strict=True))
        spread = f"{median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        rows.append([name, f"{median(ms):.1f}", spread])
    return table(["learner", "ms an update", "of the plain one"], rows)


def signals(results: Results) -> str:
    """Time of an update by signal, in units of the plain one's of the same round, as written and compiled."""
    engines = results["signals"]["milliseconds"]
    rows = []
    for name in engines["off"]:
        cells = [name]
        for found in engines.values():
            ratios = [value / plain for value, plain in zip(found[name], found["plain"], strict=True)]
            cells += [f"{median(found[name]):.1f}", f"{median(ratios):.2f}"]
        rows.append(cells)
    titles = {"off": "as written", "on": "compiled"}
    heads = [head for engine in engines for head in (f"{titles[engine]}, ms", "of the plain one")]
    return table(["", *heads], rows)


def devices(results: Results) -> str:
    """Milliseconds of an update by device, as written and compiled."""
    found = results["devices"]["milliseconds"]
    by_way = {f"{device}, {engine}": ms for device, of in found.items() for engine, ms in of.items()}
    names = next(iter(by_way.values()))
    rows = [[name, *[f"{ms[name]:.1f}" for ms in by_way.values()]] for name in names]
    return table(["", *[f"{way}, ms" for way in by_way]], rows)


def lanes(results: Results) -> str:
    """Transitions per second by number of lanes."""
    found = {int(n): median(rates) for n, rates in results["lanes"]["rates"].items()}
    one = found[min(found)]
    rows = [[f"{n:,}", f"{rate:,.0f}", f"{rate / one:.3g}"] for n, rate in found.items()]
    return table(["lanes", "transitions/s", "of the first row"], rows)


def lanes_proof(results: Results) -> str:
    """Results of the proof by simulator."""
    rows = [
        [
            title,
            f"{one['transitions']:,}",
            f"{one['episodes']:,}",
            f"{one['wrong']:,}",
            f"{one['phantoms']:,}",
        ]
        for title, one in results["lanes"]["proofs"].items()
    ]
    return table(["lanes of", "transitions", "ends", "wrong", "last observation of another episode"], rows)
