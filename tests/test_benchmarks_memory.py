"""The benchmarks of memory: what is trained, what an update is divided into, and the tables."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest
import torch

from algorithm.config.cli import config_flags, parse_args
from algorithm.config.loader import load_config

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))  # its scripts import one another by their plain names
cells, delays, harness, hidden, jobs, memory, memory_ours, render_memory, sweep, tables, toys = map(
    importlib.import_module,
    (
        "cells",
        "delays",
        "harness",
        "hidden",
        "jobs",
        "memory",
        "memory_ours",
        "render_memory",
        "sweep",
        "tables",
        "toys",
    ),
)


def make_row(task: str, variant: str, seed: int, *returns: float) -> dict[str, Any]:
    """A row whose run was evaluated every 1000 steps."""
    curve = [[1000 * n, value] for n, value in enumerate(returns, 1)]
    return {"task": task, "variant": variant, "seed": seed, "version": "1", "seconds": 1.0, "curve": curve}


def write(folder: Path, one: Any, rows: list[dict[str, Any]]) -> Path:
    """A result file as a sweep writes it."""
    settings: dict[str, dict[str, dict[str, Any]]] = {}
    for row in rows:
        settings.setdefault(row["task"], {})[row["variant"]] = {}
    file = folder / f"{one.name}.json"
    file.write_text(json.dumps({**one.summarise(rows), "settings": settings, "runs": rows}))
    return file


# ---- what is trained


@pytest.mark.parametrize("one", [hidden.SWEEP, delays.make_sweep()], ids=lambda one: one.name)
def test_every_training_loads(one: Any) -> None:
    """Each variant says something of its own, its command is understood, and every name is another."""
    plan = one.plan()
    assert len({job.name for job in plan}) == len(plan)
    one_seed = [job for job in plan if job.seed == 1]
    for job in one_seed:
        options = parse_args(job.command[2:])
        flags = config_flags(options)
        loaded = load_config(
            options.env, options.config, options.overrides, flags, options.seed, require_runnable=True
        )
        assert jobs.settings_of(loaded) == job.settings
        assert loaded.config.base_config.name == job.name
    told = [(job.task, json.dumps(job.settings, sort_keys=True)) for job in one_seed]
    assert len(set(told)) == len(told)


def test_all_see_or_do_not_see_the_velocities_of_the_same_task() -> None:
    """What is hidden is hidden for as many steps with every memory, and all are evaluated alike."""
    for task in hidden.THRESHOLDS:
        plan = {job.variant: job.loaded.config for job in hidden.SWEEP.plan(tasks=[task], seeds=[1])}
        assert list(plan) == ["default", "hidden_mlp", "hidden_rnn", "hidden_attn"]
        assert len({c.base_config.env_name for c in plan.values()}) == 1
        assert len({c.base_config.max_step for name, c in plan.items() if name != "default"}) == 1
        assert len({c.eval_config.model_dump_json() for c in plan.values()}) == 1
        memories = [config.sac_config.seq_encoder for config in plan.values()]
        assert memories == [None, None, "RNN", "ATTN"]


def test_a_delay_changes_the_windows_and_nothing_else() -> None:
    """A window holds an episode of delay + 2 steps; attention sees back to the cue from the last of them."""
    plan = delays.make_sweep().plan()
    assert [job.name for job in plan[:3]] == ["8-rnn-1", "8-attn-1", "16-rnn-1"]
    assert len(plan) == 8
    for job in plan:
        preset = jobs.Job(task="", variant="", seed=1, env="toy/recall", section=job.variant)
        delay = int(job.task)
        expected = {
            "base_config.env_args": {"delay": delay},
            "base_config.max_step": 20_000,
            "sac_config.learn_step": delay + 2,
        }
        if job.variant == "attn":
            expected["sac_config.burn_in_step"] = delay + 1
        assert job.settings == preset.settings | expected


def test_a_delay_is_measured_with_the_steps_that_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(sweep, "main", lambda one, arguments: asked.append((one, arguments)))
    delays.main(["--steps=300", "--tasks", "8"])
    ((one, arguments),) = asked
    assert arguments == ["--tasks", "8"]
    assert {job.settings["base_config.max_step"] for job in one.plan()} == {300}
    with pytest.raises(SystemExit, match="--steps must be at least 1"):
        delays.main(["--steps=0"])


def test_toys_without_the_section_that_others_refine(tmp_path: Path) -> None:
    named = "{base_config: {env_name: a}}"
    for task, other in (("memory", "mlp"), ("plain", "blind")):
        (tmp_path / task).mkdir()
        (tmp_path / task / "config.yaml").write_text(f"default: {named}\n{other}: {named}\n")
    assert toys.find_variants(tmp_path) == {"memory": ("mlp",), "plain": ("default", "blind")}
    assert toys.find_variants()["recall"] == ("mlp", "rnn", "attn")


# ---- figures, tables and pictures of trainings


def test_hidden_velocities_become_a_table(tmp_path: Path) -> None:
    rows = [make_row("pendulum", "default", seed, -400.0, -150.0) for seed in (1, 2)]
    rows += [make_row("pendulum", "hidden_mlp", seed, -1200.0, -1000.0 - seed) for seed in (1, 2)]
    write(tmp_path, hidden.SWEEP, rows)
    assert render_memory.hidden(tmp_path, task="pendulum").splitlines() == [
        "| section | steps | last evaluation | each seed | steps to -200, each seed |",
        "| --- | --- | --- | --- | --- |",
        "| default | 2,000 | -150.0 | -150.0, -150.0 | 2000, 2000 |",
        "| hidden_mlp | 2,000 | -1001.5 | -1001.0, -1002.0 | never, never |",
        "",
        "![Evaluation return over environment steps on Pendulum-v1 with hidden velocities]"
        "(images/hidden_pendulum.png)",
    ]
    with pytest.raises(cells.MissingError, match="hidden"):
        render_memory.hidden(tmp_path, task="cart_pole")


def test_a_picture_has_a_line_and_a_band_for_every_variant() -> None:
    """The line is the mean of the seeds, the band goes from the lowest to the highest."""
    rows = [make_row("pendulum", "default", seed, float(seed), 2.0 * seed) for seed in (1, 2, 6)]
    rows += [make_row("pendulum", variant, 1, 0.0, 1.0) for variant in ("hidden_attn", "hidden_rnn")]
    (axes,) = hidden.draw(rows, title="x").axes
    assert [line.get_label() for line in axes.lines] == [
        "everything seen",
        "hidden, recurrent",
        "hidden, attention",
    ]
    assert axes.lines[0].get_xydata().tolist() == [[1000.0, 3.0], [2000.0, 6.0]]
    band = axes.collections[0].get_paths()[0].vertices
    assert {tuple(point) for point in band} == {(1000.0, 1.0), (1000.0, 6.0), (2000.0, 2.0), (2000.0, 12.0)}
    assert len({line.get_color() for line in axes.lines}) == 3


@pytest.mark.parametrize("ended", [False, True])
def test_pictures_are_drawn_beside_the_figures_of_a_trial(
    ended: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where the measurement was interrupted after some of its runs."""
    write(tmp_path, hidden.SWEEP, [make_row("cart_pole", "default", 1, 9.0, 500.0)])

    def measure(one: Any, arguments: Any) -> None:
        assert one is hidden.SWEEP
        assert arguments == [f"--results={tmp_path}"]
        if ended:
            raise SystemExit("interrupted")

    monkeypatch.setattr(sweep, "main", measure)
    if ended:
        with pytest.raises(SystemExit, match="interrupted"):
            hidden.main([f"--results={tmp_path}"])
    else:
        hidden.main([f"--results={tmp_path}"])
    assert (tmp_path / "hidden_cart_pole.png").read_bytes()[:4] == b"\x89PNG"
    assert "| default | 2,000 | 500.0 | 500.0 | 2000 |" in capsys.readouterr().out


