"""Many trainings of variants: resuming, what is kept, and the tables; nothing is trained."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from algorithm.config.cli import config_flags, parse_args
from algorithm.config.loader import dump_config, load_config

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))  # its scripts import one another by their plain names
ablation, harness, jobs, render_sweeps, sweep, target_entropy, toys = map(
    importlib.import_module,
    (
        "ablation",
        "harness",
        "jobs",
        "render_sweeps",
        "sweep",
        "target_entropy",
        "toys",
    ),
)
SWEEPS = {"ablation": ablation.SWEEP, "target_entropy": target_entropy.SWEEP, "toys": toys.make_sweep()}


def write_run(folder: Path, job: Any, *returns: float, steps: int | None = None) -> Path:
    """A run as training leaves it, evaluated at equal distances; ``steps``: where it was stopped."""
    end = job.loaded.config.base_config.max_step
    run = job.run_folder(folder)
    model = run / "checkpoints" / f"step_{end:09d}" / "model.safetensors"
    model.parent.mkdir(parents=True)
    (run / "config.yaml").write_text(dump_config(job.loaded))
    (run / "manifest.json").write_text(json.dumps({"git": {"commit": "abc", "changed": False}}))
    points = [f"{end * n // len(returns)},{value}" for n, value in enumerate(returns, 1)]
    (run / "metrics.csv").write_text("\n".join(["step,eval/return_mean", *points]) + "\n")
    names = ("model.rep.weight", "model.q.weight", "model.policy.weight", "model.target_rep.weight")
    save_file({name: np.zeros((2, 3), np.float32) for name in names}, model)
    result = {"seed": job.seed, "seconds": 9.0, "steps": end if steps is None else steps}
    (run / "result.json").write_text(json.dumps(result))
    return run


@pytest.fixture
def trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the runs that were trained, in place of training them: each ends with the return −100."""
    done: list[str] = []

    def play(job: Any, folder: Path, stop: Event) -> None:
        write_run(folder, job, -300.0, -100.0)
        done.append(job.name)

    monkeypatch.setattr(jobs, "train", play)
    monkeypatch.setattr(harness, "our_version", lambda: "abc")  # asks git, which takes its time
    return done


def call(folder: Path, *arguments: str) -> dict[str, Any]:
    """Run ``ablation.py`` with its runs and figures in a folder; returns the figures."""
    sweep.main(ablation.SWEEP, [f"--folder={folder / 'runs'}", f"--results={folder}", *arguments])
    return json.loads((folder / "ablation.json").read_text())


SLICE = ("--tasks", "pendulum", "--variants", "base", "no_per", "--seeds", "1", "2")

# ---- what is trained


@pytest.mark.parametrize("name", SWEEPS)
def test_every_training_loads(name: str) -> None:
    """Each variant says something of its own, its command is understood, and every name is another."""
    plan = SWEEPS[name].plan()
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


def test_variants_of_the_ablation_change_one_factor() -> None:
    jobs_of = {job.variant: job for job in ablation.SWEEP.plan(tasks=["cart_pole"], seeds=[1])}
    base = jobs_of["base"].loaded.config
    assert (base.sac_config.n_step, base.sac_config.use_priority) == (1, True)
    assert base.sac_config.clip_epsilon <= 0
    settings = {name: job.settings for name, job in jobs_of.items()}
    changed = {
        name: {
            key.removeprefix("sac_config.")
            for key in found | settings["base"]
            if found.get(key) != settings["base"].get(key)
        }
        for name, found in settings.items()
    }
    assert changed == {
        "base": set(),
        "n3_is": {"n_step"},
        "n3_no_is": {"n_step", "use_n_step_is"},
        "n5_is": {"n_step"},
        "n5_no_is": {"n_step", "use_n_step_is"},
        "no_per": {"use_priority"},
        "clip_0.2": {"clip_epsilon"},
    }


