"""The request for the environments of a configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from algorithm.config.loader import LoadedConfig
from algorithm.core.errors import COMMON_BLOCK, UsageError
from algorithm.core.seeding import episode_seeds
from algorithm.env.parameters.config import last_lessons
from algorithm.env.parameters.curricula import ParameterSource
from algorithm.env.request import EnvRequest
from algorithm.env.sources import EnvSource

JOINT = "all"
"""Name in ``critic_observations`` of what all agents observe."""

Purpose = Literal["train", "evaluate"]


def env_request(
    loaded: LoadedConfig,
    purpose: Purpose,
    *,
    source: EnvSource | None = None,
    seed: int | None = None,
    lessons: Mapping[str, str] | None = None,
) -> EnvRequest:
    """Return the configuration's request for one environment in this process.

    source:  an object of Python code in place of the task's environment
    seed:    of the environments, instead of the run's own
    lessons: of evaluations; by default the last one of each curriculum
    Raises UsageError if only some behaviours name what all agents observe.
    """
    config, base = loaded.config, loaded.config.base_config
    joint = {JOINT in each.run.critic_observations for each in (config, *loaded.behaviours.values())}
    if len(joint) > 1:
        raise UsageError(
            f"only some behaviors name {JOINT!r}, what all agents observe",
            where=f"{COMMON_BLOCK}.critic_observations",
            why="it is an observation of every agent, which the policies of the others would see",
            fix=f"name {JOINT!r} for all behaviors, or for none",
        )
    evaluated = last_lessons(config.parameters) if lessons is None else lessons
    return EnvRequest(
        base.env_type,
        source or base.env_name,
        folder=loaded.env_dir,
        env_args=base.env_args or {},
        seed_of=episode_seeds(loaded.seed if seed is None else seed, purpose),
        options=config.reset_config,
        wrappers=tuple(config.wrappers_for(purpose)),
        parameters=ParameterSource(config.parameters, evaluated if purpose == "evaluate" else None),
        infos=base.info_keys,
        interventions=base.interventions,
        control_hz=base.control_hz,
        timeout=base.env_timeout,
        restarts=base.env_restarts,
        unity=base.unity_args,
        pettingzoo=base.pettingzoo_args,
        joint=joint == {True},
        teams=config.self_play.window > 0,
        behaviours=tuple(loaded.behaviours),
        purpose=purpose,
    )
