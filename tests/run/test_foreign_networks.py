"""``--evaluations`` and ``--init_from``: what a member of a population is started with."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from algorithm.agents.off_policy.update import OffPolicyLearner
from algorithm.replay.buffer import ReplayBuffer
from algorithm.replay.storage import NEXT, TRUNCATED
from algorithm.store.checkpoints.checkpoint import load_checkpoint
from tests.lib.agreement import what_must_agree
from tests.lib.callbacks import watch
from tests.lib.malice import flip_a_byte
from tests.lib.sessions import result, run, trained

SHORT = ("--max_step=120", "-o", "eval_config={per_step: 50, episodes: 1}")


def newest(folder: Path) -> Path:
    return max(folder.glob("checkpoints/step_*"))


def test_a_run_ends_with_its_nth_evaluation_of_all(task, capsys):
    assert run("--seed=1", "-n", "a", "--quiet", *SHORT, "--evaluations=2") == 0
    assert result(task / "a")["steps"] == 100
    assert "--resume --evaluations=4" in capsys.readouterr().out
    assert run("--resume", "-n", "a", "--evaluations=2") == 2, "nothing is left to do"
    assert run("--resume", "-n", "a", "--quiet") == 0
    assert what_must_agree(task / "a") == what_must_agree(trained("b", "--seed=1", *SHORT))
    assert run("-n", "c", "-o", "eval_config.per_step=-1", "--evaluations=2") == 2
    assert not (task / "c").exists()


@pytest.fixture
def begun(monkeypatch):
    """What learners begin with: their tensors, copied."""
    found = []
    begin_with = OffPolicyLearner.begin_with

    def remember(self, model, optim):
        begin_with(self, model, optim)
        tensors = self.tensors()
        found.append({file: {k: v.clone() for k, v in named.items()} for file, named in tensors.items()})

    monkeypatch.setattr(OffPolicyLearner, "begin_with", remember)
    return found


def moments(tensors):
    return {name: value for name, value in tensors["optim"].items() if ".exp_avg" in name}


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize(
    "keep, kept, rows", [("[optimiser, replay]", True, 120), ("[]", False, 0)], ids=["all", "nothing"]
)
def test_a_resumed_run_begins_with_other_networks(task, begun, capsys, keep, kept, rows):
    for name, seed in (("a", 1), ("b", 2)):
        trained(name, f"--seed={seed}", *SHORT)
    own, other = (load_checkpoint(newest(task / name)).tensors for name in "ab")
    flags = ("-o", f"base_config.evolver_keep={keep}", "--max_step=140")
    assert run("--resume", "-n", "a", "--init_from", str(newest(task / "b")), *flags) == 0
    (first,) = begun
    online = {k: v for k, v in first["model"].items() if "target" not in k}
    assert same(online, {k: v for k, v in other["model"].items() if "target" not in k})
    target, parameters = (
        torch.cat([v.flatten() for k, v in first["model"].items() if k.startswith(prefix)])
        for prefix in ("model.target_q.", "model.q.")
    )
    assert torch.equal(target, parameters)
    assert same(moments(first), moments(own)) if kept else not any(map(torch.any, moments(first).values()))
    said = capsys.readouterr().out
    assert ("evolver_keep does not name the replay: it starts empty" in said) != kept
    assert json.loads((newest(task / "a") / "replay.json").read_text())[""]["meta"]["next_id"] >= rows


def test_networks_that_are_damaged_change_nothing(task, capsys):
    trained("a", "--seed=1", *SHORT)
    flip_a_byte(newest(task / "a") / "model.safetensors")
    assert run("-n", "b", *SHORT, "--init_from", str(newest(task / "a"))) == 6
    assert "SHA-256" in capsys.readouterr().err and not (task / "b").exists()


def test_runs_of_different_seeds_begin_with_the_same_networks(task):
    models = []
    for seed, flags in ((1, SEEDED), (2, SEEDED), (3, ())):
        folder = trained(
            f"s{seed}", f"--seed={seed}", "--max_step=10", "-o", "eval_config.episodes=1", *flags
        )
        tensors = load_checkpoint(newest(folder)).tensors["model"]
        models.append({name: value for name, value in tensors.items() if "normaliser" not in name})
    assert same(models[0], models[1]) and not same(models[0], models[2])


def test_parts_of_a_run_by_its_name(task, begun):
    """The critics stay, and what was taken stands in the files of the run."""
    trained("a", "--seed=1", *SHORT)
    parts = ("rep", "policy", "normaliser")
    flags = ("--seed=2", "--max_step=20", "--init_from=a:120", f"--init_parts={','.join(parts)}")
    assert run("-n", "b", *flags) == 0
    ours, theirs = begun[0]["model"], load_checkpoint(newest(task / "a")).tensors["model"]
    taken = tuple(f"model.{part}." for part in parts)
    assert same(*({k: v for k, v in one.items() if k.startswith(taken)} for one in (ours, theirs)))
    assert not any(torch.equal(v, theirs[k]) for k, v in ours.items() if k.startswith("model.q.") and v.any())
    origin = result(task / "b")["init_from"]
    assert (origin["source"], origin["step"], origin["parts"]) == ("a:120", 120, list(parts))


def test_the_scale_of_rewards_comes_with_the_statistics(task):
    begun = ("--init_from=a", "--max_step=1")
    keys = ("-o", "sac_config.reward_scaling=true", "-o", "eval_config.per_step=-1")
    for name, flags in (("a", ()), ("b", begun), ("c", (*begun, "--init_parts=q"))):
        assert run("--seed=1", "-n", name, *SHORT, *keys, *flags, "--quiet") == 0
    count = {n: load_checkpoint(newest(task / n)).tensors["optim"]["returns.statistics"][0] for n in "abc"}
    assert count["b"] == count["a"] + 1 and count["c"] == 1


@pytest.mark.parametrize(
    ("flags", "code", "why"),
    [
        (("--init_from=a:soon",), 2, "neither a number of steps, nor latest or best"),
        (("--init_from=b",), 6, "there is no run 'b'"),
        (("--init_from=a:7",), 6, "use one of them: --init_from a:120"),
        (("--init_parts=q",), 2, "init_parts is set without init_from"),
        (("--init_from=a", "--init_parts=q,v"), 2, "SAC has no part v"),
        (("--init_from=a", "--init_parts=q,w"), 2, "base_config.init_parts"),
        (
            ("--init_from=a", "-o", "nn_config.q={dense_n: 9}"),
            6,
            "net/0/bias: expected [2, 9], got [2, 8]",
        ),
        (("--init_from=a", "--algorithm=PPO"), 6, "model.policy."),
    ],
)
def test_what_cannot_be_taken_is_said_before_anything_is_trained(task, capsys, flags, code, why):
    trained("a", "--seed=1", *SHORT)
    capsys.readouterr()
    assert run("-n", "c", *SHORT, *flags) == code
    assert why in capsys.readouterr().err and not (task / "c").exists()


SEEDED = ("-o", "sac_config.network_seed=5")


@pytest.fixture
def copied(task):
    """What a copy begins with: a checkpoint of another run, and its replay."""
    trained("other", "--seed=5", "--max_step=160")
    shutil.copytree(newest(task / "other"), task / "start")
    shutil.copytree(task / "other" / "replay", task / "start" / "replay")
    shutil.rmtree(task / "other")
    return task / "start"


def test_a_copied_replay_joins_no_episode_of_another_run(task, copied, monkeypatch):
    """Both runs stand at step 160 of an episode, where they have seen different things."""
    trained("a", "--seed=1", "--max_step=160")
    made: list[ReplayBuffer] = []
    watch(monkeypatch, ReplayBuffer, "__init__", lambda self, *_, **__: made.append(self))
    assert run("-n", "a", "--resume", "--quiet", f"--init_from={copied}", "--max_step=165") == 0
    (replay,) = made
    assert replay.num_transitions == 160 + 5
    assert len(replay) == (160 + 1) + (5 + 1), "two chains, each with a row that no action was taken in"
    assert replay._storage.links[159, NEXT] & TRUNCATED, "the other's episode is cut off"
    shutil.rmtree(copied)
    assert run("-n", "a", "--resume", "--quiet", "--max_step=170") == 0, "all rows are in segments of its own"


@pytest.mark.fault("F07")
def test_a_copied_replay_that_is_damaged_costs_no_checkpoint(task, copied, capsys):
    trained("a", "--seed=1", "--max_step=160")
    flip_a_byte(next((copied / "replay").glob("seg_*.npy")))
    before = {path: path.read_bytes() for path in task.glob("a/checkpoints/**/*") if path.is_file()}
    capsys.readouterr()
    assert run("-n", "a", "--resume", f"--init_from={copied}", "--max_step=300") == 6
    said = capsys.readouterr()
    assert "start/replay/seg_" in said.err and "trying the one before" not in said.out
    assert {path: path.read_bytes() for path in task.glob("a/checkpoints/**/*") if path.is_file()} == before
