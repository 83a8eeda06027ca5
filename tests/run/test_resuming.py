"""Going on with a run from the command line: what is applied, what is refused, what is said."""

import hashlib
import itertools
import json
import os
import shutil
import signal
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch

from algorithm.agents.off_policy.update import OffPolicyLearner
from algorithm.config import load_config_file
from algorithm.core.spec import DEFAULT_BEHAVIOUR
from algorithm.run.checkpointer import Checkpointer
from algorithm.run.evaluation.evaluate import Evaluator, Performance
from algorithm.run.experience.collector import LocalCollector
from algorithm.run.reporter import Reporter
from algorithm.run.runtime import LocalRuntime
from algorithm.run.trainer import Trainer
from algorithm.store import provenance
from algorithm.store.checkpoints.manager import CheckpointManager
from algorithm.store.logs.metrics import read_metrics
from tests.lib.agreement import what_must_agree
from tests.lib.callbacks import watch
from tests.lib.malice import flip_a_byte, sign
from tests.lib.sessions import result, run, trained

QUIET = ("-n", "a", "--quiet")


@pytest.fixture
def stopped(task):
    """A run of 200 steps, named a; its task would have taken 260."""
    return trained("a", "--seed=1", "-o", "base_config.max_step=200")


@pytest.fixture
def finished(task):
    """A run of all 260 steps, named a, with checkpoints of steps 200 and 260."""
    return trained("a", "--seed=1")


def steps(folder):
    return sorted(int(path.name.split("_")[1]) for path in folder.glob("checkpoints/step_*"))


# ---- exactly


EVALUATED = ("-o", "eval_config={per_step: 100, episodes: 1}")
ON_POLICY = ("-o", "algorithm=PPO", "-o", "ppo_config.rollout_step=30", "-o", "ppo_config.num_minibatch=2")


@pytest.mark.parametrize(
    ("flags", "networks", "begun", "ended"),
    [
        pytest.param((), "", 200, 220, id="replay"),
        pytest.param(
            EVALUATED, "from tests.agents.forwards import Branch as ModelRep\n", 100, 120, id="acts by torch"
        ),
        pytest.param(
            (*EVALUATED, *ON_POLICY, "-o", "checkpoint_config.replay=never"),
            "",
            100,
            130,
            id="amid a rollout",
        ),
    ],
)
def test_a_longer_run_is_the_one_that_was_longer_from_the_start(task, capsys, flags, networks, begun, ended):
    if networks:
        (Path("task") / "nn.py").write_text(networks)
    assert run("--seed=1", *QUIET, *flags, f"--max_step={begun}") == 0
    a = task / "a"
    assert run("--resume", "-n", "a", f"--max_step={ended}") == 0
    said = capsys.readouterr().out
    assert "resumed exactly" in said and f"{begun} → {ended}, applied" in said
    assert run("--seed=1", "-n", "b", "--quiet", *flags, f"--max_step={ended}") == 0
    assert what_must_agree(a) == what_must_agree(task / "b")
    assert load_config_file(a / "config.yaml").config.base_config.max_step == ended
    costs = read_metrics(a / "metrics.jsonl").get("time/cpu_seconds", ())
    assert list(costs) == sorted(costs), "those before the end go on"
    (note,) = json.loads((a / "manifest.json").read_text())["resumed"]
    assert note["step"] == begun and note["arguments"] and note["versions"]


class Killed(BaseException):
    """Stands for SIGKILL within a process: nothing is cleaned up."""


def _dies(*_: object, **__: object) -> None:
    raise Killed


SOLVED = ("--seed=1", "-o", "base_config.stop_at_return=-5000", *EVALUATED)


@pytest.mark.fault("F02")
@pytest.mark.parametrize("dies_in", ["save_best", "save_finally", "flush"])
def test_a_kill_beside_success_changes_nothing(task, monkeypatch, dies_in):
    """Before and after the last checkpoint, and before the result is written."""
    flags = (*SOLVED, "-o", "sac_config.save_model_per_step=60")
    trained("s", *flags).rename(task / "b")
    with monkeypatch.context() as patch, pytest.raises(Killed):
        owner = next(one for one in (Checkpointer, Reporter) if hasattr(one, dies_in))
        patch.setattr(owner, dies_in, _dies)
        run("-n", "s", *flags, "--quiet")
    assert run("--resume", "-n", "s", "--quiet") == 0
    assert what_must_agree(task / "s") == what_must_agree(task / "b")
    for key in ("last_eval", "best_eval", "ended"):
        assert result(task / "s")[key] == result(task / "b")[key]


