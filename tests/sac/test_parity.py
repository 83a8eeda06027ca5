"""Updates of CrossQ and TQC give the gradients and statistics of sb3-contrib's, of the same numbers."""

from __future__ import annotations

import subprocess

import numpy as np
import pytest
import torch
from torch import nn

from algorithm.nn.layers.norm import BatchNorm
from benchmarks.harness import PEER_PYTHON
from tests.batches import random_batch, small_sac

SIZE = 32
KINDS = {
    "CrossQ": {
        "q": {"norm": "batch"},
        "policy": {"norm": "batch"},
        "use_target_network": False,
    },
    "TQC": {"value_head": "quantile", "quantile_num": 5, "quantile_drop": 2},
}


def parameters_of(network: nn.Module) -> list[nn.Parameter]:
    """Weights and biases of its layers, in order."""
    return [p for layer in network.modules() for p in layer.parameters(recurse=False)]


def of_actor(policy: nn.Module, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """The last layer's rows are means, then deviations: two layers of theirs."""
    *body, weight, bias = tensors
    means, deviations = weight.chunk(2), bias.chunk(2)
    return [*body, means[0], deviations[0], means[1], deviations[1]]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_an_update_is_that_of_sb3_contrib(kind, root, tmp_path):
    if not PEER_PYTHON.exists():
        pytest.skip("sb3-contrib is not installed: make bench-peers")
    sac = small_sac(
        gamma=0.9, learning_rate=1e-12, use_auto_alpha=False, init_log_alpha=-1.0, tau=1e-12, **KINDS[kind]
    )
    batch = random_batch(SIZE)
    batch.weight[:] = 1.0
    generator = torch.Generator()
    generator.set_state(sac._generator.get_state())
    ahead, now = (torch.randn(SIZE, 2, generator=generator) for _ in range(2))
    networks = {"actor": sac.model.policy} | {f"q{i}": q for i, q in enumerate(sac.model.q.members)}
    given = {
        f"{name}:{i}": p.detach().numpy()
        for name, net in networks.items()
        for i, p in enumerate(of_actor(net, parameters_of(net)) if name == "actor" else parameters_of(net))
    }
    given |= {f"target_{key}": value for key, value in given.items() if key.startswith("q")}
    files = [tmp_path / name for name in ("given.npz", "answer.npz")]
    np.savez(
        files[0],
        kind=kind,
        quantiles=5,
        drop=2,
        gamma=0.9,
        alpha=np.exp(-1.0),
        obs=batch.obs["obs"][:, 0].numpy(),
        next_obs=batch.obs["obs"][:, 1].numpy(),
        action=batch.action[:, 0].numpy(),
        reward=batch.reward[:, 0].numpy(),
        done=batch.terminated[:, 0].float().numpy(),
        # TQC draws the present action first, CrossQ and we the next one
        noise=torch.stack([now, ahead] if kind == "TQC" else [ahead, now]).numpy(),
        **given,
    )
    script = root / "tests" / "sac" / "contrib_side.py"
    done = subprocess.run([PEER_PYTHON, script, *files], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    answer = np.load(files[1])

    sac.update(batch)
    factor = 2.0 if kind == "TQC" else 1.0  # theirs is the mean over critics, ours the sum
    for name, net in networks.items():
        gradients = [p.grad for p in parameters_of(net)]
        if name == "actor":
            gradients = of_actor(net, gradients)
        for index, gradient in enumerate(gradients):
            theirs = answer[f"grad:{name}:{index}"] * (1.0 if name == "actor" else factor)
            np.testing.assert_allclose(
                gradient.numpy(), theirs, atol=1e-5, rtol=1e-4, err_msg=f"{name} {index}"
            )
        norms = [layer for layer in net.modules() if isinstance(layer, BatchNorm)]
        assert len(norms) == (3 if kind == "CrossQ" else 0)
        for index, norm in enumerate(norms):
            np.testing.assert_allclose(norm.mean.numpy(), answer[f"mean:{name}:{index}"], atol=1e-6)
            np.testing.assert_allclose(norm.var.numpy(), answer[f"var:{name}:{index}"], atol=1e-6)
