"""Repetition of open episodes on resume: their actions and rewards, and the comparison with a saved state."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from algorithm.core.data import State
from algorithm.core.spec import ActionSpec, AgentSpec, ObsSpec
from algorithm.core.steps import Bool, Double, Float
from algorithm.env.pool.step_buffers import StepBuffers


class ActionHistory:
    """Flat actions and sum of rewards of the open episodes of ``n`` sub-environments, for a resume.

    width: A, of a flat action
    """

    def __init__(self, n: int, width: int) -> None:
        self._width = width
        self._actions = [array("f") for _ in range(n)]  # four bytes a number, however long an episode is
        self._total: Double = np.zeros(n)

    def record(self, action: Float) -> None:
        """Record the actions of a step, [N, A]."""
        for done, row in zip(self._actions, action, strict=True):
            done.frombytes(row.tobytes())

    def record_reward(self, reward: Double) -> None:
        """Record the rewards of that step, [N]."""
        self._total += reward

    def begin_episode(self, env: int, actions: Float | None = None, total: float = 0.0) -> None:
        """Begin an episode in place of the open one; after a repetition with actions [L, A] and rewards."""
        self._actions[env] = array("f", b"" if actions is None else actions.tobytes())
        self._total[env] = total

    def length(self, env: int) -> int:
        """Return the steps of the open episode."""
        return len(self._actions[env]) // self._width

    def actions(self, env: int) -> Float:
        """Return the actions of the open episode, [L, A]."""
        return np.array(self._actions[env], np.float32).reshape(-1, self._width)

    def total_reward(self, env: int) -> float:
        """Return the sum of rewards of the open episode, added in order in double precision."""
        return float(self._total[env])


def spec_as_json(spec: AgentSpec) -> dict[str, Any]:
    """Return the spaces as JSON, equal only for the same spaces."""
    obs, action = spec.obs, spec.action
    more = zip(obs.categories, obs.stacks, strict=True)
    return {
        "obs": [[name, list(shape), dtype] for name, shape, dtype in obs.items()],
        "choices_and_stacks": [[list(counts), stack] for counts, stack in more],
        "ranges": [span and list(span) for span in obs.ranges],
        "branches": list(action.branches),
        "continuous": action.continuous,
    }


def specs_as_json(specs: Mapping[str, AgentSpec]) -> dict[str, dict[str, Any]]:
    """Return the spaces of each behaviour as JSON for a run's manifest, with actions in words."""
    return {
        name: {
            **spec_as_json(spec),
            "action": f"{spec.action}",
            **({"axes": list(spec.obs.axes)} if any(spec.obs.axes) else {}),
        }
        for name, spec in specs.items()
    }


def spec_from_json(spaces: Mapping[str, Any]) -> AgentSpec:
    """Return the spec from its entry of :func:`specs_as_json`. Raises KeyError, TypeError, ValueError."""
    names, shapes, dtypes = zip(*spaces["obs"], strict=True)
    categories, stacks = zip(*spaces["choices_and_stacks"], strict=True)
    obs = ObsSpec(
        names,
        tuple(map(tuple, shapes)),
        dtypes,
        tuple(map(tuple, categories)),
        stacks,
        tuple(spaces.get("axes", ())),
        tuple(span and tuple(span) for span in spaces["ranges"]),
    )
    return AgentSpec(
        obs, ActionSpec(tuple(spaces["branches"]), spaces["continuous"], spaces.get("action", ""))
    )


def specs_from_json(spaces: object) -> dict[str, AgentSpec]:
    """Return the specs by behaviour from :func:`specs_as_json`; none if an older version recorded none.

    Raises ValueError for damaged data.
    """
    try:
        return (
            {name: spec_from_json(entry) for name, entry in spaces.items()}
            if isinstance(spaces, dict)
            else {}
        )
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
    """Return sub-environment -> difference, for those that a repetition did not bring to the saved state.

    buffers:     after the episodes were repeated
    action_mask: the current one, [N, ΣN]
    Numbers are compared as bits: NaN equals itself, and 0 is not −0.
    """
    present = {f"obs/{name}": value for name, value in buffers.obs.items()}
    present |= {"action_mask": action_mask, "total": buffers.repeated_return}
    differences: dict[int, str] = {}
    for i in range(len(buffers.seed)):
        if buffers.terminated[i] or buffers.truncated[i]:
            differences[i] = (
                f"repeated, it ended after {buffers.repeated_steps[i]} of {state.arrays['length'][i]} steps"
            )
        elif any(now[i].tobytes() != state.arrays[name][i].tobytes() for name, now in present.items()):
            differences[i] = "repeated, it reached another observation, mask or return"
    return differences
