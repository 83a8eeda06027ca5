"""Random steps to fill a replay with. Without torch: who sends them are many processes."""

from __future__ import annotations

from typing import Any

import numpy as np

from algorithm.core.data import DemoEpisode, Demonstrations, Segment
from algorithm.core.spec import ActionSpec, AgentSpec, ObsSpec


def make_spec(*shape: int, action: int = 0, branches: tuple[int, ...] = (), stacked: int = 1) -> AgentSpec:
    """One observation, bytes if it is an image. stacked: how many frames of it are stored as one."""
    dtype = "uint8" if len(shape) == 3 else "float32"
    return AgentSpec(ObsSpec(("obs",), (shape,), (dtype,), stacks=(stacked,)), ActionSpec(branches, action))


def make_segment(
    spec: AgentSpec,
    rng: np.random.Generator,
    length: int,
    *,
    start: int = 0,
    last: bool = True,
    carry: tuple[int, ...] = (0,),
    **changes: Any,
) -> Segment:
    """Random steps of one stream; ``last`` says whether they end an episode."""
    (shape,), (dtype,) = spec.obs.shapes, spec.obs.dtypes
    mask = spec.action.all_allowed(length + 1)
    action, z, logp = spec.action.random(rng, mask[:-1])
    obs: Any = rng.standard_normal((length + 1, *shape), np.float32)
    if dtype == "uint8":  # a stack moves on by one frame a step
        frames = rng.integers(256, size=(length + shape[0] + 1, *shape[1:]), dtype=np.uint8)
        obs = np.stack([frames[t : t + shape[0]] for t in range(length + 1)])
    values = {
        "stream": 0,
        "start_step": start,
        "obs": {"obs": obs},
        "action_mask": mask,
        "carry": rng.random((length + 1, *carry), np.float32),
        "action": action,
        "z": z,
        "behaviour_logp": logp,
        "reward": rng.standard_normal(length, np.float32),
        "terminated": np.zeros(length, np.bool_),
        "truncated": (np.arange(length) == length - 1) & last,
    }
    return Segment(**{**values, **changes})


def make_demonstrations(
    spec: AgentSpec, rng: np.random.Generator, *, episodes: int, length: int
) -> Demonstrations:
    """Episodes of random steps."""
    made = [make_segment(spec, rng, length) for _ in range(episodes)]
    return Demonstrations(
        episodes=[
            DemoEpisode(
                obs=one.obs,
                action_mask=one.action_mask,
                action=one.action,
                reward=one.reward,
                terminated=False,
            )
            for one in made
        ],
        digests={"random": "0" * 64},
    )
