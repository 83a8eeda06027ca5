"""Soft Actor-Critic as a family."""

from __future__ import annotations

from algorithm.roles import Family
from algorithm.sac.acting import make_acting
from algorithm.sac.agent import SacAgent
from algorithm.sac.health import WATCHED, make_rules
from algorithm.sac.metrics import READOUTS
from algorithm.sac.model import NETWORKS

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
