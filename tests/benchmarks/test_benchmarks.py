"""The benchmarks: every question can be asked, what is compared is comparable, tables are the results'."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import yaml

from algorithm.config import load_config
from benchmarks import __main__ as command
from benchmarks import bare, harness, peer, speed, tables
from benchmarks.harness import QUESTIONS, RESULTS, Bench
from benchmarks.worker import WorkerError, make_env, read_answer


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


def test_the_makefile_knows_the_same_questions(root: Path) -> None:
    makefile = (root / "Makefile").read_text()
    names = re.search(r"^BENCHES := (.*)$", makefile, re.M)
    peers = re.search(r"filter ([a-z ]+),\$\(ONLY\)\),bench-peers", makefile)
    assert names and peers
    assert names[1].split() == list(QUESTIONS)
    asking = {
        name for name in QUESTIONS if "theirs(" in Path(harness.find(name).__code__.co_filename).read_text()
    }
    assert set(peers[1].split()) == asking - {"memory"}


@pytest.mark.parametrize("words", [["nope"], ["updates", "nope"], [], ["updates", "--pears=3"]])
def test_a_wrong_command_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        command.main(words)
    assert stop.value.code == 2
    assert "known are updates, steps" in (err := capsys.readouterr().err) or "--pears" in err


def test_every_question_that_the_pages_name_exists(root: Path) -> None:
    folders = (root, root / "docs", root / "benchmarks", root / "benchmarks" / "studies")
    pages = [page for folder in folders for page in folder.glob("*.md")]
    text = "\n".join(page.read_text("utf-8") for page in pages if page.name != "CHANGELOG.md")
    named = {
        name for found in re.findall(r'ONLY=(?:"([^"]+)"|(\w+))', text) for name in " ".join(found).split()
    }
    assert named and named <= set(QUESTIONS)


# ---- processes and answers


def ask(question: Any, file: Path, **arguments: Any) -> Any:
    """What is written of a question."""
    harness.measure(question, Bench(smoke=True), file, **arguments)
    return json.loads(file.read_text())


def test_what_was_measured_is_written_at_once(tmp_path: Path) -> None:
    def question(bench: Bench, earlier: Mapping[str, Any], *, n: int) -> Iterator[Mapping[str, Any]]:
        yield {"a": 1 / 3, "earlier": dict(earlier)}
        raise WorkerError("no more")

    with pytest.raises(WorkerError):
        ask(question, tmp_path / "x.json", n=3)
    found = json.loads((tmp_path / "x.json").read_text())
    assert (found["a"], found["setting"], found["earlier"]) == (0.333333, {"n": 3}, {})
    assert {"date", "version", "machine", "load"} <= found.keys()


@pytest.mark.parametrize(
    "output",
    [
        '{"a": 1}',
        'build time\n{"a": 1}\nargv[0]=\n',
        'argv[0]={"a": 1}stopping',
        '{"a": 0}\n{"a": 1}\n{"half',
    ],
)
def test_an_answer_is_found_in_noise(output: str) -> None:
    assert read_answer(output, of="it") == {"a": 1}


@pytest.mark.parametrize("output", ["", "argv[0]=\n", '{"half": '])
def test_no_answer_is_an_error(output: str) -> None:
    with pytest.raises(WorkerError, match="it printed no answer"):
        read_answer(output, of="it")


@pytest.mark.slow
def test_a_worker_is_a_process_with_one_thread_that_says_why_it_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    Bench().run([sys.executable, "-c", "import os; print(os.environ['OMP_NUM_THREADS'])"], tmp_path / "log")
    assert (tmp_path / "log").read_text() == "1\n"
    assert Bench().ours("harness:machine")["python"] == ".".join(map(str, sys.version_info[:3]))
    with pytest.raises(WorkerError, match=r"(?s)exit code 1.*no attribute 'nothing'"):
        Bench().ours("worker:nothing")
    with pytest.raises(WorkerError, match="make bench-peers"):
        Bench(Path("/nowhere/python")).theirs("sb3:train")


@pytest.mark.slow
def test_what_ends_a_question_ends_its_processes(tmp_path: Path) -> None:
    bench, begin = Bench(), time.monotonic()

    def job(seconds: int) -> None:
        time.sleep(seconds / 600)  # so that it starts its process after what ends the others
        bench.run([sys.executable, "-c", f"import time; time.sleep({seconds})"], tmp_path / f"{seconds}.txt")

    with pytest.raises(KeyboardInterrupt):
        for _ in bench.each([0, 600], job, at_a_time=2):
            raise KeyboardInterrupt
    assert time.monotonic() - begin < 60


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


def test_which_step_learns_first_may_differ() -> None:
    assert pairs_of([1.0], [{"updates": 118, "seconds": 1.0}])["rates"][0]["peer"] == 118.0


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


def finished_run(
    folder: Path, task: str, seed: int, *, commit: str = "abcdef123", final: float = 1.0, **base: Any
) -> Path:
    """A run's folder, as far as it is read."""
    run, said = folder / "models" / task / f"{task}-{seed}", bare.TASKS[task]
    model = run / "checkpoints" / f"step_{said.steps:09}" / "model.safetensors"
    model.parent.mkdir(parents=True)
    header = json.dumps({"model.q.w": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}}).encode()
    model.write_bytes(len(header).to_bytes(8, "little") + header)
    config = {**load_config(str(speed.EQUAL), "pendulum").config.model_dump(mode="json")}
    config["base_config"] |= {"env_name": said.env, "max_step": said.steps, **base}
    (run / "config.yaml").write_text(yaml.safe_dump(config))
    result = {"seed": seed, "steps": said.steps, "updates": 9, "seconds": 30.5, "time": {"update": 1.0}}
    (run / "result.json").write_text(json.dumps(result))
    manifest = {"started": "2026-01-02T03:04:05+00:00", "git": {"commit": commit, "changed": False}}
    (run / "manifest.json").write_text(json.dumps(manifest))
    rows = f"step,loss/q,eval/return_mean\n500,1.0,\n{said.steps // 2},,0.5\n{said.steps},,{final}\n"
    (run / "metrics.csv").write_text(rows)
    return run


