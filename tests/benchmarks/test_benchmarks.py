"""The benchmarks: every question can be asked, what is compared is comparable, tables are the results'."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from algorithm.config import load_config
from benchmarks import __main__ as command
from benchmarks import bare, harness, peer, speed, tables
from benchmarks.harness import QUESTIONS, RESULTS
from benchmarks.worker import WorkerError


def written() -> dict[str, float]:
    """When each result and page was written."""
    return {str(file): file.stat().st_mtime for file in (*RESULTS.iterdir(), *tables.PAGES)}


# ---- every question can be asked


@pytest.mark.slow
@pytest.mark.parametrize("name", QUESTIONS)
def test_every_question_can_be_asked(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Asked with little, in this process: it answers, its tables can be drawn, and nothing is kept."""
    before = written()
    assert command.main([name, "--smoke"]) == 0
    out = capsys.readouterr().out
    assert "| --- |" in out and "Measured 20" in out and "Not measured" not in out
    assert written() == before


def test_every_question_that_the_pages_name_exists(root: Path) -> None:
    folders = (root, root / "docs", root / "benchmarks", root / "benchmarks" / "studies")
    pages = [page for folder in folders for page in folder.glob("*.md")]
    text = "\n".join(page.read_text("utf-8") for page in pages if page.name != "CHANGELOG.md")
    named = {
        name for found in re.findall(r'ONLY=(?:"([^"]+)"|(\w+))', text) for name in " ".join(found).split()
    }
    assert named and named <= set(QUESTIONS)


# ---- processes and answers


# ---- pairs


def play(**changes: Any) -> dict[str, Any]:
    """An answer."""
    return {"library": "x", "threads": 1, "updates": 120, "seconds": 1.0, **changes}


def pairs_of(ours: list[float], theirs: list[Any]) -> dict[str, Any]:
    """Answers that take so many seconds each."""
    return harness.in_pairs(
        lambda seed: play(seconds=ours[seed]),
        lambda seed: theirs[seed] if theirs[seed] is None else play(**theirs[seed]),
        len(ours),
        rate=lambda answer: answer["updates"] / answer["seconds"],
        same=("threads", "updates"),
    )


def test_medians_are_of_the_pairs() -> None:
    """Ours 120, 60, 40 updates/s, theirs 20, 40, 20: ratios 6, 1.5, 2 with median 2, not 60/20 = 3."""
    found = pairs_of([1.0, 2.0, 3.0], [{"seconds": x} for x in (6.0, 3.0, 6.0)])
    assert found["medians"] == {"ours": 60.0, "peer": 20.0, "ratio": 2.0}
    assert [row["ratio"] for row in found["rates"]] == [6.0, 1.5, 2.0]
    assert found["answers"][2]["peer"]["seconds"] == 6.0


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"threads": 2}, "threads: ours has 1, x 2"), ({"updates": 117}, "ours has 120, x 117")],
)
def test_unequal_work_is_not_compared(changes: dict[str, int], message: str) -> None:
    with pytest.raises(WorkerError, match=message):
        pairs_of([1.0], [changes])


def test_the_peer_gets_our_versions() -> None:
    wanted = dict(line.split("==") for line in peer.requirements()["sb3"] if "==" in line)
    assert {"stable-baselines3", "torch", "gymnasium", "pybullet", "ale-py"} <= wanted.keys()
    assert wanted["numpy"] == np.__version__
    assert "+" not in wanted["torch"]  # a build is not asked for: another index may have none


@pytest.mark.parametrize("task", ["pendulum", "half_cheetah"])
def test_theirs_is_told_what_ours_is_trained_with(task: str) -> None:
    """The file is read by itself for them; for us it is a configuration."""
    config, said = load_config(str(speed.EQUAL), task).config, speed.their_settings(task)
    assert said["env"]["env_id"] == config.base_config.env_name
    for key, name in {"learning_rate": "learning_rate", "learning_starts": "start_step"}.items():
        assert said[key] == getattr(config.sac_config, name)
    assert (said["tau"], said["gamma"], said["batch_size"]) == (
        config.sac_config.tau,
        config.sac_config.gamma,
        config.sac_config.batch_size,
    )
    sac = config.sac_config
    assert (sac.n_step, sac.use_priority, sac.replay_ratio, sac.threads) == (1, False, 1, 1)
    assert config.eval_config.episodes == 10


