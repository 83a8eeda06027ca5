"""Trainings on a GPU: as on a CPU, compiled or not, and resumed."""

import json

import numpy as np
import pytest
import torch

from algorithm.agents.off_policy.update import OffPolicyLearner
from algorithm.core.data import SequenceBatch, State
from algorithm.core.spec import DEFAULT_BEHAVIOUR
from algorithm.env.base import StepResult, VecEnv
from algorithm.env.registry import make_vec_env
from algorithm.env.request import EnvRequest
from main import main
from tests.lib.batches import random_batch, small_sac, weights

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU"),
]
TOYS = "benchmarks.pendulum"
WORDS = ["--device=cuda", "--seed=1", "-n", "run"]


@pytest.mark.parametrize("compiled", [False, True])
def test_an_update_is_that_of_a_cpu(compiled, monkeypatch):
    def same(learner: OffPolicyLearner, batch: SequenceBatch, tokens: int) -> torch.Tensor:
        """Draw the noise of a CPU's generator: a GPU's has other numbers."""
        size = len(batch.reward) * tokens, learner._action_size
        return torch.randn(size, generator=torch.Generator().manual_seed(tokens)).to(learner.device)

    monkeypatch.setattr(OffPolicyLearner, "_draw", same)
    here, there = small_sac(), small_sac(compiled=compiled, device=torch.device("cuda"))
    there.load_model({name: value.cuda() for name, value in here.tensors()["model"].items()})
    begun = {name: value.clone() for name, value in weights(here).items()}
    # a graph is recorded in its second launch, and launched again from the third on
    for number, factor in enumerate((1.0, 1.0, 1.0, 30.0)):
        batch = random_batch(16, 1, seed=number)
        for learner in (here, there):
            learner.scale_learning_rate(factor)
        expected, found = here.update(batch), there.update(batch.to(there.device))
        assert found.priority.is_cuda
        assert torch.allclose(expected.priority, found.priority.cpu(), rtol=1e-2, atol=1e-3), number
    assert not (compiled and there.compiled._fails)
    assert not all(torch.equal(value, begun[name]) for name, value in weights(here).items())
    for name, value in weights(here).items():
        assert torch.allclose(value, weights(there)[name].cpu(), atol=5e-3), name


@pytest.mark.parametrize("on_device", ["false", "true"])
@pytest.mark.parametrize("task", ["toy/two_cameras", "toy/bits"])
def test_a_training_on_images_or_towards_goals_goes_on(task, on_device, cwd):
    key = f"replay_config.on_device={on_device}"
    assert main([task, *WORDS, "--max_step=400", "-o", key, "-o", "start_step=100"]) == 0
    assert main([task, *WORDS, "--max_step=500", "--resume"]) == 0
    result = json.loads((cwd / f"models/{task}/run/result.json").read_text())
    assert result["steps"] == 500 and result["updates"] > 0


def test_lanes_step_on_the_gpu_and_go_on_bit_for_bit():
    def made() -> VecEnv:
        args = {"device": "cuda"}
        return make_vec_env(
            EnvRequest("TENSOR", f"{TOYS}:Pendulum", env_args=args, n=64, seed_of=lambda i, k: 7)
        )

    def step(env: VecEnv) -> StepResult:
        return env.step({DEFAULT_BEHAVIOUR: np.full((64, 1), 0.5, np.float32)})[DEFAULT_BEHAVIOUR]

    env, other = made(), made()
    env.reset(episode=0)
    for _ in range(150):
        step(env)
    state = State({name: value.copy() for name, value in env.state().arrays.items()})
    other.reset(episode=0)
    assert other.resume(state) == {}
    for _ in range(120):  # beyond an end, with random numbers
        here, there = step(env), step(other)
        assert np.array_equal(here.obs["obs"], there.obs["obs"]) and np.array_equal(here.reward, there.reward)