def test_finished_runs_are_adopted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Both sides, with the commits and days they say, whoever reads them when; nothing of another task."""
    for seed in (1, 2):
        finished_run(tmp_path / "old", "pendulum", seed, final=10.0 * seed)
    finished_run(tmp_path / "old", "acrobot", 1, max_step=5)
    line = {
        "library": "stable-baselines3",
        "version": "2.9.2",
        "algorithm": "SAC",
        "task": "pendulum",
        "seed": 1,
    }
    curve = [[3000, [0.0, 0.0]], [6000, [4.0, 6.0]]]
    failed = {"task": "minigrid", "seed": 1, "version": "2.9.2", "error": "AssertionError: no"}
    answers = tmp_path / "sb3.jsonl"
    answers.write_text(f"{json.dumps({**line, 'seconds': 7.0, 'curve': curve})}\n{json.dumps(failed)}\n")
    os.utime(answers, (0, 0))
    file = tmp_path / "bare.json"
    options = {"tasks": ["pendulum", "acrobot", "minigrid"], "seeds": [1, 2], "finished_only": True}
    found = ask(bare.bare, file, **options, adopt=[f"before={tmp_path}/old", f"sb3={answers}"])
    assert (found["date"], found["version"]) == ("2026-01-02", "abcdef123")
    assert found["tasks"]["pendulum"]["env"] == "Pendulum-v1"
    assert "acrobot-1 has base_config.max_step 5, not 8000" in capsys.readouterr().err
    lines = tables.render("bare", tmp_path).splitlines()
    assert lines[0] == (
        "| task | steps | random policy | before | Stable-Baselines3 "
        "| mean height: before / Stable-Baselines3 | seconds: before / Stable-Baselines3 |"
    )
    assert lines[2].endswith("| **15** (10, 20) | **5** (5) | 7.75 / 2.5 | 30 / 7 |")
    nothing = "| – / – | – / – |"
    assert [line.split(" | ", 3)[3] for line in lines[3:5]] == [f"– | – {nothing}", f"– | failed {nothing}"]
    assert lines[-1] == "Measured 2026-01-02 with `abcdef1`."
    again = ask(bare.bare, file, **options)  # what the file says stays, when and where it is read
    assert {**again, "setting": 0} == {**found, "setting": 0}
    finished_run(tmp_path / "new", "pendulum", 1, commit="new")
    found = ask(bare.bare, file, **options, adopt=[f"before={tmp_path}/new"])
    assert [row["version"] for row in found["runs"][:2]] == ["new", "abcdef123"], (
        "another commit, the same seed"
    )


@pytest.mark.parametrize("name", bare.TASKS)
def test_every_bare_task_says_little_and_loads(name: str, tmp_path: Path) -> None:
    task = bare.TASKS[name]
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({"default": task.config}))
    base = load_config(str(tmp_path), require_runnable=True).config.base_config
    assert (base.env_name, base.max_step) == (task.env, task.steps)
    assert sum(len(block) for block in task.config.values()) <= 4


def test_the_lander_s_rewards_are_scaled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(harness.ENVS))
    plain, scaled = gym.make("LunarLander-v3"), make_env(bare.TASKS["scaled_lander"].env)
    rewards = []
    for env in (plain, scaled):
        env.reset(seed=0)
        rewards.append(float(env.step(0)[1]))
    assert rewards[1] == pytest.approx(1000 * rewards[0])


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


@pytest.mark.parametrize(
    ("page", "message"),
    [
        ("<!-- table: updatez -->\n<!-- end -->\n", "there is no table updatez; known are updates, steps"),
        ("<!-- table: updates -->\n", "table updates has no <!-- end -->"),
        ("<!-- table: steps -->\n<!-- table: updates -->\n<!-- end -->\n", "table steps has no <!-- end -->"),
    ],
)
def test_a_wrong_comment_is_an_error(page: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(tables.PageError, match=message):
        tables.fill(page, tmp_path)


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
