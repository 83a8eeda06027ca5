"""Going on with a run from the command line: what is applied, what is refused, what is said."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest
import torch

from algorithm.actions.actor import Actor
from algorithm.agents.off_policy.learner import OffPolicyLearner
from algorithm.config import load_config_file
from algorithm.runs import provenance
from algorithm.runs.checkpoints.manager import CheckpointManager
from algorithm.runs.logs.metrics import read_metrics
from algorithm.train.checkpointer import Checkpointer
from algorithm.train.reporter import Reporter
from algorithm.train.runtime import LocalRuntime
from algorithm.train.trainer import Trainer
from tests.run.killing import what_must_agree
from tests.run.sessions import result, run, trained
from tests.runs.kills import Killed
from tests.runs.malice import flip_a_byte, sign

SHORT = ("-o", "base_config.max_step=200")


@pytest.fixture
def stopped(task):
    """A run of 200 steps, named a; its task would have taken 260."""
    return trained("a", "--seed=1", *SHORT)


@pytest.fixture
def finished(task):
    """A run of all 260 steps, named a, with checkpoints of steps 200 and 260."""
    return trained("a", "--seed=1")


def steps(folder):
    return sorted(int(path.name.split("_")[1]) for path in folder.glob("checkpoints/step_*"))


def test_a_longer_run_is_the_one_that_was_longer_from_the_start(stopped, capsys):
    assert run("--resume", "-o", "base_config.max_step=260") == 0
    said = capsys.readouterr().out
    assert "resumed exactly" in said and "step 200" in said
    assert "200 → 260, applied" in said
    assert what_must_agree(stopped) == what_must_agree(trained("b", "--seed=1"))
    assert result(stopped)["steps"] == 260
    assert load_config_file(stopped / "config.yaml").config.base_config.max_step == 260
    (note,) = json.loads((stopped / "manifest.json").read_text())["resumed"]
    assert note["step"] == 200 and note["arguments"] and note["versions"]


def test_a_forward_that_acts_by_torch_goes_on_as_exactly(task, capsys):
    own = task.parents[1] / "task" / "nn.py"
    own.write_text("from tests.forwards import Branch as ModelRep\n")
    flags = ("--seed=1", "--quiet", "-o", "eval_config={per_step: 110, episodes: 1}")
    assert run("-n", "a", *flags, "--max_step=110") == 0
    assert run("--resume", "-n", "a", "--max_step=120") == 0
    said = capsys.readouterr().out
    assert "resumed exactly" in said and "torch: forward uses bool" in said
    assert run("-n", "b", *flags, "--max_step=120") == 0
    assert what_must_agree(task / "a") == what_must_agree(task / "b")


def test_the_section_of_a_task_is_the_new_configuration_if_it_is_named(stopped):
    config = stopped.parents[2] / "task" / "config.yaml"
    config.write_text(config.read_text().replace("replay_ratio: 0.25", "replay_ratio: 0.5"))
    assert run("--resume", "-c", "default", "--quiet") == 0
    assert result(stopped)["updates"] == 25 + 30  # ¼ of 100 steps, then ½ of 60


@pytest.mark.fault("F25")
def test_changes_that_do_not_fit_are_refused_all_at_once(stopped, capsys):
    before = {path: path.stat().st_mtime_ns for path in stopped.rglob("*")}
    flags = ("-o", "nn_config.q={dense_n: 9}", "-o", "replay_config.capacity=500", "-o", "sac_config.tau=0.1")
    assert run("--resume", *flags) == 2
    error = capsys.readouterr().err
    assert "2 problems" in error and "`nn_config.q`" in error and "`replay_config.capacity`" in error
    assert "sac_config.tau" not in error
    assert {path: path.stat().st_mtime_ns for path in stopped.rglob("*")} == before


@pytest.mark.fault("F25")
def test_networks_that_were_edited_since_do_not_slip_in(stopped, capsys):
    (stopped.parents[2] / "task" / "nn.py").write_text("import algorithm.nn as m\nModelQ = None\n")
    assert run("--resume", "--quiet", "-o", "base_config.max_step=210") == 0  # the run's own ones count


@pytest.mark.fault("F25")
def test_a_larger_replay_and_more_environments_are_applied(stopped, capsys):
    more = ("replay_config.capacity=2000", "base_config.n_envs=3", "base_config.max_step=230")
    assert run("--resume", *(word for key in more for word in ("-o", key))) == 0
    said = capsys.readouterr().out
    assert "resumed, not bit-exact: 1 environments became 3" in said.replace("\n", " ")
    assert result(stopped)["steps"] == 230


@pytest.mark.fault("F24")
def test_a_run_that_is_at_work_is_not_resumed(stopped, capsys):
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        import psutil

        holder = {
            "pid": sleeper.pid,
            "host": os.uname().nodename,
            "started": psutil.Process(sleeper.pid).create_time(),
            "command": "somebody",
        }
        (stopped / "run.lock").write_text(json.dumps(holder) + "\n")
        assert run("--resume", "-o", "base_config.max_step=260") == 2
        assert f"kill {sleeper.pid}" in capsys.readouterr().err
    finally:
        sleeper.kill()
        sleeper.wait()
    assert run("--resume", "-o", "base_config.max_step=260") == 0
    assert "its lock is taken over; it was that of process" in capsys.readouterr().out


@pytest.mark.fault("F07")
def test_the_checkpoint_before_a_damaged_one_is_used_loudly(finished, capsys):
    folder = finished
    flip_a_byte(folder / "checkpoints/step_000000260/model.safetensors")
    assert run("--resume", "-o", "base_config.max_step=300") == 0
    said = capsys.readouterr().out
    assert "model.safetensors" in said and "SHA-256" in said and "from" in said
    warnings = [line for line in said.splitlines() if "trying the one before" in line]
    assert "step 200" in said and not any("--ckpt" in line for line in warnings)
    assert (folder / "checkpoints" / "step_000000260.damaged").is_dir()
    assert read_metrics(folder / "metrics.jsonl")["step"] == [100.0, 200.0, 300.0]


@pytest.mark.fault("F07")
def test_the_checkpoint_before_one_with_a_damaged_replay_is_used_loudly(stopped, task, capsys):
    """Its newest rows are damaged, which shows only while they are loaded; then nothing of it is used."""
    shutil.copytree(stopped, task / "b")
    assert run("--resume", "-n", "b", "--quiet", "--max_step=300") == 0
    assert run("--resume", "-n", "a", "--quiet", "--max_step=260") == 0
    for name in ("seg_000000260.npy", "seg_000000260_priority.npy"):
        flip_a_byte(task / "a/replay" / name)
    assert run("--resume", "-n", "a", "--ckpt=260", "--max_step=300") == 6, "it was asked for"
    assert "seg_000000260" in capsys.readouterr().err
    assert run("--resume", "-n", "a", "--max_step=300") == 0
    said = capsys.readouterr().out
    assert "seg_000000260" in said and "trying the one before" in said and "resumed exactly" in said
    assert (task / "a/checkpoints/step_000000260.damaged").is_dir()
    assert what_must_agree(task / "a") == what_must_agree(task / "b")


@pytest.mark.fault("F07")
def test_damage_of_what_all_replays_share_leaves_none_to_resume_from(finished, capsys):
    for file in (finished / "replay").glob("seg_*.npy"):
        flip_a_byte(file)
    assert run("--resume", "--max_step=300") == 6
    said = capsys.readouterr()
    assert "there is no complete checkpoint" in said.err and said.out.count("trying the one before") == 2


@pytest.mark.fault("F41")
def test_a_flipped_bit_in_the_step_of_a_manifest_costs_no_checkpoint(finished, capsys):
    manifest = finished / "checkpoints/step_000000260/manifest.json"
    manifest.write_text(manifest.read_text().replace('"step": 260', '"step": 210'))
    assert run("--resume", "--quiet", "--max_step=270") == 0
    said = capsys.readouterr()
    assert "manifest.json · its SHA-256 is not that of its content" in said.out + said.err
    aside = finished / "checkpoints/step_000000260.damaged"
    assert (aside / "model.safetensors").is_file()
    aside.rename(finished / "aside")
    assert steps(finished) == [200, 270]


@pytest.mark.fault("F41")
@pytest.mark.fault("F42")
def test_a_checkpoint_that_somebody_forged_ends_with_a_message(stopped, capsys):
    """Their hashes are right: what is wrong is what stands there."""
    path = stopped / "checkpoints/step_000000200"
    original = (path / "state.json").read_text()

    def forged(change) -> str:
        state = json.loads(original)
        change(state)
        data = json.dumps(state).encode()
        (path / "state.json").write_bytes(data)
        manifest = json.loads((path / "manifest.json").read_text())
        manifest["files"]["state.json"] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        sign(path, manifest)
        capsys.readouterr()
        assert run("--resume", "--quiet", "--max_step=210") == 6
        return capsys.readouterr().err

    assert "and its state.json of step 190" in forged(lambda state: state["run"]["counters"].update(step=190))
    for change in (
        lambda state: state.clear(),
        lambda state: state["run"]["counters"].update(iteration=[]),
        lambda state: state.update(metrics=3),
        lambda state: state.update(seconds=None),
        lambda state: state["run"].update(random={"numpy": 3}),
        lambda state: state["run"].update(collector=[]),
    ):
        assert "the checkpoint does not fit this run" in forged(change)


@pytest.mark.fault("F07")
@pytest.mark.fault("F42")
def test_what_else_a_resume_reads_is_named_where_it_is_damaged(stopped, capsys):
    manifest = stopped / "manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "resumed": {}}))
    assert run("--resume", "--quiet", "--max_step=210") == 6
    assert "`resumed` is no list of objects" in capsys.readouterr().err
    manifest.write_text("{}")
    (stopped / "overrides.txt").write_bytes(b"a.b=\xff\n")
    assert run("--resume", "--quiet", "--max_step=210") == 6
    assert "overrides.txt" in capsys.readouterr().err
    for path in stopped.glob("checkpoints/step_*/model.safetensors"):
        path.write_bytes(b"")
    assert run("--resume", "-o", "base_config.max_step=300") == 6
    assert "there is no complete checkpoint" in capsys.readouterr().err, "nothing begins anew"
    shutil.rmtree(stopped / "checkpoints")
    assert run("--resume") == 6
    error = capsys.readouterr().err
    assert "there is nothing to go on from" in error and "rm -r models/task/a" in error


def test_an_earlier_checkpoint_can_be_gone_on_from(finished, task, capsys):
    assert steps(task / "a") == [200, 260]
    assert run("--resume", "--ckpt=200", "-o", "base_config.max_step=220") == 0
    assert "checkpoints removed of steps 260" in capsys.readouterr().out.replace("\n", " ")
    assert steps(task / "a") == [200, 220]
    assert max(read_metrics(task / "a" / "metrics.jsonl")["step"]) == 220


def _dies(*_: object, **__: object) -> None:
    raise Killed


@pytest.mark.fault("F22")
@pytest.mark.parametrize("asked", [pytest.param(False, marks=pytest.mark.slow), True])
def test_the_last_evaluation_is_made_up_for(task, monkeypatch, asked):
    """The last checkpoint is there, and the process is killed, or asked to end, while it evaluates."""
    flags = ("--seed=1", "--quiet", "--max_step=120", "-o", "eval_config={per_step: 90, episodes: 1}")
    assert run(*flags, "-n", "b") == 0
    evaluate = Trainer._evaluate

    def interrupted(self):
        if steps(task / "a")[-1:] == [120]:
            os.kill(os.getpid(), signal.SIGTERM) if asked else _dies()
        evaluate(self)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_evaluate", interrupted)
        if asked:
            assert run(*flags, "-n", "a") == 143
        else:
            with pytest.raises(Killed):
                run(*flags, "-n", "a")
    assert run("--resume", "-n", "a", "--quiet") == 0
    assert what_must_agree(task / "a") == what_must_agree(task / "b")
    assert result(task / "a")["last_eval"] == result(task / "b")["last_eval"]
    assert run("--resume", "-n", "a", "--quiet") == 2  # now nothing is left to do


SOLVED = ("--seed=1", "-o", "base_config.stop_at_return=-5000", "-o", "eval_config.per_step=100")


def test_a_run_that_success_has_ended_goes_on_where_that_is_asked_for(task, monkeypatch, capsys):
    told = []
    monkeypatch.setattr(LocalRuntime, "end", lambda self, stopped: told.append(stopped()))
    assert run("-n", "s", *SOLVED) == 0 and told == [False], "actors of a learner would end, too"
    said = capsys.readouterr().out
    assert "at 260 steps or an evaluation of -5,000 (base_config.stop_at_return)" in said
    assert "an evaluation has come to -5,000 (base_config.stop_at_return)" in said
    assert "-n s --resume -o base_config.stop_at_return=null" in said
    found = result(task / "s")
    assert (found["steps"], found["ended"]["by"], found["last_eval"]["step"]) == (100, "stop_at_return", 100)
    assert found["best_eval"] == found["last_eval"]
    assert run("--resume", "--max_step=400") == 2
    error = capsys.readouterr().err
    assert "an evaluation has come to -5,000 (base_config.stop_at_return)" in error
    assert "--resume -o base_config.stop_at_return=null" in error
    assert run("--resume", "--quiet", "-o", "base_config.stop_at_return=0") == 0
    assert (result(task / "s")["steps"], result(task / "s")["ended"]["by"]) == (260, "max_step")


def test_only_an_evaluation_on_the_way_ends_a_run(task):
    flags = ("--max_step=40", "-o", "eval_config={per_step: 50, episodes: 1}")
    assert run("-n", "s", *SOLVED, "--quiet", *flags) == 0
    assert result(task / "s")["ended"]["by"] == "max_step", "the last evaluation came after that"
    assert run("--resume", "--quiet", "--max_step=80") == 0
    assert (result(task / "s")["steps"], result(task / "s")["ended"]["by"]) == (50, "stop_at_return")


@pytest.mark.fault("F02")
@pytest.mark.parametrize("dies_in", ["save_best", "save_finally", "flush", "_evaluate"])
def test_a_kill_beside_success_changes_nothing(task, monkeypatch, dies_in):
    """Before and after the last checkpoint, before the result is written; a signal while it evaluates."""
    flags = (*SOLVED, "-o", "sac_config.save_model_per_step=60")
    trained("s", *flags).rename(task / "b")
    evaluate = Trainer._evaluate

    def stopped(self):
        os.kill(os.getpid(), signal.SIGTERM)
        evaluate(self)

    with monkeypatch.context() as patch:
        owner = next(one for one in (Checkpointer, Reporter, Trainer) if hasattr(one, dies_in))
        patch.setattr(owner, dies_in, stopped if dies_in == "_evaluate" else _dies)
        if dies_in == "_evaluate":
            assert run("-n", "s", *flags, "--quiet") == 143
            assert result(task / "s")["ended"] == {"by": "signal", "why": "SIGTERM"}
        else:
            with pytest.raises(Killed):
                run("-n", "s", *flags, "--quiet")
    assert run("--resume", "-n", "s", "--quiet") == 0
    found, straight = what_must_agree(task / "s"), what_must_agree(task / "b")
    if dies_in == "_evaluate":  # its checkpoint is written anew, with the evaluation in it
        del found["replay"], straight["replay"]
    assert found == straight
    for key in ("last_eval", "best_eval", "ended"):
        assert result(task / "s")[key] == result(task / "b")[key]


@pytest.mark.fault("F02")
def test_the_best_one_is_marked_though_the_run_was_killed_before(task, monkeypatch):
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(CheckpointManager, "mark_best", _dies)
        run("--seed=1", "-n", "a", "--quiet")
    checkpoints = task / "a" / "checkpoints"
    assert steps(task / "a") == [200] and not (checkpoints / "best.json").exists()
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(CheckpointManager, "save", _dies)
        run("--resume", "--quiet")
    assert json.loads((checkpoints / "best.json").read_text())["step"] == 200


def test_on_another_kind_of_device_random_numbers_begin_anew(task, monkeypatch, capsys):
    """The state of a generator has 16 bytes on a GPU and thousands on a CPU."""
    tensors = OffPolicyLearner.tensors

    def as_on_a_gpu(self):
        found = tensors(self)
        return {**found, "optim": {**found["optim"], "random.update": torch.zeros(16, dtype=torch.uint8)}}

    with monkeypatch.context() as patch:
        patch.setattr(OffPolicyLearner, "tensors", as_on_a_gpu)
        patch.setattr(Actor, "random_state", lambda self: np.zeros(16, np.uint8))
        assert run("--seed=1", "-n", "a", "--quiet", "--max_step=110") == 0
    assert run("--resume", "--max_step=120") == 0
    said = capsys.readouterr().out.replace("\n", " ")
    assert "resumed, not bit-exact: it was trained on another kind of device" in said
    assert result(task / "a")["steps"] == 120


@pytest.mark.parametrize(
    ("replay", "flags", "said"),
    [
        ("never", (), "begins empty"),
        pytest.param("last", ("--ckpt=200",), "begins empty", marks=pytest.mark.slow),
        pytest.param("last", (), "resumed exactly", marks=pytest.mark.slow),
    ],
)
def test_without_its_replay_a_run_begins_to_fill_one(task, capsys, replay, flags, said):
    trained("a", "--seed=1", "-o", f"checkpoint_config.replay={replay}")
    capsys.readouterr()
    assert run("--resume", *flags, "-o", "base_config.max_step=300") == 0
    assert said in capsys.readouterr().out
    assert result(task / "a")["steps"] == 300


ON_POLICY = ("-o", "algorithm=PPO", "-o", "ppo_config.rollout_step=30", "-o", "ppo_config.num_minibatch=2")


def test_a_rollout_is_saved_with_every_checkpoint(task, capsys):
    """Whatever checkpoint_config.replay says, a run goes on exactly in the middle of one."""
    evaluated = ("-o", "eval_config={per_step: 100, episodes: 1}")
    never = (*ON_POLICY, *evaluated, "--quiet", "-o", "checkpoint_config.replay=never")
    assert run("--seed=1", "-n", "a", *never, "--max_step=100") == 0
    assert run("--resume", "-n", "a", "--max_step=130") == 0
    assert "resumed exactly" in capsys.readouterr().out
    assert run("--seed=1", "-n", "b", *never, "--max_step=130") == 0
    assert what_must_agree(task / "a") == what_must_agree(task / "b")
    assert run("--eval=1", "-n", "a", "-o", "algorithm=SAC") == 2
    said = capsys.readouterr().err
    assert "run 'a' was trained with PPO" in said and "leave the algorithm out" in said
    networks = str(task / "a" / "checkpoints" / "step_000000100")
    assert run("--resume", "-n", "a", "--max_step=160", "--networks", networks) == 0, "with a new rollout"


@pytest.mark.fault("F44")
def test_other_code_and_other_libraries_are_named_and_nothing_is_called_exact(task, monkeypatch, capsys):
    helper = task.parents[1] / "task/physics.py"
    helper.write_text("GRAVITY = 9.81")
    assert run("--seed=1", "-n", "a", "--quiet", "--max_step=20") == 0
    (task.parents[1] / "task/nn.py").write_text("# the run has its own")
    assert run("--resume", "--max_step=25") == 0
    assert "resumed exactly" in capsys.readouterr().out
    helper.write_text("GRAVITY = 1.62")
    now = provenance.library_versions()
    monkeypatch.setattr(provenance, "library_versions", lambda: {**now, "torch": "1.0.0"})
    monkeypatch.setattr(provenance, "_OURS", ("algorithm/nn",))
    assert run("--resume", "--max_step=30") == 0
    said = capsys.readouterr().out
    assert "resumed exactly" not in said
    told = [line for line in said.splitlines() if line.startswith("warning: resumed, not bit-exact: ")]
    assert f"torch was {now['torch']} and is 1.0.0" in told[0] and len(told) == 3
    assert "the program's code has been changed since" in told[1]
    assert "the code in the task's folder has been changed since" in told[2]


def test_what_cannot_be_repeated_is_told(task, capsys):
    """An environment that does not follow from its seed."""
    flags = ("-o", "base_config.env_name=tests.toys:Restless-v0", "-o", "base_config.max_step_each_iter=30")
    assert run("--seed=1", "-n", "a", "--quiet", "--max_step=40", *flags) == 0
    assert run("--resume", "--max_step=50") == 0
    said = capsys.readouterr().out
    assert "resumed, not bit-exact: environment 0: " in said and "ends as truncated" in said


@pytest.mark.parametrize(
    ("flags", "code", "said"),
    [
        (("--resume",), 2, "nothing is left to do"),
        (("--resume", "-n", "z"), 6, "there is no run 'z'"),
        (("--resume", "--ckpt=150"), 6, "there is no checkpoint of step 150"),
        (("-n", "a"), 2, "-n a --resume"),
    ],
)
def test_mistakes_say_what_to_do(stopped, capsys, flags, code, said):
    assert run(*flags) == code
    assert said in capsys.readouterr().err
