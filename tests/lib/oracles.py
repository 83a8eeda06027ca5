"""Plain versions of what ``algorithm`` computes fast: loops, one transition at a time, or textbook code."""

from __future__ import annotations

import numpy as np


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