def test_pictures_go_where_they_are_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, hidden.SWEEP, [make_row("pendulum", "default", 1, 0.0, 1.0)])
    places: list[Path] = []
    monkeypatch.setattr(sweep, "main", lambda *_: None)
    monkeypatch.setattr(hidden, "show", lambda file, images: places.append(images))
    hidden.main([f"--results={tmp_path}", f"--images={tmp_path / 'there'}"])
    monkeypatch.setattr(hidden, "RESULTS", tmp_path)
    hidden.main([f"--results={tmp_path}"])
    assert places == [tmp_path / "there", hidden.IMAGES]


def test_the_longest_delay_that_is_solved(tmp_path: Path) -> None:
    """By the mean of two seeds rnn solves 16, attn does not solve 8; rnn forgot 32 and attn did not try."""
    rows = [make_row("8", "attn", 1, 0.2, 0.96), make_row("8", "attn", 2, 0.2, 0.90)]
    rows += [make_row("8", "rnn", 1, 0.95, 1.0)]
    rows += [make_row("32", "rnn", 1, 0.96, 0.25), make_row("16", "rnn", 2, 0.5, 0.92)]
    rows += [make_row("16", "rnn", 1, 0.5, 0.98)]
    write(tmp_path, delays.make_sweep(), rows)
    found = json.loads((tmp_path / "delays.json").read_text())
    assert found["longest"] == {"rnn": 16, "attn": None}
    assert (found["optimum"], found["chance"]) == (1.0, 0.25)
    assert tables.render("delays", tmp_path).splitlines() == [
        "| delay | `rnn`: last evaluation | steps to 95 % | `attn`: last evaluation | steps to 95 % |",
        "| --- | --- | --- | --- | --- |",
        "| 8 | 1.00 | 1000 | 0.93 | 2000, never |",
        "| 16 | 0.95 | 2000, never | not run | not run |",
        "| 32 | 0.25 | 1000 | not run | not run |",
        "",
        "2,000 environment steps each. The optimum is 1, without memory 0.25. Longest delay solved, the last "
        "evaluation at 95 % of the optimum or more: `rnn` 16, `attn` none.",
    ]


