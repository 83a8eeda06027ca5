"""Twin delayed deep deterministic policy gradient as a family (arXiv 1802.09477)."""

from __future__ import annotations

from algorithm.actions.parts import ActionParts, NoBranches
from algorithm.agents.behaviour_config import BehaviourConfig
from algorithm.agents.health import Rule
from algorithm.agents.off_policy.agent import off_policy_family
from algorithm.agents.off_policy.health import WATCHED, critic_rules
from algorithm.agents.off_policy.variant import Heads, Variant
from algorithm.agents.td3.config import shared_keys, td3_block
from algorithm.agents.td3.heads import Deterministic, DeterministicHeads
from algorithm.core.panels import readout
from algorithm.core.spec import ActionSpec


def _heads(action: ActionSpec, config: BehaviourConfig) -> Heads:
    return DeterministicHeads(action, td3_block(config))


def _parts(action: ActionSpec, config: BehaviourConfig, exploring: bool) -> ActionParts:
    return ActionParts(NoBranches(), Deterministic(td3_block(config).exploration_noise, exploring=exploring))


def _rules(config: BehaviourConfig) -> dict[str, Rule]:
    return critic_rules(config, shared_keys(config))


TD3 = Variant(keys=shared_keys, make_heads=_heads, make_parts=_parts)

READOUTS = (
    readout("loss", q="loss/q", policy="loss/policy", gradient="optim/grad_norm"),
    readout("value", Q="value/q_mean", target="value/target", saturation="policy/saturation"),
)

FAMILIES = {
    "TD3": off_policy_family("TD3", TD3, health_rules=_rules, watched=WATCHED, readouts=READOUTS),
}
