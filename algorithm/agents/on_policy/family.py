"""PPO, A2C, A3C and ACKTR as families."""

from __future__ import annotations

from algorithm.agents.base import Family
from algorithm.agents.on_policy.acting import make_acting, remote_limits
from algorithm.agents.on_policy.agent import AsyncAgent, OnPolicyAgent
from algorithm.agents.on_policy.family_config import BLOCKS, processes
from algorithm.agents.on_policy.health import WATCHED, make_rules
from algorithm.agents.on_policy.metrics import ACKTR_READOUTS, READOUTS
from algorithm.agents.on_policy.networks import NETWORKS

FAMILIES = {
    name: Family(
        name=name,
        make_agent=AsyncAgent if name == "A3C" else OnPolicyAgent,
        make_acting=None if name in ("A3C", "ACKTR") else make_acting,
        remote_limits=remote_limits,
        networks=NETWORKS,
        health_rules=make_rules,
        watched=WATCHED,
        readouts=ACKTR_READOUTS if name == "ACKTR" else READOUTS,
        always_saved=True,
        processes=processes,
    )
    for name in BLOCKS
}
