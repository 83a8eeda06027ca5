"""TD3 as a family."""

from __future__ import annotations

from algorithm.actions.parts import ActionParts, NoBranches
from algorithm.agents.health import Rule
from algorithm.agents.off_policy.agent import off_policy_family
from algorithm.agents.off_policy.metrics import WATCHED, critic_rules
from algorithm.agents.off_policy.objective import AlgorithmSpec
from algorithm.agents.td3.config import shared_keys, td3_block
from algorithm.agents.td3.td3 import Deterministic, Td3Objective
from algorithm.core.console import readout
from algorithm.core.spec import ActionSpec
from algorithm.keys.behaviour import BehaviourConfig


def _objective(action: ActionSpec, config: BehaviourConfig) -> Td3Objective:
    return Td3Objective(action, td3_block(config))


def _parts(action: ActionSpec, config: BehaviourConfig, exploring: bool) -> ActionParts:
    return ActionParts(NoBranches(), Deterministic(td3_block(config).exploration_noise, exploring=exploring))


def _rules(config: BehaviourConfig) -> dict[str, Rule]:
    return critic_rules(config, shared_keys(config))


TD3 = AlgorithmSpec(keys=shared_keys, make_objective=_objective, make_parts=_parts)

READOUTS = (
    readout("loss", q="loss/q", policy="loss/policy", gradient="optim/grad_norm"),
    readout("value", Q="value/q_mean", target="value/target", saturation="policy/saturation"),
)

FAMILIES = {
    "TD3": off_policy_family("TD3", TD3, health_rules=_rules, watched=WATCHED, readouts=READOUTS),
}
