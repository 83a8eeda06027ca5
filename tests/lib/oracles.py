"""Plain versions of what ``algorithm`` computes fast: loops, one transition at a time, or textbook code."""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributions import Normal
from torch.nn import functional as F

from algorithm.core.data import SequenceBatch
from algorithm.nn.layers.inverted import InvertedBlock
from algorithm.nn.layers.norm import EPSILON, MOMENTUM, BatchNorm, RmsNorm


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

    def sample(self, state: Tensor, noise: Tensor, *, training: bool = True) -> tuple[Tensor, Tensor]:
        """u and its log-density by the textbook formula, from standard normal noise."""
        normal = self.policy.train(training)(state, {}).continuous
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


def retrace_returns(reward, terminated, valid, value, q, trace, *, gamma):
    """R [B, T] of Retrace by its recursion, one step at a time."""
    size, length = reward.shape
    returns = np.zeros((size, length))
    for b in range(size):
        for t in reversed(range(length)):
            returns[b, t] = reward[b, t]
            if not terminated[b, t]:
                ahead = value[b, t + 1]
                if t + 1 < length and valid[b, t + 1]:
                    ahead += trace[b, t + 1] * (returns[b, t + 1] - q[b, t + 1])
                returns[b, t] += gamma * ahead
    return returns


class PlainNet(nn.Module):
    """The same network out of torch's own layers, with the batch norms in training mode."""

    def __init__(self, net: nn.Sequential) -> None:
        super().__init__()
        self.layers = nn.ModuleList(map(plain_layer, net))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + layer(x) if isinstance(layer, PlainNet) else layer(x)
        return x


class BiasedBatchNorm(nn.BatchNorm1d):
    """Torch's batch norm, whose running variance is that of the batches as they were divided by."""

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            with torch.no_grad():
                before = self.running_var.clone()
                super().forward(x.detach())
                self.running_var.copy_(before.lerp(x.detach().var(0, correction=0), self.momentum))
            return F.batch_norm(x, None, None, self.weight, self.bias, True, eps=self.eps)
        return super().forward(x)


class PlainRms(nn.Module):
    """RMS norm by torch's own function."""

    def __init__(self, weight: nn.Parameter) -> None:
        super().__init__()
        self.weight = weight

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.weight.shape, self.weight, 1e-6)


def plain_layer(layer: nn.Module) -> nn.Module:
    """A copy of a layer, by torch; a block is the network whose output it adds to its input."""
    layer = copy.deepcopy(layer)
    if isinstance(layer, InvertedBlock):
        return PlainNet(layer.net)
    if isinstance(layer, RmsNorm):
        return PlainRms(layer.weight)
    if not isinstance(layer, BatchNorm):
        return layer
    norm = BiasedBatchNorm(len(layer.weight), eps=EPSILON, momentum=MOMENTUM)
    norm.weight, norm.running_mean, norm.running_var = layer.weight, layer.mean, layer.var
    if isinstance(layer.bias, nn.Parameter):
        norm.bias = layer.bias
    else:
        norm.bias.requires_grad_(False)
    return norm


class PlainFlash(PlainSac):
    """One-step FlashSAC (arXiv 2604.04539) with HL-Gauss: batch norms of both halves, one mode for each pass.

    critics, targets: networks of torch's layers; num, limit: of the bins
    """

    def __init__(
        self, critics: list[nn.Module], targets: list[nn.Module], policy: nn.Module, *, num, limit, **of_sac
    ) -> None:
        super().__init__(critics, policy, tau=0.0, **of_sac)
        self.targets = [copy.deepcopy(one).requires_grad_(False) for one in targets]
        self.limit, self.centres = limit, torch.linspace(-limit, limit, num)
        width = 2 * limit / (num - 1)
        self.edges = torch.linspace(-limit - width / 2, limit + width / 2, num + 1)
        self.sigma = 0.75 * width

    def means(self, critics: list[nn.Module], state: Tensor, action: Tensor) -> Tensor:
        """The means of the histograms [E, B]."""
        return torch.stack([c(torch.cat([state, action], -1)).softmax(-1) @ self.centres for c in critics])

    def update(self, batch: SequenceBatch, noise: Callable[[], Tensor]) -> Tensor:
        """One update; returns the critics' loss. Gradients stay in the parameters."""
        state, following = batch.obs["obs"][:, 0], batch.obs["obs"][:, 1]
        action, reward, ended = batch.action[:, 0], batch.reward[:, 0], batch.terminated[:, 0]
        alpha, size = self.log_alpha.detach().exp(), len(state)
        with torch.no_grad():
            u, logp = self.sample(following, noise(), training=False)
            both = torch.cat([torch.cat([state, action], -1), torch.cat([following, u], -1)])
            masses = torch.stack([c.train()(both)[size:].softmax(-1) for c in self.targets])  # [M, B, K]
            mean, bins = masses @ self.centres, []
            for row in range(size):
                value = min(mean[:, row]) - alpha * logp[row]
                y = (reward[row] + self.gamma * (~ended[row]) * value).clamp(-self.limit, self.limit)
                below = Normal(y, self.sigma).cdf(self.edges)
                bins.append(below.diff() / (below[-1] - below[0]))
            aim = torch.stack(bins)
        outs = [c.train()(both)[:size].log_softmax(-1) for c in self.critics]
        loss = sum((batch.weight * -(aim * out).sum(-1)).mean() for out in outs)
        self._step(self.critic_adam, loss)
        for critic in self.critics:
            critic.eval().requires_grad_(False)
        u, logp = self.sample(state, noise(), training=True)
        self._step(self.policy_adam, (alpha * logp - self.means(self.critics, state, u).amin(0)).mean())
        return loss.detach()