def test_pages_may_ask_for_every_table() -> None:
    assert set(render_memory.TABLES) <= set(tables.TABLES)
    page = BENCHMARKS.parent / "docs" / "memory.md"
    assert page in tables.PAGES
    assert all(f"<!-- table: {name} -->" in page.read_text("utf-8") for name in render_memory.TABLES)


# ---- updates


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A replay of two episodes in place of twenty, and as many updates as there should be seconds."""

    def count(update: Callable[[], object], seconds: float, warm_up: float) -> tuple[int, float]:
        assert warm_up == 0  # what does not count has a call of its own
        begin = perf_counter()
        for _ in range(int(seconds)):
            update()
        return int(seconds), perf_counter() - begin

    monkeypatch.setattr(memory_ours, "measure", count)
    fewer = memory_ours.Setting(batch_size=64, transitions=2000)
    monkeypatch.setattr(memory_ours, "SETTING", fewer)


@pytest.mark.parametrize(
    ("case", "windows", "online"),
    [
        ("gru", 64 * 35, {True: 64 * 20, False: 64 * 15}),
        ("lstm", 64 * 35, {True: 64 * 20, False: 64 * 15}),
        ("attn", 64 * 69, {True: 64 * 69, False: 0}),
        ("gru_long", 64 * 65, {True: 64 * 64, False: 64}),
    ],
)
def test_no_token_is_encoded_twice(case: str, windows: int, online: dict[bool, int], small: None) -> None:
    """Either encoder is given each token of a window once; the update to warm up does not count."""
    found = memory_ours.run(case, seed=0, seconds=1, warm_up=1)
    assert found["updates"] == 1
    assert found["tokens"] == {
        "windows": windows,
        "online, with gradient": online[True],
        "online, without": online[False],
        "target": windows,
    }
    assert sum(found["time"].values()) == pytest.approx(found["seconds"])
    assert min(found["time"].values()) > 0
    assert found["cpu_seconds"] > 0


def test_cases_are_what_they_are_called() -> None:
    """Memories, windows and everything else as by default: V-trace over n steps, prioritised."""
    assert set(render_memory.CASES) == set(memory_ours.CASES)
    for case in memory_ours.CASES:
        loaded = memory_ours.load_case(case)
        assert loaded.config.sac_config.use_priority
        assert loaded.config.sac_config.use_n_step_is
    assert [list(memory.window_of(case).values()) for case in memory_ours.CASES] == [
        [64, 10, 20, 5],
        [64, 10, 20, 5],
        [64, 32, 32, 5],
        [64, 0, 64, 1],
    ]
    widths = {"gru": (1, 64), "lstm": (2, 1, 64), "gru_long": (1, 128), "attn": (0,)}
    assert {
        case: memory_ours.build(case, 0).player.stored_carry_shape for case in memory_ours.CASES
    } == widths


def test_time_is_that_of_the_calls() -> None:
    """Two calls of 3 s each; what was before the beginning does not count."""
    now = iter([0.0, 3.0, 10.0, 13.0, 20.0, 23.0])
    owner = type("Owner", (), {"method": lambda self, x: x + 1})()
    timed = memory_ours.Timed(owner, "method", lambda: next(now))
    owner.method(0)
    timed.clear()
    assert [owner.method(1), owner.method(x=2)] == [2, 3]
    assert timed.seconds == 6.0


def test_the_worker_prints_one_answer(
    small: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    threads = torch.get_num_threads()
    arguments = ["--case=gru", "--seconds=1", "--warm-up=0", f"--threads={threads}"]
    monkeypatch.setattr(sys, "argv", ["memory_ours.py", *arguments])
    memory_ours.main()
    answer = harness.read_answer(capsys.readouterr().out, of="it")
    assert answer["threads"] == threads
    assert {"library", "version", "updates", "seconds", "cpu_seconds", "time", "tokens"} < set(answer)


class FakeWorker(harness.Worker):
    """A worker that answers at once: 10 updates a second in the first round, 20 in the second, then 40."""

    def run(self, arguments: Any, *, threads: int = 1) -> dict[str, Any]:
        given = dict(word.removeprefix("--").split("=") for word in arguments)
        updates = 60 * 2 ** int(given["seed"])
        time = {"sampling": 0.6, "online encoder": 1.2, "target encoder": 1.2, "rest": 3.0}
        tokens = {
            "windows": 2240,
            "online, with gradient": 1280.0,
            "online, without": 960.0,
            "target": 2240.0,
        }
        told = {"threads": int(given["threads"]), "parameters": 1000, "seconds": 6.0, "cpu_seconds": 4.8}
        return {**told, "updates": updates, "time": time, "tokens": tokens}


def test_medians_of_rounds_become_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The median round makes 120 updates in 6 s: 4.8 CPU-seconds are 0.04 each, 0.6 s of sampling 5 ms."""
    monkeypatch.setattr(memory, "our_worker", lambda script: FakeWorker("ours", Path(), Path(script)))
    monkeypatch.setattr(harness, "our_version", lambda: "abc")
    memory.main(["--rounds=3", f"--json={tmp_path / 'memory.json'}"])
    assert tables.render("memory-speed", tmp_path).splitlines()[:3] == [
        "| memory | windows | burn-in | learned | n | updates/s | CPU-seconds an update | trained weights |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
        "| GRU, 64 units | 64 | 10 | 20 | 5 | 20.0 | 0.040 | 1,000 |",
    ]
    times, tokens = (text.splitlines() for text in tables.render("memory-profile", tmp_path).split("\n\n"))
    assert times[0] == "| ms an update | sampling | online encoder | target encoder | rest |"
    assert times[2] == "| GRU, 64 units | 5.0 | 10.0 | 10.0 | 25.0 |"
    assert tokens[0] == "| tokens an update | windows | online, with gradient | online, without | target |"
    assert tokens[5] == "| GRU, 128 units, as wide networks behind it | 2,240 | 1,280 | 960 | 2,240 |"
    assert len(times) == len(tokens) == 6


def test_other_threads_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Odd(FakeWorker):
        def run(self, arguments: Any, *, threads: int = 1) -> dict[str, Any]:
            return super().run(arguments, threads=threads) | {"threads": 7}

    monkeypatch.setattr(memory, "our_worker", lambda script: Odd("ours", Path(), Path(script)))
    with pytest.raises(SystemExit, match="gru ran with 7 threads, not 1"):
        memory.main([f"--json={tmp_path / 'memory.json'}"])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("arguments", [["--rounds=0"], ["--seconds=0"], ["--cases=gru"]])
def test_a_wrong_command_is_refused(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        memory.main(arguments)
    assert stop.value.code == 2