def test_the_default_target_entropy_is_among_the_values() -> None:
    (job,) = target_entropy.SWEEP.plan(tasks=["acrobot"], variants=[target_entropy.DEFAULT], seeds=[1])
    assert "sac_config.target_d_alpha" not in job.settings


def test_sections_of_toys_are_found(tmp_path: Path) -> None:
    named, unnamed = "{base_config: {env_name: a}}", "{sac_config: {n_step: 1}}"
    for task, first in (("one", named), ("two", unnamed)):
        (tmp_path / task).mkdir()
        (tmp_path / task / "config.yaml").write_text(f"default: {first}\nblind: {named}\n")
    assert toys.find_variants(tmp_path) == {"one": ("default", "blind"), "two": ("blind",)}


# ---- resuming


def test_only_what_is_missing_is_trained(tmp_path: Path, trained: list[str]) -> None:
    """One is finished, one was stopped halfway and one killed before it had a result."""
    plan = {job.name: job for job in ablation.SWEEP.plan(tasks=["pendulum"])}
    write_run(tmp_path / "runs", plan["pendulum-base-1"], -300.0, -150.0)
    for name in ("pendulum-base-2", "pendulum-no_per-1"):
        write_run(tmp_path / "old", plan[name], -300.0)
    found = call(tmp_path, *SLICE)
    assert sorted(trained) == ["pendulum-base-2", "pendulum-no_per-1", "pendulum-no_per-2"]
    assert len(found["runs"]) == 4
    call(tmp_path, *SLICE)
    assert len(trained) == 3


def test_weights_of_the_encoder_count(tmp_path: Path) -> None:
    job = ablation.make_job("pendulum", "base", 1)
    write_run(tmp_path, job, -1.0)
    assert job.read(tmp_path).parameters == 3 * 6


@pytest.mark.parametrize(("steps", "finished"), [(5000, True), (4999, False), (None, False)])
def test_a_run_is_finished_at_its_last_step(tmp_path: Path, steps: int | None, finished: bool) -> None:
    job = ablation.make_job("pendulum", "base", 1)
    run = write_run(tmp_path, job, -1.0, steps=steps or 0)
    if steps is None:
        (run / "result.json").unlink()
    assert job.is_finished(tmp_path) is finished


def test_a_run_of_other_settings_stops_it(tmp_path: Path, trained: list[str]) -> None:
    other = ablation.make_job("pendulum", "base", 1, ("sac_config.gamma=0.9",))
    write_run(tmp_path / "runs", other, -1.0, -1.0)
    message = r"pendulum-base-1 was trained with other settings \(sac_config.gamma: 0.9, not default\)"
    with pytest.raises(SystemExit, match=message):
        call(tmp_path, *SLICE)
    assert trained == []


def command(code: str) -> Callable[[Any], list[str]]:
    """The command of every job: a line of Python that knows the job's name, run in the folder."""
    return lambda job: [sys.executable, "-c", f"name = {job.name!r}\n{code}"]


def fake(monkeypatch: pytest.MonkeyPatch, code: str, finished: Callable[[Path, str], bool]) -> None:
    """Trainings that are lines of Python."""
    monkeypatch.setattr(jobs.Job, "command", property(command(code)))
    monkeypatch.setattr(jobs.Job, "is_finished", lambda job, folder: finished(folder, job.name))


def test_a_failed_training_does_not_end_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code = "if name == 'pendulum-base-1': raise SystemExit('no luck')\nopen(name + '.done', 'w')"
    fake(monkeypatch, code, lambda folder, name: (folder / f"{name}.done").exists())
    done: list[str] = []
    plan = ablation.SWEEP.plan(tasks=["pendulum"], variants=["base"])
    (failed,) = jobs.train_all(plan, tmp_path, at_a_time=2, done=lambda job: done.append(job.name))
    assert sorted(done) == ["pendulum-base-2", "pendulum-base-3"]
    assert failed.startswith("pendulum-base-1 ended with exit code 1")
    assert failed.endswith("no luck")
    assert "pendulum-base-1: failed" in capsys.readouterr().err


