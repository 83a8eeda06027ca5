"""Soft Actor-Critic as a family."""

from __future__ import annotations

from algorithm.actions.parts import ActionParts, make_parts
from algorithm.agents.off_policy.agent import off_policy_family
from algorithm.agents.off_policy.objective import AlgorithmSpec
from algorithm.agents.sac.config import sac_keys
from algorithm.agents.sac.metrics import READOUTS, WATCHED, make_rules
from algorithm.agents.sac.sac import SacObjective
from algorithm.core.spec import ActionSpec
from algorithm.keys.behaviour import BehaviourConfig


def _objective(action: ActionSpec, config: BehaviourConfig) -> SacObjective:
    return SacObjective(action, sac_keys(config))


def _parts(action: ActionSpec, config: BehaviourConfig, exploring: bool) -> ActionParts:
    keys = sac_keys(config)
    epsilon = keys.discrete_dqn_epsilon if exploring else 0.0
    return make_parts(action, greedy_branches=keys.discrete_dqn_like, epsilon=epsilon)


SAC = AlgorithmSpec(keys=sac_keys, make_objective=_objective, make_parts=_parts)

FAMILIES = {
    "SAC": off_policy_family("SAC", SAC, health_rules=make_rules, watched=WATCHED, readouts=READOUTS),
}
