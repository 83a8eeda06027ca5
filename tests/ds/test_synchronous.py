"""With one actor that waits for the learner, a distributed training is the training of one process."""

from __future__ import annotations

import json

import pytest

from tests.ds import processes
from tests.run import killing
from tests.scenarios.test_kills import TASK

QUICK = {"hybrid": 300}
"""Section -> environment steps."""

SLOW = {
    "ppo_memory": 300,
    "a2c": 300,
    "rnn": 260,
    "cross": 260,
    "quantiles": 300,
    "default": 700,
    "images": 400,
    "fresh": 600,
    "own_td_error": 330,
    "extended": 160,
}


def what_agrees(run):
    """As far as a learner has it: what the actors are in the middle of is theirs."""
    found = killing.what_must_agree(run)
    weights = {file: sha for file, sha in found["weights"].items() if not file.endswith("run.safetensors")}
    state = found["state"]["run"]
    metrics = {k: v for k, v in json.loads(found["metrics"]).items() if not k.startswith("ds/")}
    own = {name: chunk["own"] for name, chunk in state["agents"].items()}
    return weights, found["replay"], state["counters"], state["health"], own, metrics


@pytest.mark.parametrize(
    "section, steps",
    [*QUICK.items(), *(pytest.param(*item, marks=pytest.mark.slow) for item in SLOW.items())],
)
def test_it_equals_one_process_bit_for_bit(tmp_path, section, steps):
    (tmp_path / "task").mkdir()
    (tmp_path / "task" / "config.yaml").write_text(TASK)
    flags = ["-c", section, "-o", f"base_config.max_step={steps}"]
    one = killing.begin(tmp_path, *flags, "--seed=1", "-n", "one")
    flags += ["-o", "net_config.synchronous=true", "-o", "sac_config.save_model_per_step=70"]
    learner = processes.begin(
        tmp_path, "learner", "learner", *flags, "--seed=1", "-n", "many", "--learner_port=0"
    )
    port = processes.port_of(tmp_path, "many")
    actor = processes.begin(tmp_path, "actor", "actor", *flags, f"--learner_port={port}")
    assert [processes.finish(each) for each in (actor, learner)] == [0, 0], processes.said(tmp_path)
    assert killing.finish(one) == 0, killing.said(tmp_path)
    models = tmp_path / "models" / "task"
    assert what_agrees(models / "many") == what_agrees(models / "one")
