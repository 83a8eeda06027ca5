"""The meaning of critics' outputs that the keys choose."""

from __future__ import annotations

from dataclasses import replace

import torch

from algorithm.agents.off_policy.config import OffPolicyConfig
from algorithm.agents.off_policy.values.distributions import CategoricalValues, QuantileValues
from algorithm.agents.off_policy.values.scalar import ClippedValues, Reduce, ScalarValues, Values
from algorithm.core.spec import ActionSpec, AgentSpec
from algorithm.ops.sac import average, smallest


def choose_reduce(config: OffPolicyConfig) -> tuple[Reduce, Reduce]:
    """Return the reductions over critics in targets (of the drawn critics) and in the policy's loss (of all).

    REDQ (arXiv 2101.05982, algorithm 1): the policy maximises the mean where targets use a subset. With
    quantiles it does so, too, and targets drop the largest ones instead (TQC, arXiv 2005.04269).
    """
    if config.value_head == "quantile":
        return average, average
    target = average if config.ensemble_q_reduce == "mean" else smallest
    return target, target if config.ensemble_q_sample == config.ensemble_q_num else average


def make_values(config: OffPolicyConfig, action: ActionSpec, device: torch.device) -> Values:
    """Return the meaning of critics' outputs that the key ``value_head`` chooses."""
    reduce, _ = choose_reduce(config)
    if config.value_head == "quantile":
        return QuantileValues(action, config.quantile_num, config.quantile_drop, device)
    if config.value_head == "categorical":
        size = config.categorical_num, config.categorical_range
        return CategoricalValues(action, *size, device, sigma=config.categorical_sigma, reduce=reduce)
    if config.clip_epsilon > 0:
        return ClippedValues(action, reduce, config.clip_epsilon)
    return ScalarValues(action, reduce)


def with_values(spec: AgentSpec, config: OffPolicyConfig) -> AgentSpec:
    """Return the spec with ``action.values`` set to D of the key ``value_head``, the outputs per value."""
    numbers = {"quantile": config.quantile_num, "categorical": config.categorical_num}
    return replace(spec, action=replace(spec.action, values=numbers.get(config.value_head, 1)))
