"""Plain versions of what ``algorithm`` computes fast: loops, one transition at a time, or textbook code."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from algorithm.core.data import SequenceBatch


def n_step_target(reward, terminated, valid, next_value, next_bonus, *, gamma, n):
    """y [B, T] of the uncorrected soft n-step target, one step at a time."""
    size, length = reward.shape
    y = np.zeros((size, length - n + 1))
    for b in range(size):
        for i in range(length - n + 1):
            discount = 1.0
            for t in range(n):
                j = i + t
                if not valid[b, j]:
                    break
                y[b, i] += discount * (reward[b, j] + (next_bonus[b, j - 1] if t else 0.0))
                discount *= gamma * (not terminated[b, j])
                if t == n - 1 or not valid[b, j + 1]:
                    y[b, i] += discount * next_value[b, j]
    return y


def vtrace_target(
    reward, terminated, valid, next_value, next_bonus, ratio, *, gamma, n, trace_decay, rho_max, c_max
):
    """y [B, T] of the soft V-trace target by its recursion, backwards from the window's end."""
    size, length = reward.shape
    y = np.zeros((size, length - n + 1))
    for b in range(size):
        for i in range(length - n + 1):
            correction = 0.0  # Σ over later steps, seen from step t
            for t in range(n - 1, 0, -1):
                j = i + t
                rho = min(rho_max, ratio[b, j - 1]) * valid[b, j]
                c = trace_decay * min(c_max, ratio[b, j - 1]) * valid[b, j]
                d = gamma * (not terminated[b, j])
                delta = rho * (
                    reward[b, j] + next_bonus[b, j - 1] + d * next_value[b, j] - next_value[b, j - 1]
                )
                correction = delta + d * c * correction
            y[b, i] = reward[b, i] + gamma * (not terminated[b, i]) * (next_value[b, i] + correction)
    return y


def drawn_network(elites, noise, *, floor, largest):
    """A drawn tensor from those of the elites, flat lists each, and its noise ε; one number at a time."""
    means = [sum(values) / len(elites) for values in zip(*elites, strict=True)]
    smallest = floor * (sum(mean**2 for mean in means) / len(means)) ** 0.5
    drawn = []
    for mean, values, eps in zip(means, zip(*elites, strict=True), noise, strict=True):
        std = (sum((value - mean) ** 2 for value in values) / len(values)) ** 0.5
        drawn.append(mean + min(max(std, smallest), largest) * eps)
    return drawn


def window_mean(values, valid):
    """Each window's mean over what exists, then the mean over the windows in which something does."""
    means = []
    for of_window, exists in zip(values, valid, strict=True):
        there = [value for value, one in zip(of_window, exists, strict=True) if one]
        if there:
            means.append(sum(there) / len(there))
    return sum(means) / max(1, len(means))


