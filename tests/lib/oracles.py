"""Plain versions of what ``algorithm`` computes fast: loops, one transition at a time, or textbook code."""

from __future__ import annotations

import copy

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

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
