"""Comparison of a repeated episode with the saved state of a pool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from algorithm.core.data import Array, Bool, Float, State
from algorithm.core.spec import ActionSpec, AgentSpec, ObsSpec
from algorithm.env.pool.step_buffers import StepBuffers


def spec_as_json(spec: AgentSpec) -> dict[str, Any]:
    """Return the spaces as JSON, equal only for the same spaces."""
    obs, action = spec.obs, spec.action
    more = zip(obs.categories, obs.stacks, strict=True)
    return {
        "obs": [[name, list(shape), dtype] for name, shape, dtype in obs.items()],
        "choices_and_stacks": [[list(counts), stack] for counts, stack in more],
        "branches": list(action.branches),
        "continuous": action.continuous,
    }


def noted(spec: AgentSpec) -> dict[str, Any]:
    """Return the spaces as a run notes them: with the order of an image's axes, where one is named."""
    axes = spec.obs.axes
    return {**spec_as_json(spec), **({"axes": list(axes)} if any(axes) else {})}


def spec_of(spaces: Mapping[str, Any]) -> AgentSpec:
    """Return the spec that :func:`noted` was given. Raises KeyError, TypeError, ValueError otherwise."""
    names, shapes, dtypes = zip(*spaces["obs"], strict=True)
    categories, stacks = zip(*spaces["choices_and_stacks"], strict=True)
    obs = ObsSpec(
        names,
        tuple(map(tuple, shapes)),
        dtypes,
        tuple(map(tuple, categories)),
        stacks,
        tuple(spaces.get("axes", ())),
    )
    return AgentSpec(obs, ActionSpec(tuple(spaces["branches"]), spaces["continuous"]))


def specs_of(spaces: object) -> dict[str, AgentSpec]:
    """Return the specs that a run has noted by behaviour; none where an older version noted none.

    Raises ValueError if they are damaged.
    """
    try:
        return {name: spec_of(one) for name, one in spaces.items()} if isinstance(spaces, dict) else {}
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error


def why_not_repeatable(state: State, n: int, spec: AgentSpec, parameters: Sequence[str]) -> str:
    """Return why ``n`` environments of these spaces and parameters cannot repeat saved episodes, or ""."""
    if "actions" not in state.arrays:
        return "they were stepped together, and their actions were not kept"
    if len(state.arrays["episode"]) != n:
        return f"there were {len(state.arrays['episode'])}"
    if state.meta.get("parameters", []) != list(parameters):
        return "the parameters of its episodes were others"
    return "" if state.meta["spec"] == spec_as_json(spec) else "the spaces were others"


def split_actions(state: State) -> list[Float]:
    """Return the actions of each sub-environment's open episode, [L, A] each."""
    ends = np.cumsum(state.arrays["length"])[:-1]
    return np.split(state.arrays["actions"].astype(np.float32, copy=False), ends)


def find_differences(state: State, buffers: StepBuffers, action_mask: Bool) -> dict[int, str]:
    """Return the sub-environments that are not where they were, with the difference.

    buffers:     after the episodes were repeated
    action_mask: the current one, [N, ΣN]

    Numbers are compared as bits: NaN equals itself, and 0 is not −0.
    """
    found: dict[int, str] = {}
    for i in range(len(buffers.seed)):
        if buffers.terminated[i] or buffers.truncated[i]:
            found[i] = (
                f"repeated, it ended after {buffers.repeated_steps[i]} of {state.arrays['length'][i]} steps"
            )
        elif any(_differ(buffers.obs[name][i], state.arrays[f"obs/{name}"][i]) for name in buffers.obs):
            found[i] = "repeated, it reached another observation"
        elif _differ(action_mask[i], state.arrays["action_mask"][i]):
            found[i] = "repeated, it reached another action mask"
        elif _differ(buffers.repeated_return[i], state.arrays["total"][i]):
            found[i] = "repeated, it got other rewards"
    return found


def _differ(one: Array, other: Array) -> bool:
    return one.tobytes() != other.tobytes()