def test_a_training_that_stops_early_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake(monkeypatch, "pass", lambda folder, name: False)
    (failed,) = jobs.train_all([ablation.make_job("pendulum", "base", 1)], tmp_path, at_a_time=1, done=print)
    assert "did not come to its last step" in failed


def test_what_a_kill_left_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = ablation.make_job("pendulum", "base", 1)
    left = job.run_folder(tmp_path) / "metrics.csv"
    left.parent.mkdir(parents=True)
    left.touch()
    fake(monkeypatch, "open('done', 'w')", lambda folder, _: (folder / "done").exists())
    jobs.train(job, tmp_path, Event())
    assert not left.exists()


def test_an_interrupt_ends_the_trainings_under_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``done`` of the quick one raises what Ctrl-C raises; the slow one would take a minute."""
    quick = "while not os.path.exists('begun'): time.sleep(0.01)\n    open('done', 'w')"
    slow = "open('begun', 'w')\n    time.sleep(60)"
    code = f"import os, time\nif name.endswith('1'):\n    {quick}\nelse:\n    {slow}"
    fake(monkeypatch, code, lambda folder, name: name.endswith("1") and (folder / "done").exists())

    def interrupt(_: Any) -> None:
        raise KeyboardInterrupt

    ended = []
    wait = jobs.subprocess.Popen.wait
    monkeypatch.setattr(jobs.subprocess.Popen, "wait", lambda *given: ended.append(wait(*given)))
    plan = ablation.SWEEP.plan(tasks=["pendulum"], variants=["base"], seeds=[1, 2])
    with pytest.raises(KeyboardInterrupt):
        jobs.train_all(plan, tmp_path, at_a_time=2, done=interrupt)
    assert ended == [-jobs.signal.SIGTERM]


def test_a_run_is_not_trained_twice_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody else holds its lock; asked to stop while waiting, this one has trained nothing."""
    job = ablation.make_job("pendulum", "base", 1)
    fake(monkeypatch, "open('done', 'w')", lambda folder, _: (folder / "done").exists())
    stop = Event()
    stop.set()
    with monkeypatch.context() as patch, jobs._lock(tmp_path / f"{job.name}.lock", Event()):
        patch.setattr(jobs, "_run", lambda *_: pytest.fail("it was trained"))
        with pytest.raises(jobs.StoppedError):
            jobs.train(job, tmp_path, stop)
    jobs.train(job, tmp_path, Event())
    assert (tmp_path / "done").exists()


def test_a_training_holds_the_lock_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So it is not started again if it outlives the process that started it."""
    code = """
import os
for number in range(3, 256):
    try:
        if os.path.samestat(os.fstat(number), os.stat(f"{name}.lock")):
            open("done", "w")
    except OSError:
        pass
"""
    fake(monkeypatch, code, lambda folder, _: (folder / "done").exists())
    jobs.train(ablation.make_job("pendulum", "base", 1), tmp_path, Event())


# ---- the figures


def test_figures_of_other_slices_stay(tmp_path: Path, trained: list[str]) -> None:
    call(tmp_path, "--tasks", "pendulum", "--variants", "base", "--seeds", "1")
    (tmp_path / "runs").rename(tmp_path / "gone")
    found = call(tmp_path, "--tasks", "cart_pole", "--variants", "base", "--seeds", "4")
    assert [(row["task"], row["seed"]) for row in found["runs"]] == [("pendulum", 1), ("cart_pole", 4)]
    assert found["runs"][0]["curve"] == [[2500, -300.0], [5000, -100.0]]


def test_figures_of_other_settings_go(
    tmp_path: Path, trained: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    call(tmp_path, "--tasks", "pendulum", "--variants", "base", "--seeds", "1")
    (tmp_path / "runs").rename(tmp_path / "gone")
    other = ("-o", "sac_config.gamma=0.9")
    found = call(tmp_path, "--tasks", "pendulum", "--variants", "no_per", "--seeds", "1", *other)
    assert [row["variant"] for row in found["runs"]] == ["no_per"]
    assert "1 earlier runs had other settings" in capsys.readouterr().err


def test_figures_are_written_after_every_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second training dies in a way that ends the measurement; the first is in the file."""

    def play(job: Any, folder: Path, stop: Event) -> None:
        if job.seed == 2:
            raise KeyboardInterrupt
        write_run(folder, job, -300.0, -100.0)

    monkeypatch.setattr(jobs, "train", play)
    with pytest.raises(SystemExit, match="the same command goes on from there"):
        call(tmp_path, "--tasks", "pendulum", "--variants", "base", "--seeds", "1", "2", "--jobs=1")
    assert [row["seed"] for row in json.loads((tmp_path / "ablation.json").read_text())["runs"]] == [1]