class PlainSac:
    """One-step SAC as the paper's algorithm box: a module and an Adam for each part, nothing flat or shared.

    Identity encoder; the noise of both samples comes from outside, so that it can be compared step by step.
    """

    def __init__(
        self,
        critics: list[nn.Module],
        policy: nn.Module,
        *,
        gamma: float,
        tau: float,
        learning_rate: float,
        log_alpha: float,
        target_entropy: float,
    ) -> None:
        self.critics = [copy.deepcopy(c).requires_grad_(True) for c in critics]
        self.targets = [copy.deepcopy(c).requires_grad_(False) for c in critics]
        self.policy = copy.deepcopy(policy)
        self.log_alpha = torch.tensor(log_alpha, requires_grad=True)
        self.gamma, self.tau, self.target_entropy = gamma, tau, target_entropy
        self.critic_adam = torch.optim.Adam([p for c in self.critics for p in c.parameters()], learning_rate)
        self.policy_adam = torch.optim.Adam(self.policy.parameters(), learning_rate)
        self.alpha_adam = torch.optim.Adam([self.log_alpha], learning_rate)

    def sample(self, state: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """u and its log-density by the textbook formula, from standard normal noise."""
        normal = self.policy(state, {}).continuous
        z = normal.mean + normal.log_std.exp() * noise
        gaussian = torch.distributions.Normal(normal.mean, normal.log_std.exp()).log_prob(z)
        return z.tanh(), (gaussian - torch.log(1 - z.tanh().square() + 1e-12)).sum(-1)

    def update(self, batch: SequenceBatch, noise: Callable[[], Tensor]) -> Tensor:
        """One update; returns the TD errors [E, B]."""
        state, following = batch.obs["obs"][:, 0], batch.obs["obs"][:, 1]
        action, reward = batch.action[:, 0], batch.reward[:, 0]
        alpha = self.log_alpha.detach().exp()
        with torch.no_grad():
            u, logp = self.sample(following, noise())
            value = torch.stack([c(following, u)[:, 0] for c in self.targets]).amin(0) - alpha * logp
            y = reward + self.gamma * (~batch.terminated[:, 0]) * value
        q = torch.stack([c(state, action)[:, 0] for c in self.critics])
        loss = 0.5 * (batch.weight * (q - y).square()).mean(-1).sum()
        self._step(self.critic_adam, loss)
        u, logp = self.sample(state, noise())
        value = torch.stack([c(state, u)[:, 0] for c in self.critics]).amin(0)
        self._step(self.policy_adam, (alpha * logp - value).mean())
        self._step(self.alpha_adam, (self.log_alpha * (-logp.detach() - self.target_entropy)).mean())
        with torch.no_grad():
            for target, online in zip(self.targets, self.critics, strict=True):
                for own, source in zip(target.parameters(), online.parameters(), strict=True):
                    own += self.tau * (source - own)
        return (q - y).detach()

    @staticmethod
    def _step(adam: torch.optim.Optimizer, loss: Tensor) -> None:
        adam.zero_grad()
        loss.backward()
        adam.step()


def attention_block(block: nn.Module, x: Tensor, valid: Tensor, *, positions: str, gated: bool) -> Tensor:
    """What a window of attention gives, [B, T, size] in float64: one query, head and key at a time."""
    p = {name: value.double().numpy() for name, value in block.state_dict().items()}
    out = np.zeros(x.shape)
    for b in range(len(x)):
        # Tokens that do not exist are left out altogether; slots only matter by their differences.
        stream = x[b, valid[b]].double().numpy()
        for index in range(len(block.layers)):
            part = {
                name.removeprefix(f"layers.{index}."): value
                for name, value in p.items()
                if name.startswith(f"layers.{index}.")
            }
            heads = block.layers[index].attention.heads
            stream = _attention_layer(part, stream, heads, block.context, positions, gated)
        out[b, valid[b].numpy()] = _layer_norm(stream, p["norm.weight"], p["norm.bias"])
    return torch.from_numpy(out)


def _attention_layer(p, x, heads, context, positions, gated):
    """x [T, size] -> [T, size]."""
    size = x.shape[1]
    normal = _layer_norm(x, p["norm_attention.weight"], p["norm_attention.bias"])
    qkv = normal @ p["attention.qkv.weight"].T + p["attention.qkv.bias"]
    q, k, v = qkv[:, :size], qkv[:, size : 2 * size], qkv[:, 2 * size :]
    score = {"rotary": _rotary_score, "sinusoidal": _sinusoidal_score}[positions]
    found = np.zeros_like(x)
    for t in range(len(x)):
        for h in range(heads):
            own = slice(h * size // heads, (h + 1) * size // heads)
            keys = range(max(0, t - context + 1), t + 1)
            weight = np.exp([score(p, q[t], k[s], t - s, h, heads) / np.sqrt(size / heads) for s in keys])
            for s, w in zip(keys, weight / weight.sum(), strict=True):
                found[t, own] += w * v[s, own]
    x = _add(p, "add_attention", x, found @ p["attention.out.weight"].T + p["attention.out.bias"], gated)
    normal = _layer_norm(x, p["norm_dense.weight"], p["norm_dense.bias"])
    hidden = normal @ p["dense_in.weight"].T + p["dense_in.bias"]
    hidden = hidden * 0.5 * (1 + torch.erf(torch.from_numpy(hidden) / 2**0.5).numpy())  # GELU
    return _add(p, "add_dense", x, hidden @ p["dense_out.weight"].T + p["dense_out.bias"], gated)


def _rotary_score(p, q, k, distance, head, heads):
    """Re Σ q k* exp(i · distance · frequency) over the head's pairs, as complex numbers."""
    half = len(q) // 2
    pairs = half // heads
    total = 0.0
    for i in range(pairs):
        c = head * pairs + i
        turn = np.exp(1j * distance * 10000.0 ** (-i / pairs))
        total += (complex(q[c], q[c + half]) * complex(k[c], k[c + half]).conjugate() * turn).real
    return total


def _sinusoidal_score(p, q, k, distance, head, heads):
    """(q + u)·k + (q + v)·W R of the distance, in one head."""
    size = len(q)
    count = (size + 1) // 2
    angle = [distance * 10000.0 ** (-i / count) for i in range(count)]
    encoded = p["attention.positions.distance.weight"] @ np.concatenate([np.sin(angle), np.cos(angle)])[:size]
    u, v = p["attention.positions.content_bias"], p["attention.positions.distance_bias"]
    own = slice(head * size // heads, (head + 1) * size // heads)
    return (q + u)[own] @ k[own] + (q + v)[own] @ encoded[own]


def _add(p, name, x, y, gated):
    if not gated:
        return x + y
    y = np.maximum(y, 0)
    w_r, w_z, w_g = np.split(p[f"{name}.from_y.weight"], 3)
    u_r, u_z = np.split(p[f"{name}.from_x.weight"], 2)
    r = 1 / (1 + np.exp(-(y @ w_r.T + x @ u_r.T)))
    z = 1 / (1 + np.exp(-(y @ w_z.T + x @ u_z.T - p[f"{name}.bias"])))
    return (1 - z) * x + z * np.tanh(y @ w_g.T + (r * x) @ p[f"{name}.from_reset.weight"].T)


def _layer_norm(x, weight, bias):
    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + 1e-5) * weight + bias


def step_by_step(
    memory: torch.nn.Module, x: torch.Tensor, carry: torch.Tensor, valid: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """A recurrent block by torch's cells, row by row and step by step; invalid steps are left out."""
    batch, steps, _ = x.shape
    out = torch.zeros(batch, steps, memory.out_size, dtype=x.dtype)
    after = torch.empty(batch, steps, *memory.carry_shape, dtype=x.dtype)
    for row in range(batch):
        now = carry[row].clone()
        for t in range(steps):
            if valid[row, t]:
                value, layers = x[row, t : t + 1], []
                for depth, layer in enumerate(memory.layers):
                    weights = list(layer.parameters())
                    if len(layer.weight_hh_l0) == 3 * layer.weight_hh_l0.shape[1]:
                        value = torch.gru_cell(value, now[depth : depth + 1], *weights)
                        layers.append(value[0])
                    else:
                        state = now[0, depth : depth + 1], now[1, depth : depth + 1]
                        value, cell = torch.lstm_cell(value, state, *weights)
                        layers.append(torch.stack([value[0], cell[0]]))
                out[row, t] = value[0]
                now = torch.stack(layers, -2)
            after[row, t] = now.detach()
    return out, after


def quantile_loss(theta, atoms, kappa):
    """Loss of one critic's K quantiles against atoms: the mean over all pairs (QR-DQN, eq. 10)."""
    total = 0.0
    for k, quantile in enumerate(theta):
        level = (k + 0.5) / len(theta)
        for atom in atoms:
            delta = atom - quantile
            huber = delta**2 / 2 if abs(delta) <= kappa else kappa * (abs(delta) - kappa / 2)
            total += abs(level - (delta < 0)) * huber / kappa
    return total / (len(theta) * len(atoms))


def histogram(y, edges, sigma):
    """Mass of a normal around y in each bin, as shares of what lies in all of them."""
    cdf = [0.5 * (1 + math.erf((edge - y) / (sigma * math.sqrt(2)))) for edge in edges]
    return [(high - low) / (cdf[-1] - cdf[0]) for low, high in itertools.pairwise(cdf)]


def last_and_discount(terminated, valid, gamma, n):
    """Bootstrap step and γ^k d of each learned position."""
    found = []
    for t in range(len(valid) - n + 1):
        steps = [j for j in range(t, t + n) if valid[j]]
        factor = 1.0 if steps else 0.0
        for j in steps:
            factor *= gamma * (not terminated[j])
        found.append((steps[-1] if steps else t, factor))
    return found
