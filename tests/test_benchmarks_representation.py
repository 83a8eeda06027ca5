"""The benchmark of representation learning: what is trained, what is compared, and the tables."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from algorithm.config.cli import config_flags, parse_args
from algorithm.config.loader import load_config

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))  # its scripts import one another by their plain names
jobs, render_representation, representation, sweep, tables = map(
    importlib.import_module, ("jobs", "render_representation", "representation", "sweep", "tables")
)


def make_row(task: str, variant: str, seed: int, seconds: float, *returns: float) -> dict[str, Any]:
    """A row whose run was evaluated every 500 steps."""
    curve = [[500 * n, value] for n, value in enumerate(returns, 1)]
    key = {"task": task, "variant": variant, "seed": seed}
    return {**key, "version": "1", "seconds": seconds, "curve": curve}


ROWS = (
    make_row("catch", "default", 1, 60.0, -0.6, 0.6, 0.9),
    make_row("catch", "default", 2, 80.0, -0.6, 0.0, 0.4),
    make_row("catch", "byol", 2, 180.0, 0.8, 1.0, 1.0),
    make_row("catch", "byol", 1, 160.0, -0.6, 0.8, 0.98),
    make_row("hidden_catch", "default", 1, 70.0, -0.6, -0.6),
    make_row("hidden_catch", "extra", 1, 90.0, -0.6, 0.6),
)


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A folder with the figures of ``ROWS``."""
    (tmp_path / "representation.json").write_text(json.dumps(representation.compare(ROWS)))
    return tmp_path


def test_every_training_loads() -> None:
    """Sections of their presets, alike in everything but the loss; each job's command is understood."""
    plan = representation.SWEEP.plan(seeds=[1])
    assert [(job.task, job.variant) for job in plan] == [
        (task, variant) for task, variants in representation.VARIANTS.items() for variant in variants
    ]
    for job in plan:
        options = parse_args(job.command[2:])
        loaded = load_config(
            options.env, options.config, options.overrides, config_flags(options), options.seed
        )
        assert jobs.settings_of(loaded) == job.settings
        base = representation.make_job(job.task, representation.BASE, 1).settings.items()
        changed = (
            {key for key, _ in job.settings.items() ^ base} if job.variant != representation.BASE else set()
        )
        assert changed <= {f"sac_config.{key}" for key in ("siamese", "use_prediction", "use_extra_data")}


def test_every_section_is_compared() -> None:
    presets = BENCHMARKS.parent / "envs" / "toy"
    for task, variants in representation.VARIANTS.items():
        assert tuple(yaml.safe_load((presets / task / "config.yaml").read_text("utf-8"))) == variants


def test_tables_by_hand(results: Path) -> None:
    """Heights by the trapezoidal rule: 0.375 and −0.05 beside 0.95 and 0.495; a mean of 0.56 more."""
    assert tables.render("representation-catch", results).splitlines() == [
        "| section | steps to 0.8, each seed | mean height of the curve | − default | last evaluation, "
        "each seed | seconds |",
        "| --- | --- | --- | --- | --- | --- |",
        "| `default` | 1,500, never | 0.16 | | 0.90, 0.40 | 70 |",
        "| `byol` | 1,000, 500 | 0.72 | +0.56 [+0.12, +1.00], higher | 0.98, 1.00 | 170 |",
    ]
    last = tables.render("representation-hidden_catch", results).splitlines()[-1]
    assert last == "| `extra` | never | 0.00 | +0.60 | 0.60 | 90 |"


def test_nothing_measured_yet(tmp_path: Path) -> None:
    assert tables.render("representation-catch", tmp_path) == (
        "Not measured yet: `make bench ONLY=representation`."
    )
    (tmp_path / "representation.json").write_text(json.dumps(representation.compare(ROWS[:1])))
    assert "Not measured yet" in tables.render("representation-hidden_catch", tmp_path)


def test_a_measurement_ends_with_its_tables(
    results: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(sweep, "main", lambda *arguments: asked.append(arguments))
    representation.main([f"--results={results}"])
    assert asked == [(representation.SWEEP, [f"--results={results}"])]
    assert "catch\n\n| section |" in capsys.readouterr().out


def test_pages_ask_for_every_table() -> None:
    pages = "".join(page.read_text("utf-8") for page in tables.PAGES)
    assert all(f"<!-- table: {name} -->" in pages for name in render_representation.TABLES)
