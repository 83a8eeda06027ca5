"""Soft Actor-Critic as a family."""

from __future__ import annotations

from algorithm.agents.roles import Family
from algorithm.agents.sac.acting import make_acting
from algorithm.agents.sac.agent import SacAgent
from algorithm.agents.sac.health import WATCHED, make_rules
from algorithm.agents.sac.metrics import READOUTS
from algorithm.agents.sac.model import NETWORKS

FAMILIES = {
    "SAC": Family(
        name="SAC",
        make_agent=SacAgent,
        make_acting=make_acting,
        networks=NETWORKS,
        health_rules=make_rules,
        watched=WATCHED,
        readouts=READOUTS,
    )
}