@pytest.mark.fault("F02")
@pytest.mark.parametrize("dies_in", [None, (CheckpointManager, "mark_best"), (Reporter, "flush")])
@pytest.mark.parametrize("best", [200, 220])
def test_the_evaluation_behind_the_end_of_a_run_is_not_forgotten(task, monkeypatch, dies_in, best):
    """One at step 200 is on the way, that at 220 is not; wherever a kill comes, all files agree."""

    def evaluate(self, agents, step, stop):
        np.random.rand()  # it changes nothing of the training
        return {DEFAULT_BEHAVIOUR: Performance((9.0 if step == best else 1.0,) * 2, (5, 5))}

    monkeypatch.setattr(Evaluator, "evaluate", evaluate)
    often = ("-o", "sac_config.save_model_per_step=110")  # due at step 220 as well, which is saved once
    with monkeypatch.context() as patch, pytest.raises(Killed) if dies_in else nullcontext():
        if dies_in:
            patch.setattr(*dies_in, _dies)
        run("--seed=1", *QUIET, *often, "--max_step=220")
    assert not list(task.glob("a/checkpoints/step_*_2"))
    assert run("--resume", *QUIET, "--max_step=240") == 0
    assert run("--resume", *QUIET, "--max_step=260") == 0
    said, pointer = result(task / "a"), json.loads((task / "a/checkpoints/best.json").read_text())
    assert (said["best_eval"]["step"], said["best_eval"]["mean"]) == (pointer["step"], pointer["mean"])
    rows = read_metrics(task / "a/metrics.jsonl")
    evaluated = {s: r for s, r in zip(rows["step"], rows["eval/return_mean"], strict=True) if r == r}
    assert evaluated[pointer["step"]] == pointer["mean"] == max(evaluated.values())
    assert dies_in or (evaluated.keys() == {200, 220, 240, 260} and pointer["step"] == best)
    found, straight = what_must_agree(task / "a"), what_must_agree(trained("b", "--seed=1"))
    assert found["weights"] == straight["weights"]
    assert found["state"]["run"]["random"] == straight["state"]["run"]["random"]


@pytest.mark.fault("F22")
def test_an_evaluation_that_a_signal_cut_is_made_up_for_and_saved(task, monkeypatch):
    """It would have ended the run, so the checkpoint of that step is written anew, with it."""
    trained("b", *SOLVED)
    with monkeypatch.context() as patch:
        watch(patch, Trainer, "_evaluate", lambda _: os.kill(os.getpid(), signal.SIGTERM))
        assert run(*QUIET, *SOLVED) == 143
    assert result(task / "a")["ended"] == {"by": "signal", "why": "SIGTERM"}
    assert run("--resume", *QUIET) == 0
    assert [path.name for path in task.glob("a/checkpoints/step_*")] == ["step_000000100_2"]
    found, straight = what_must_agree(task / "a"), what_must_agree(task / "b")
    assert found["state"] == straight["state"] and found["metrics"] == straight["metrics"]
    assert run("--resume", *QUIET) == 2, "nothing is left to do"


@pytest.mark.fault("F22")
@pytest.mark.parametrize(
    ("flags", "struck", "at", "left"),
    [
        pytest.param(
            ("-o", "base_config.n_envs=20", "-o", "sac_config.replay_ratio=1", "--max_step=160"),
            (OffPolicyLearner, "update"),
            30,
            (140, 30),
            id="amid those of a step",
        ),
        pytest.param(
            (*ON_POLICY, "--max_step=130"), (LocalCollector, "step"), 60, (60, 20), id="of a rollout"
        ),
    ],
)
def test_updates_that_a_signal_cut_are_made_up_for(task, monkeypatch, flags, struck, at, left):
    """With many environments those of one step may take minutes."""
    flags = ("--seed=1", "-o", "eval_config.per_step=-1", *flags)
    straight, number = trained("b", *flags), itertools.count(1)

    def see(*_):
        if next(number) == at:
            os.kill(os.getpid(), signal.SIGTERM)

    with monkeypatch.context() as patch:
        watch(patch, *struck, see)
        assert run(*QUIET, *flags) == 143
    assert (result(task / "a")["steps"], result(task / "a")["updates"]) == left
    assert run("--resume", *QUIET) == 0
    found, expected = what_must_agree(task / "a"), what_must_agree(straight)
    assert found["weights"] == expected["weights"]
    assert found["state"]["run"] == expected["state"]["run"]


def test_a_run_that_success_has_ended_goes_on_where_that_is_asked_for(task, monkeypatch, capsys):
    told = []
    monkeypatch.setattr(LocalRuntime, "end", lambda self, stopped: told.append(stopped()))
    assert run("-n", "s", *SOLVED) == 0 and told == [False], "actors of a learner would end, too"
    assert "-n s --resume -o base_config.stop_at_return=null" in capsys.readouterr().out
    assert (result(task / "s")["steps"], result(task / "s")["ended"]["by"]) == (100, "stop_at_return")
    assert run("--resume", "--max_step=400") == 2
    assert "--resume -o base_config.stop_at_return=null" in capsys.readouterr().err
    assert run("--resume", "--quiet", "-o", "base_config.stop_at_return=0") == 0
    assert (result(task / "s")["steps"], result(task / "s")["ended"]["by"]) == (260, "max_step")


