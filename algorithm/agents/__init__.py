"""Parts of an algorithm of one's own: a family, its agents, learner and policies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from algorithm.core.lazy import lazy, of_modules

if TYPE_CHECKING:
    from algorithm.agents.base import Agent, Family
    from algorithm.agents.behaviour_policy import MemorylessPolicy
    from algorithm.agents.learner import Learner
    from algorithm.agents.off_policy.agent import off_policy_family
    from algorithm.agents.off_policy.objective import AlgorithmSpec, Objective
    from algorithm.agents.roles import Acting, ActingInputs, AgentInputs, ExploringPolicy, SamplingPolicy
    from algorithm.keys.behaviour import BehaviourConfig
else:
    __getattr__, __dir__ = lazy(
        __name__,
        of_modules(
            {
                "algorithm.agents.base": "Agent Family",
                "algorithm.keys.behaviour": "BehaviourConfig",
                "algorithm.agents.behaviour_policy": "MemorylessPolicy",
                "algorithm.agents.learner": "Learner",
                "algorithm.agents.off_policy.agent": "off_policy_family",
                "algorithm.agents.off_policy.objective": "AlgorithmSpec Objective",
                "algorithm.agents.roles": "Acting ActingInputs AgentInputs ExploringPolicy SamplingPolicy",
            },
        ),
    )

__all__ = [
    "Acting",
    "ActingInputs",
    "Agent",
    "AgentInputs",
    "AlgorithmSpec",
    "BehaviourConfig",
    "ExploringPolicy",
    "Family",
    "Learner",
    "MemorylessPolicy",
    "Objective",
    "SamplingPolicy",
    "off_policy_family",
]
