"""PPO and A2C compute what plain code and Stable-Baselines3 compute of the same rollout."""

import json
import subprocess
from functools import cache

import numpy as np
import pytest
import torch

from algorithm.agents.on_policy import update as page
from algorithm.agents.on_policy.family_config import A2cConfig, PpoConfig
from benchmarks.harness import PEER_PYTHON
from tests.agents.on_policy.recorded import (
    UpdateRecord,
    Weights,
    plain_update,
    record,
)
from tests.lib.callbacks import watch

TASKS = {"discrete": "CartPole-v1", "continuous": "Pendulum-v1"}

ALL = {
    "num_epoch": 3,
    "num_minibatch": 4,
    "learning_rate": 3e-3,
    "gae_lambda": 0.95,
    "clip": 0.1,
    "clip_value": 0.1,
    "normalise_advantage": "minibatch",
    "entropy_coef": 0.1,
    "value_coef": 0.25,  # CleanRL's 0.5, which it halves
    "max_grad_norm": 0.5,
}
"""Every detail of an update switched on."""

OFF = {
    "nothing": {},
    "value clipping": {"clip_value": None},
    "normalised advantages": {"normalise_advantage": "none"},
    "advantages of one minibatch": {"normalise_advantage": "rollout"},
    "annealing": {},
    "entropy": {"entropy_coef": 0.0},
    "gradient clipping": {"max_grad_norm": None},
    "ratio clipping": {"clip": 1e9, "clip_value": 1e9},  # CleanRL has one number for both
    "generalised advantages": {"gae_lambda": 1.0},
    "several epochs": {"num_epoch": 1},
    "minibatches": {"num_minibatch": 1},
    "Adam's epsilon": {},
}
"""Keys with one detail switched off."""


@cache
def rollout(kind: str) -> UpdateRecord:
    """A rollout with ends by failure and by time in the middle."""
    torch.manual_seed(0)
    found = record(TASKS[kind])
    assert found.recorded.terminated[:-1].any() and found.recorded.truncated[:-1].any()
    return found


def without(detail: str) -> tuple[PpoConfig, dict[str, float]]:
    """Keys, and what is no key: the factor of the learning rate in mid-run, and Adam's epsilon."""
    own = PpoConfig(**{**ALL, **OFF[detail]})
    factor = 1.0 if detail == "annealing" else 0.5
    return own, {"factor": factor, "epsilon": 1e-8 if detail == "Adam's epsilon" else 1e-5}


def made(
    update: UpdateRecord, own: PpoConfig | A2cConfig, monkeypatch, *, factor: float, epsilon: float
) -> Weights:
    """Our update."""
    monkeypatch.setattr("algorithm.agents.on_policy.descent.EPSILON", epsilon)
    return update.made(own, factor)


@cache
def complete(kind: str) -> Weights:
    """The plain update with every detail."""
    own, more = without("nothing")
    return plain_update(rollout(kind), own, **more)


def assert_equal(mine: Weights, theirs: Weights, atol: float = 1e-5) -> None:
    assert mine.keys() == theirs.keys()
    for name, value in mine.items():
        torch.testing.assert_close(value, theirs[name], rtol=0, atol=atol, msg=lambda m, n=name: f"{n}: {m}")


def farthest(some: Weights, others: Weights) -> float:
    return max(float((value - others[name]).abs().max()) for name, value in some.items())


@pytest.mark.parametrize("kind", TASKS)
@pytest.mark.parametrize("detail", OFF)
def test_an_update_is_that_of_plain_code_without_each_detail(kind, detail, monkeypatch):
    (own, more), update = without(detail), rollout(kind)
    plain = plain_update(update, own, **more)
    assert_equal(made(update, own, monkeypatch, **more), plain)
    if detail != "nothing":  # the detail makes a difference on this rollout
        assert farthest(plain, complete(kind)) > 1e-4


def sb3_settings(own: PpoConfig | A2cConfig) -> dict[str, object]:
    """Arguments of its constructor, and ``algorithm``."""
    both = {
        **{"gae_lambda": own.gae_lambda, "ent_coef": own.entropy_coef, "vf_coef": own.value_coef},
        **{"max_grad_norm": own.max_grad_norm, "learning_rate": own.learning_rate},
    }
    if isinstance(own, A2cConfig):
        return {**both, "algorithm": "A2C", "tf_rms": own.use_tf_rms}
    return {
        **both,
        **{"algorithm": "PPO", "n_epochs": own.num_epoch, "batch_size": 128 // own.num_minibatch},
        "clip_range": own.clip,
    }


A2C = {"value_coef": 0.5, "entropy_coef": 0.1, "learning_rate": 1e-3, "gae_lambda": 0.9}


@pytest.mark.slow
@pytest.mark.parametrize("kind", TASKS)
@pytest.mark.parametrize(
    "own",
    [
        PpoConfig(**{**ALL, "clip_value": None}),  # it takes the clipped error alone, not the larger one
        A2cConfig(**A2C),
        A2cConfig(**A2C, use_tf_rms=False),
    ],
    ids=["PPO", "A2C", "A2C with torch's RMSprop"],
)
def test_a_rollout_and_its_update_are_those_of_stable_baselines(kind, own, root, tmp_path, monkeypatch):
    """It bootstraps episodes that were cut off, from the value of their true final observation, as we do."""
    if not PEER_PYTHON.exists():
        pytest.skip("Stable-Baselines3 is not installed: make bench-peers")
    update, seen = rollout(kind), []
    files = [tmp_path / name for name in ("recorded.npz", "settings.json", "answer.npz")]
    weights = {f"w:{name}": value.numpy() for name, value in update.weights.items()}
    update.recorded.save(files[0], orders=np.stack(update.orders(own.num_epoch)), **weights)
    files[1].write_text(json.dumps(sb3_settings(own)))
    script = root / "tests/agents/on_policy/sb3_side.py"
    done = subprocess.run([PEER_PYTHON, script, *files], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    watch(monkeypatch, page, "estimate_advantages", lambda rollout, *_, **__: seen.append(rollout))
    mine, answer = update.made(own), np.load(files[2])
    for name, found in (("advantages", seen[0].advantage), ("returns", seen[0].targets[0])):
        np.testing.assert_allclose(update.in_order(found), answer[name], rtol=1e-6, atol=1e-6)
    assert_equal(mine, {name: torch.from_numpy(answer[f"w:{name}"]) for name in mine})