def test_only_an_evaluation_on_the_way_ends_a_run(task):
    flags = ("--max_step=40", "-o", "eval_config={per_step: 50, episodes: 1}")
    assert run("-n", "s", *SOLVED, "--quiet", *flags) == 0
    assert result(task / "s")["ended"]["by"] == "max_step", "the last evaluation came after that"
    assert run("--resume", "--quiet", "--max_step=80") == 0
    assert (result(task / "s")["steps"], result(task / "s")["ended"]["by"]) == (50, "stop_at_return")


# ---- what was changed since


def test_the_section_of_a_task_is_the_new_configuration_if_it_is_named(stopped):
    config = Path("task/config.yaml")
    config.write_text(config.read_text().replace("replay_ratio: 0.25", "replay_ratio: 0.5"))
    (Path("task") / "nn.py").write_text("raise RuntimeError('the networks of the run count')\n")
    assert run("--resume", "-c", "default", "--quiet") == 0
    assert result(stopped)["updates"] == 25 + 30  # ¼ of 100 steps, then ½ of 60


@pytest.mark.fault("F25")
def test_changes_that_do_not_fit_are_refused_all_at_once(stopped, capsys):
    before = {path: path.stat().st_mtime_ns for path in stopped.rglob("*")}
    flags = ("-o", "nn_config.q={dense_n: 9}", "-o", "replay_config.capacity=500", "-o", "sac_config.tau=0.1")
    assert run("--resume", *flags) == 2
    error = capsys.readouterr().err
    assert "`nn_config.q`" in error and "`replay_config.capacity`" in error
    assert "sac_config.tau" not in error
    assert {path: path.stat().st_mtime_ns for path in stopped.rglob("*")} == before


@pytest.mark.fault("F25")
@pytest.mark.parametrize(
    ("before", "after", "notice"),
    [
        pytest.param(
            (),
            ("-o", "replay_config.capacity=2000", "-o", "base_config.n_envs=3"),
            "1 environments became 3",
            id="environments and replay",
        ),
        pytest.param(
            (
                "-o",
                "base_config.env_name=tests.lib.toys:Restless-v0",
                "-o",
                "base_config.max_step_each_iter=30",
            ),
            (),
            "ends as truncated",
            id="nothing of the environment repeats",
        ),
        pytest.param(("-o", "checkpoint_config.replay=never"), (), "starts empty", id="replay not saved"),
    ],
)
def test_what_does_not_go_on_exactly_is_told(task, capsys, before, after, notice):
    trained("a", "--seed=1", "--max_step=110", *before)
    capsys.readouterr()
    assert run("--resume", "--max_step=130", *after) == 0
    assert (
        "resumed, not bit-exact: " in (said := capsys.readouterr().out.replace("\n", " ")) and notice in said
    )
    assert result(task / "a")["steps"] >= 130


@pytest.mark.parametrize(("ckpt", "said"), [((), "resumed exactly"), (("--ckpt=200",), "starts empty")])
def test_an_earlier_checkpoint_can_be_gone_on_from(task, capsys, ckpt, said):
    """Only the last one has a replay."""
    a = trained("a", "--seed=1", "-o", "checkpoint_config.replay=last")
    assert steps(a) == [200, 260]
    capsys.readouterr()
    assert run("--resume", *ckpt, "--max_step=270") == 0
    assert said in capsys.readouterr().out
    assert steps(a) == ([200, 270] if ckpt else [200, 260, 270])
    assert max(read_metrics(a / "metrics.jsonl")["step"]) == 270


@pytest.mark.fault("F44")
def test_other_code_other_libraries_and_another_device_are_named(task, monkeypatch, capsys):
    """The state of a generator has 16 bytes on a GPU and thousands on a CPU."""
    tensors = OffPolicyLearner.tensors

    def as_on_a_gpu(self):
        found = tensors(self)
        return {**found, "optim": {**found["optim"], "random.update": torch.zeros(16, dtype=torch.uint8)}}

    helper, now = Path("task/physics.py"), provenance.library_versions()
    helper.write_text("GRAVITY = 9.81")
    with monkeypatch.context() as patch:
        patch.setattr(OffPolicyLearner, "tensors", as_on_a_gpu)
        assert run("--seed=1", *QUIET, "--max_step=110") == 0
    helper.write_text("GRAVITY = 1.62")
    monkeypatch.setattr(provenance, "library_versions", lambda: {**now, "torch": "1.0.0"})
    monkeypatch.setattr(provenance, "_OURS", ("algorithm/nn",))
    assert run("--resume", "--max_step=120") == 0
    told = [line for line in capsys.readouterr().out.splitlines() if line.startswith("warning: resumed")]
    for what in ("another kind of device", "torch was", "the program's code", "the task's folder"):
        assert sum(what in line for line in told) == 1


