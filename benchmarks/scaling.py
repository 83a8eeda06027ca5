"""Costs by size, as a table and a picture."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from algorithm.app.report.theme import MATPLOTLIB
from algorithm.nn.process import set_up_process
from benchmarks.harness import ROOT, Bench, smoke
from benchmarks.inside import SAMPLERS, fill, make_agent
from benchmarks.replay import times as replay_times
from benchmarks.samples import make_segment, make_spec
from benchmarks.worker import Answer, stay_on_one_core

PICTURE = ROOT / "docs/images/scaling.png"
RNN, ATTN = "seq_encoder=RNN batch_size=32", "seq_encoder=ATTN batch_size=32"
IMAGES = "batch_size=64"
PLOTS: Mapping[str, tuple[str, Sequence[Any]]] = {
    "replay, µs a batch": ("capacity", (10**4, 10**5, 10**6, 10**7)),
    "acting, µs a call": ("environments", (1, 4, 16, 64)),
    "update, ms": ("ensemble_q_num", (2, 3, 5, 10)),
    "update, ms a batch": ("batch_size", (64, 256, 1024, 4096)),
    "update of others, ms": ("kind", ("MLP", "GRU", "attention", "images")),
}
"""Title → what changes, and its values."""


@smoke(rounds=1, repeats=1, plots=["acting, µs a call", "update, ms"], most=2, ways=["off"])
def scaling(
    bench: Bench,
    _: Any,
    *,
    rounds: int = 3,
    repeats: int = 40,
    plots: list[str] = list(PLOTS),
    most: float = 1e9,
    ways: list[str] = ["off", "on"],
) -> Iterator[Mapping[str, Any]]:
    """Costs by size, as written and compiled; medians of rounds in which all take turns."""
    found: dict[str, dict[str, dict[str, list[float]]]] = {}
    for _round in range(rounds):
        for title in plots:
            what, sizes = PLOTS[title]
            for size in sizes:
                if isinstance(size, str) or size <= most:
                    said = bench.ours("scaling:costs", what=what, size=size, repeats=repeats, ways=ways)
                    for way, value in said.items():
                        found.setdefault(title, {}).setdefault(way, {}).setdefault(str(size), []).append(
                            value
                        )
    yield {"costs": found}
    if not bench.smoke:
        draw(found, PICTURE)


def costs(what: str, size: Any, repeats: int, ways: Sequence[str]) -> Answer:
    """The cost at one size, by way."""
    stay_on_one_core()
    set_up_process(1)
    if what == "capacity":
        each = "sample + gather + feedback"
        return {kind: replay_times(kind, size, 10 * repeats)[each] for kind in SAMPLERS}
    if what == "environments":
        return {"acting": _acting(size, 10 * repeats)}
    keys = {
        "ensemble_q_num": f"ensemble_q_num={size} ensemble_q_sample={size}",
        "batch_size": f"batch_size={size}",
    }
    kinds = {"MLP": "", "GRU": RNN, "attention": ATTN, "images": IMAGES}
    changed = keys[what] if what in keys else kinds[size]
    shape = (3, 64, 64) if size == "images" else (17,)
    return {way: _update(shape, f"{changed} compile={way}".split(), repeats) for way in ways}


def _agent(shape: Sequence[int], keys: Sequence[str]) -> tuple[Any, Any]:
    spec = make_spec(*shape, action=6)
    changes = [f"sac_config.{key}" for key in ("n_step=1", "use_priority=false", *keys)]
    return make_agent(spec, "Pendulum-v1", None, [*changes, "replay_config.capacity=10000"], 0), spec


def _update(shape: Sequence[int], keys: Sequence[str], repeats: int) -> float:
    """Milliseconds of an update, without sampling."""
    agent, spec = _agent(shape, keys)
    carry = agent.learner.model.rep.stored_carry_shape or (0,)
    fill(agent.replay, make_segment(spec, np.random.default_rng(0), 1000, carry=carry), 9500)
    batch = agent.replay.sample()
    return _median(lambda: agent.learner.update(batch), repeats) * 1e3


def _acting(environments: int, repeats: int) -> float:
    """Microseconds from the observations of so many agents to their actions."""
    agent, spec = _agent((17,), [])
    policy, rng = agent.policy, np.random.default_rng(0)
    policy.warming_up = False
    obs = {"obs": rng.standard_normal((environments, 17), np.float32)}
    before, mask = spec.action.padding(environments), spec.action.all_allowed(environments)
    return _median(lambda: policy.act(obs, before, policy.initial_carry(environments), mask), repeats) * 1e6


def draw(costs: Mapping[str, Mapping[str, Mapping[str, Sequence[float]]]], path: Path) -> None:
    """Draw the medians, a picture for each thing that changes."""
    with mpl.rc_context(MATPLOTLIB):
        figure = Figure(figsize=(15, 3.6), dpi=110, layout="constrained")
        for axes, (title, ways) in zip(figure.subplots(1, len(costs)), costs.items(), strict=True):
            what, sizes = PLOTS[title]
            for way, found in ways.items():
                label = {"off": "as written", "on": "compiled"}.get(way, way)
                axes.plot([median(values) for values in found.values()], marker="o", label=label)
            shown = [f"{size:.0e}".replace("+0", "") if what == "capacity" else str(size) for size in sizes]
            axes.set_xticks(range(len(sizes)), shown, fontsize=9)
            axes.tick_params("y", labelsize=9)
            axes.set_xlabel("" if what == "kind" else what, fontsize=10)
            axes.set_ylim(bottom=0)
            axes.set_title(title, loc="left", fontsize=11)
            axes.legend(fontsize=8)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, metadata={"Software": None})


def _median(act: Any, repeats: int) -> float:
    for _ in range(max(3, repeats // 4)):
        act()
    taken = []
    for _ in range(repeats):
        begin = time.perf_counter()
        act()
        taken.append(time.perf_counter() - begin)
    return median(taken)
