"""One update of sb3-contrib's CrossQ or TQC, from weights, a batch and noise of a file.

``python contrib_side.py given.npz answer.npz`` in the environment of the peer, without the project.
The learning rate is 0, so that the answer holds the gradients of both networks at the same weights.
"""

from __future__ import annotations

import sys
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from sb3_contrib import TQC, CrossQ
from sb3_contrib.common.torch_layers import BatchRenorm1d


class Silent(gym.Env):
    """Spaces of the recorded batch."""

    observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)


def layers(module: torch.nn.Module) -> list[torch.nn.Module]:
    """Layers with parameters, in order."""
    return [x for x in module.modules() if isinstance(x, torch.nn.Linear | BatchRenorm1d)]


def pairs(layer: torch.nn.Module) -> list[torch.nn.Parameter]:
    """Weights and biases."""
    return [layer.scale if isinstance(layer, BatchRenorm1d) else layer.weight, layer.bias]


def main(given_file: str, answer_file: str) -> None:
    """Make the update."""
    given = np.load(given_file)
    kind, quantiles = str(given["kind"]), int(given["quantiles"])
    torch.set_num_threads(1)
    options = {"n_quantiles": quantiles, "n_critics": 2} if kind == "TQC" else {}
    more = {"top_quantiles_to_drop_per_net": int(given["drop"])} if kind == "TQC" else {"policy_delay": 1}
    model = {"TQC": TQC, "CrossQ": CrossQ}[kind](
        "MlpPolicy",
        Silent(),
        learning_rate=0.0,
        gamma=float(given["gamma"]),
        ent_coef=float(given["alpha"]),
        policy_kwargs={"net_arch": [8, 8], **options},
        buffer_size=10,
        device="cpu",
        **more,
    )
    model._logger = SimpleNamespace(record=lambda *args, **kwargs: None)
    model.replay_buffer.sample = lambda *args, **kwargs: SimpleNamespace(
        observations=torch.from_numpy(given["obs"]),
        next_observations=torch.from_numpy(given["next_obs"]),
        actions=torch.from_numpy(given["action"]),
        rewards=torch.from_numpy(given["reward"])[:, None],
        dones=torch.from_numpy(given["done"])[:, None],
        discounts=None,
    )
    model.actor.action_dist.epsilon = 0.0  # an addend of theirs in the logarithm of the Jacobian
    noise = list(torch.from_numpy(given["noise"]))
    torch.distributions.normal._standard_normal = lambda *args, **kwargs: noise.pop(0)
    plain_var = torch.Tensor.var
    torch.Tensor.var = lambda self, dim: plain_var(self, dim, correction=0)  # ours is biased

    networks = {"actor": [model.actor.latent_pi, model.actor.mu, model.actor.log_std]}
    networks |= {f"q{i}": [q] for i, q in enumerate(model.critic.q_networks)}
    if kind == "TQC":
        networks |= {f"target_q{i}": [q] for i, q in enumerate(model.critic_target.q_networks)}
    parameters = {}
    with torch.no_grad():
        for name, parts in networks.items():
            found = [p for part in parts for layer in layers(part) for p in pairs(layer)]
            for index, parameter in enumerate(found):
                parameter.copy_(torch.from_numpy(given[f"{name}:{index}"]))
                parameters[f"{name}:{index}"] = parameter
    kept = {}
    for name, optimizer in (("actor", model.actor.optimizer), ("q", model.critic.optimizer)):

        def keep(name: str = name, step: object = optimizer.step) -> None:
            mine = {k: p for k, p in parameters.items() if k.startswith(name)}
            kept.update({f"grad:{k}": p.grad.clone().numpy() for k, p in mine.items()})

        optimizer.step = keep
    model.train(1, len(given["obs"]))
    for name, parts in networks.items():
        norms = [x for part in parts for x in layers(part) if isinstance(x, BatchRenorm1d)]
        for index, norm in enumerate(norms):
            kept[f"mean:{name}:{index}"], kept[f"var:{name}:{index}"] = (
                norm.ra_mean.numpy(),
                norm.ra_var.numpy(),
            )
    np.savez(answer_file, **kept)


if __name__ == "__main__":
    main(*sys.argv[1:])