@pytest.mark.parametrize("case", speed.CASES)
def test_every_memory_is_a_section(case: str) -> None:
    sac = load_config(str(speed.MEMORY), case, require_runnable=True).config.sac_config
    assert sac.seq_encoder and sac.batch_size == 64


# ---- bare configurations


@pytest.mark.parametrize("name", bare.TASKS)
def test_every_bare_task_says_little_and_loads(name: str, tmp_path: Path) -> None:
    task = bare.TASKS[name]
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({"default": task.config}))
    base = load_config(str(tmp_path), require_runnable=True).config.base_config
    assert (base.env_name, base.max_step) == (task.env, task.steps)
    assert sum(len(block) for block in task.config.values()) <= 4


# ---- tables

PAGE = "before\n\n<!-- table: updates -->\nold\n<!-- end -->\n\nafter\n"


def write_updates(folder: Path, name: str, **changes: Any) -> None:
    """A result of ``updates``."""
    rates = [{"ours": 3.0, "peer": 2.0, "ratio": 1.5}]
    figures = {"date": "2026-01-02", "version": "0123456789+", "medians": rates[0], "rates": rates}
    (folder / f"{name}.json").write_text(json.dumps(figures | changes))


def test_a_table_replaces_what_stands_between_its_comments(tmp_path: Path) -> None:
    write_updates(tmp_path, "updates")
    write_updates(tmp_path, "updates_old", date="2025-12-31", version="unknown")
    filled = tables.fill(PAGE, tmp_path)
    assert filled.startswith("before\n\n<!-- table: updates -->\n\n| measured |")
    told = "Measured 2025-12-31, 2026-01-02 with `0123456+`, `unknown`."
    assert filled.endswith(f"|\n\n{told}\n\n<!-- end -->\n\nafter\n")
    first, second = [line for line in filled.splitlines() if line.startswith("| 20")]
    assert first == "| 2025-12-31, unknown | 3.0 | 2.0 | 1.50 | 1.50 |"
    assert second == "| 2026-01-02, 0123456+ | 3.0 | 2.0 | 1.50 | 1.50 |"
    assert tables.fill(filled, tmp_path) == filled


def test_a_stale_page_is_found_and_written(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    options = [f"--results={tmp_path}", f"--pages={page}"]
    with pytest.raises(SystemExit, match="not up to date"):
        tables.main(["--check", *options])
    tables.main(["--write", *options])
    assert "Not measured yet: `make bench ONLY=updates`." in page.read_text()
    tables.main(["--check", *options])


@pytest.mark.slow
def test_the_documentation_is_up_to_date(root: Path) -> None:
    tables.main(["--check"])
    readme, evidence = ((root / name).read_text("utf-8") for name in ("README.md", "docs/evidence.md"))
    rows = re.findall(r"^\| \w+ \| \d+ × \d+ \| (.+) \|$", readme.replace("−", "-"), re.M)
    figures = re.findall(r"-?\d[\d.]*(?: \[.+?\])?", " ".join(rows))
    assert figures and [figure for figure in figures if figure not in evidence] == []


def test_every_table_stands_on_a_page_and_says_its_commit() -> None:
    text = "\n".join(page.read_text("utf-8") for page in tables.PAGES)
    blocks = dict(re.findall(r"<!-- table: (\S+) -->\n\n(.*?)\n\n<!-- end -->", text, re.S))
    assert set(tables.TABLES) <= set(blocks)
    for name, block in blocks.items():
        assert re.search(r"^Measured 20.* with `|^Not measured yet", block, re.M), name


def test_shares_become_milliseconds(tmp_path: Path) -> None:
    """100 steps/s are 10 ms a step; a quarter of it is 2.5 ms. What one side lacks took it no time."""
    parts = {"ours": {"act": 0.25, "wait": 0.75}, "peer": {"act": 0.25}}
    task = {"env_id": "module:Env-v0", "medians": {"ours": 100.0, "peer": 50.0}, "shares": parts}
    head = {"date": "2026-01-02", "version": "abc"}
    (tmp_path / "steps.json").write_text(json.dumps({**head, "tasks": {"env": task}}))
    assert tables.render("steps-shares", tmp_path).splitlines()[:4] == [
        "| ms a step | act | wait |",
        "| --- | --- | --- |",
        "| Env-v0, this project | 2.50 (25%) | 7.50 (75%) |",
        "| Env-v0, Stable-Baselines3 | 5.00 (25%) | 0.00 (0%) |",
    ]