# ---- damage


def of_the_networks(run: Path) -> None:
    flip_a_byte(run / "checkpoints/step_000000260/model.safetensors")


def of_the_step(run: Path) -> None:
    manifest = run / "checkpoints/step_000000260/manifest.json"
    manifest.write_text(manifest.read_text().replace('"step": 260', '"step": 210'))


def of_the_newest_rows(run: Path) -> None:
    """It shows only while they are loaded; then nothing of them is used."""
    for name in ("seg_000000260.npy", "seg_000000260_priority.npy"):
        flip_a_byte(run / "replay" / name)


@pytest.mark.fault("F07")
@pytest.mark.fault("F41")
@pytest.mark.parametrize("damage", [of_the_networks, of_the_step, of_the_newest_rows])
def test_the_checkpoint_before_a_damaged_one_is_used_loudly(finished, task, capsys, damage):
    damage(finished)
    assert run("--resume", "-n", "a", "--ckpt=260", "--max_step=270") == 6, "it was asked for"
    assert "SHA-256" in capsys.readouterr().err
    assert run("--resume", "-n", "a", "--max_step=270") == 0
    said = capsys.readouterr().out
    assert "step_000000260" in said and "trying the one before" in said and "resumed exactly" in said
    aside = finished / "checkpoints/step_000000260.damaged"
    assert (aside / "model.safetensors").is_file()
    shutil.rmtree(aside)
    assert steps(finished) == [200, 270]
    straight = trained("b", "--seed=1", "--max_step=270")
    assert what_must_agree(finished)["weights"] == what_must_agree(straight)["weights"]


def all_replays(run: Path) -> None:
    for file in run.glob("replay/seg_*.npy"):
        flip_a_byte(file)


def all_networks(run: Path) -> None:
    for file in run.glob("checkpoints/step_*/model.safetensors"):
        file.write_bytes(b"")


def the_notes(run: Path) -> None:
    manifest = run / "manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "resumed": {}}))


@pytest.mark.fault("F07")
@pytest.mark.fault("F42")
@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (all_replays, "there is no complete checkpoint"),
        (all_networks, "there is no complete checkpoint"),
        (lambda run: shutil.rmtree(run / "checkpoints"), "-n a_2"),
        (lambda run: (run / "overrides.txt").write_bytes(b"a.b=\xff\n"), "overrides.txt"),
        (the_notes, "`resumed`"),
    ],
    ids=["all replays", "all networks", "no checkpoints", "overrides", "notes"],
)
def test_nothing_begins_anew_where_nothing_is_left_to_resume_from(stopped, capsys, damage, said):
    damage(stopped)
    assert run("--resume", "--quiet", "--max_step=210") == 6
    assert said in capsys.readouterr().err


@pytest.mark.fault("F41")
@pytest.mark.fault("F42")
@pytest.mark.parametrize(
    "change",
    [
        lambda state: state["run"]["counters"].update(step=190),
        lambda state: state.clear(),
        lambda state: state["run"]["counters"].update(iteration=[]),
        lambda state: state.update(metrics=3),
        lambda state: state.update(seconds=None),
        lambda state: state["run"].update(random={"numpy": 3}),
        lambda state: state["run"].update(collector=[]),
    ],
)
def test_a_checkpoint_that_somebody_forged_ends_with_a_message(stopped, capsys, change):
    """Its hashes are right: what is wrong is what stands there."""
    path = stopped / "checkpoints/step_000000200"
    state, manifest = (json.loads((path / f"{name}.json").read_text()) for name in ("state", "manifest"))
    change(state)
    data = json.dumps(state).encode()
    (path / "state.json").write_bytes(data)
    manifest["files"]["state.json"] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    sign(path, manifest)
    assert run("--resume", "--quiet", "--max_step=210") == 6
    assert "the checkpoint does not fit this run" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "code", "said"),
    [
        (("--resume",), 2, "nothing is left to do"),
        (("--resume", "-n", "z"), 6, "there is no run 'z'"),
        (("--resume", "--ckpt=150"), 6, "there is no checkpoint of step 150"),
        (("-n", "a"), 2, "-n a --resume"),
        (("--eval=1", "-n", "a", "-o", "algorithm=PPO"), 2, "leave the algorithm out"),
    ],
)
def test_mistakes_say_what_to_do(stopped, capsys, flags, code, said):
    assert run(*flags) == code
    assert said in capsys.readouterr().err
