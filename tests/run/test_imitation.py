"""Runs that learn from demonstrations, from the command line."""

import math
import shutil

import pytest

from algorithm.agents.on_policy.family import OnPolicyAgent
from algorithm.config.loader import load_config
from algorithm.run.inputs import set_up
from algorithm.run.runtime import LocalRuntime
from algorithm.store.logs.metrics import read_metrics
from tests.lib.episodes import record
from tests.lib.sessions import run

SECTION = """\
imitation:
  algorithm: PPO
  ppo_config: {rollout_step: 50, num_epoch: 2, num_minibatch: 2}
  reward_signals: {extrinsic: {strength: 0}, gail: {strength: 1, dense_n: 8}}
  behavioral_cloning: {strength: 1, pretrain: 30}
  demonstrations: {path: shown.npz}
"""


SHORT = ("-o", "eval_config={per_step: -1, episodes: 1}")


@pytest.fixture
def folder(task, tmp_path):
    """The folder of the task, with a section that imitates."""
    own = tmp_path / "task"
    with (own / "config.yaml").open("a") as file:
        file.write(SECTION)
    record(own / "shown.npz", "Pendulum-v1")
    return own


def test_a_run_is_pretrained_evaluated_killed_by_no_other_episodes_and_played_without_any(
    folder, task, capsys
):
    assert (
        run("-c", "imitation", "--seed=1", "-n", "a", "--quiet", "-o", "base_config.max_step=100", *SHORT)
        == 0
    )
    metrics = read_metrics(task / "a" / "metrics.jsonl")
    by_step = dict(zip(metrics["step"], metrics["eval/return_mean"], strict=True))
    assert not math.isnan(by_step[0]), "an evaluation of what was cloned"
    assert metrics["loss/cloning"][0] > 0
    shutil.copy(folder / "shown.npz", folder / "right.npz")
    record(folder / "shown.npz", "Pendulum-v1", 2)
    assert run("--resume", "--quiet", "-o", "base_config.max_step=150") == 6
    assert "changed, new or gone: shown.npz" in capsys.readouterr().err
    other_name = "demonstrations.path=right.npz"
    assert run("--resume", "--quiet", "-o", "base_config.max_step=150", "-o", other_name) == 0
    for name in ("shown", "right"):
        (folder / f"{name}.npz").unlink()
    assert run("--eval", "1", "--quiet") == 0
    assert run("--resume", "--quiet", "-o", "base_config.max_step=160") == 2


def test_nobody_begins_to_act_before_the_networks_are_pretrained(folder, monkeypatch):
    """Actors of a learner would send what random networks do."""
    order, pretrain = [], OnPolicyAgent.pretrain

    def pretrained(self, stop):
        found = pretrain(self, stop)
        order.append("pretrained")
        return found

    monkeypatch.setattr(OnPolicyAgent, "pretrain", pretrained)
    monkeypatch.setattr(LocalRuntime, "begin", lambda _: order.append("begun"))
    assert run("-c", "imitation", "-n", "a", "--quiet", "--max_step=1", *SHORT) == 0
    assert order == ["pretrained", "begun"]


@pytest.mark.parametrize("key", ["{warm_up_policy: 9}", "{path: a.npz, offline: true}"])
def test_no_random_action_comes_where_the_policy_acts_first_or_nobody(key):
    first = []
    for keys in ((f"demonstrations={key}",), ()):
        loaded = load_config("Pendulum-v1", overrides=("sac_config.threads=1", *keys), seed=1)
        first.append(set_up(loaded).config.run.start_step)
    assert first[0] == 0 < first[1]
