"""Which device is taken, and what is said where there is no GPU."""

from contextlib import ExitStack
from dataclasses import replace

import pytest
import torch

from algorithm.agents.networks import pick_device
from algorithm.app import train
from algorithm.app.training import Screen
from algorithm.config import load_config
from algorithm.core.errors import UsageError
from algorithm.core.spec import ActionSpec, AgentSpec, ObsSpec
from algorithm.run.context import RunContext
from algorithm.run.experience.faults import Faults
from algorithm.run.inputs import RunInputs
from algorithm.store.rundir import RunDir

VECTOR, IMAGE = ObsSpec(("obs",), ((3,),), ("float32",)), ObsSpec(("eye",), ((36, 36, 1),), ("uint8",))


@pytest.fixture(params=[0, 1])
def gpus(request, monkeypatch):
    """The number of GPUs that torch sees."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: request.param > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: request.param)
    return request.param


@pytest.mark.fault("F28")
def test_a_gpu_that_is_not_there_is_refused_in_one_line(gpus):
    with pytest.raises(UsageError, match="no such GPU") as caught:
        pick_device(f"cuda:{gpus}")
    assert f"sees {gpus} GPUs" in caught.value.line


@pytest.mark.fault("F28")
@pytest.mark.parametrize(
    ("spec", "overrides", "suits"),
    [
        (VECTOR, [], False),
        (VECTOR, ["base_config.max_step=1000000"], False),
        (VECTOR, ["replay_config.on_device=true"], True),
        (VECTOR, ["base_config.preset=flash"], True),
        (VECTOR, ["base_config.preset=flash64", "base_config.max_step=10000"], False),
        (VECTOR, ["base_config.preset=flash64", "base_config.max_step=1000000"], True),
        (
            VECTOR,
            ["base_config.preset=plain", "nn_config.q={hidden: [64, 1024]}", "sac_config.compile=off"],
            True,
        ),
        (VECTOR, ["algorithm=PPO", "base_config.max_step=1000000"], False),
        (IMAGE, [], True),
        (IMAGE, ["algorithm=PPO"], True),
        (IMAGE, ["algorithm=A3C"], False),
    ],
)
def test_auto_takes_a_gpu_where_there_is_one_and_the_work_is_enough(spec, overrides, suits, gpus):
    loaded = load_config("Pendulum-v1", overrides=overrides, seed=1)
    with ExitStack() as stack:
        context = RunContext(loaded=loaded, device="auto", faults=Faults(None), stack=stack)
        context.fit({"default": AgentSpec(spec, ActionSpec(continuous=1))})
    assert context.device == ("cuda" if gpus and suits else "cpu")


def test_a_gpu_that_is_there_is_taken_and_another_name_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert pick_device("cuda") == pick_device("gpu") == torch.device("cuda")
    with pytest.raises(UsageError, match="no device 'abacus'"):
        pick_device("abacus")


def test_a_resumed_run_keeps_the_device_that_was_asked_for(gpus, tmp_path, monkeypatch):
    monkeypatch.setattr(train, "run_training", lambda inputs, **_: inputs.device)
    loaded = load_config("Pendulum-v1", seed=1)
    run = RunDir.create(loaded.env_label, "one", models=tmp_path)
    run.write_manifest({"device": "cuda"}, seeds={})
    inputs = RunInputs(loaded=loaded, run=run, device="auto", arguments=[])
    assert train.continue_run(inputs, loaded, screen=Screen()) == ("cuda" if gpus else "auto")
    assert train.continue_run(replace(inputs, device="cpu"), loaded, screen=Screen()) == "cpu"
    run.note_resumed({"device": "cpu"}, step=1, overrides=[])
    run.note_resumed({"device": "auto"}, step=2, overrides=[])  # as where the named one is not there
    assert train.continue_run(inputs, loaded, screen=Screen()) == "cpu"
