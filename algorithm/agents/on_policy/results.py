"""Results of the gradient steps of an update, and the metrics computed from them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from algorithm.agents.on_policy.rollout import Rollout
from algorithm.core.data import Double
from algorithm.core.spec import ActionSpec
from algorithm.extensions.base import Extension, signal_metric
from algorithm.ops.on_policy import LARGEST_LOG_RATIO
from algorithm.ops.shapes import total

Metric = TypeVar("Metric", float, Tensor)

_ENTROPY_OF_ONE = 0.5 * math.log(2.0 * math.pi * math.e)  # of a normal distribution with σ = 1


@dataclass(frozen=True, kw_only=True)
class GradientStep:
    """Results of a step of the optimiser, on the device and without gradient; scalars unless noted."""

    policy_loss: Tensor
    value_losses: Sequence[Tensor]  # of each horizon
    entropies: Mapping[str, Tensor]  # of the action's parts: continuous, discrete
    log_ratio: Tensor  # [M] log ρ before the step
    kl: Tensor  # estimate of KL(π_old ‖ π) before the step
    clip: float  # ε
    grad_norm: Tensor
    further: Mapping[str, Tensor]  # metrics of the descent and of extensions, by name


def update_metrics(
    rollout: Rollout,
    steps: Sequence[GradientStep],
    *,
    epochs: int,
    reward_scale: float,
    action: ActionSpec,
    signals: Sequence[Sequence[Extension]],
) -> dict[str, float]:
    """Return the metrics of an update: means over its steps, and those of the values before them.

    epochs:  number of complete epochs
    reward_scale: factor on rewards in learning
    signals: extensions of each horizon except for the agent's
    """
    (value, target), *further = rollout.estimates
    explained = [explained_variance(*estimate) for estimate in further]
    return {
        **means([_step_metrics(step, action, signals) for step in steps]),
        "ppo/explained_variance": explained_variance(value, target),
        **_named("ppo/explained_variance", signals, explained),
        "ppo/epochs_done": float(epochs),
        "ppo/trace_weight": float(rollout.weight[rollout.valid].mean()),
        "value/target": float(target.mean()) / reward_scale,
    }


def _step_metrics(
    step: GradientStep, action: ActionSpec, signals: Sequence[Sequence[Extension]]
) -> dict[str, Tensor]:
    """Return the metrics of one gradient step. signals: the reward signals of each further value."""
    change = step.log_ratio.clamp(max=LARGEST_LOG_RATIO).expm1()  # ρ − 1
    return {
        "loss/policy": step.policy_loss,
        "loss/value": step.value_losses[0],
        **_named("loss/value", signals, step.value_losses[1:]),
        "policy/entropy": total(step.entropies.values()),
        **_spread(step.entropies, action),
        "ppo/approx_kl": step.kl,
        "ppo/clip_fraction": (change.abs() > step.clip).float().mean(),
        "ppo/ratio_max": change.max() + 1.0,
        "optim/grad_norm": step.grad_norm,
        **step.further,
    }


def _spread(entropies: Mapping[str, Tensor], action: ActionSpec) -> dict[str, Tensor]:
    """Return ``policy/std`` of continuous actions and ``policy/entropy_share`` of discrete ones."""
    metrics = {}
    if "continuous" in entropies:  # the inverse of a normal distribution's entropy, ln σ + ½ ln 2πe
        log_std = entropies["continuous"] / action.continuous - _ENTROPY_OF_ONE
        metrics["policy/std"] = log_std.exp()
    if "discrete" in entropies:
        metrics["policy/entropy_share"] = entropies["discrete"] / sum(map(math.log, action.branches))
    return metrics


def _named(name: str, signals: Sequence[Sequence[Extension]], values: Sequence[Metric]) -> dict[str, Metric]:
    """Return the values of a metric for all horizons except for the agent's, named after their signals."""
    return {signal_metric(name, extensions): value for extensions, value in zip(signals, values, strict=True)}


def means(metrics: Sequence[Mapping[str, Tensor]]) -> dict[str, float]:
    """Return the mean of each metric over the steps of an update; {} without steps."""
    names = metrics[0] if metrics else ()
    return {name: float(torch.stack([step[name] for step in metrics]).mean()) for name in names}


def explained_variance(value: Double, target: Double) -> float:
    """Return ``1 − Var(R − V) / Var(R)`` of values [M] and targets R [M]; NaN if R does not vary."""
    spread = float(np.var(target))
    return 1.0 - float(np.var(target - value)) / spread if spread > 0.0 else math.nan