def test_a_result_file_is_whole_or_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "figures.json"
    file.write_text("before")
    with pytest.raises(ValueError, match="not JSON compliant"):
        harness.write_result(file, {"rate": float("nan")})
    assert file.read_text() == "before"
    harness.write_result(file, {"rate": 1.0})
    assert json.loads(file.read_text())["rate"] == 1.0
    assert list(tmp_path.iterdir()) == [file]


def test_the_table_alone_trains_nothing(tmp_path: Path, trained: list[str]) -> None:
    with pytest.raises(SystemExit, match="no run is finished in"):
        call(tmp_path, "--table-only")
    write_run(tmp_path / "runs", ablation.make_job("pendulum", "base", 2), -300.0, -150.0)
    assert len(call(tmp_path, "--table-only")["runs"]) == 1
    assert trained == []


@pytest.mark.parametrize(
    "arguments",
    [["--variants", "n4"], ["--tasks", "hopper"], ["--jobs=0"], ["-o", "sac_config.gamma=0.9"]],
)
def test_a_wrong_command_is_refused(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        sweep.parse_arguments(ablation.SWEEP, arguments)
    assert stop.value.code == 2


def test_a_variant_of_another_task_is_refused() -> None:
    with pytest.raises(SystemExit) as stop:
        sweep.parse_arguments(SWEEPS["toys"], ["--tasks", "hybrid", "--variants", "masked"])
    assert stop.value.code == 2


# ---- the tables


def test_the_table_of_variants(tmp_path: Path, trained: list[str]) -> None:
    write_run(tmp_path / "runs", ablation.make_job("pendulum", "base", 1), -300.0, -150.0)
    call(tmp_path, *SLICE)
    assert render_sweeps.TABLES["ablation-pendulum"](tmp_path).splitlines() == [
        "| variant | last evaluation | each seed | mean height | − base | steps to -200, each seed |",
        "| --- | --- | --- | --- | --- | --- |",
        "| base: `n_step` 1, prioritised, no clipping | -125.0 | -150.0, -100.0 | -212.5 | | 5000, 5000 |",
        "| uniform replay | -100.0 | -100.0, -100.0 | -200.0 | +12.5 [+0.0, +25.0], not told apart "
        "| 5000, 5000 |",
    ]
    with pytest.raises(render_sweeps.MissingError, match="ablation"):
        render_sweeps.TABLES["ablation-cart_pole"](tmp_path)
    assert "ablation-cart_pole: nothing is finished yet" in render_sweeps.together(tmp_path, "ablation-")


def test_a_table_of_one_seed_has_no_interval(tmp_path: Path, trained: list[str]) -> None:
    call(tmp_path, *SLICE[:-1])
    last = render_sweeps.TABLES["ablation-pendulum"](tmp_path).splitlines()[-1]
    assert last == "| uniform replay | -100.0 | -100.0 | -200.0 | +0.0 | 5000 |"


def test_every_variant_has_words() -> None:
    assert set(ablation.VARIANTS) == set(render_sweeps.LABELS)
