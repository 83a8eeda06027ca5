"""PPO and A2C as families."""

from __future__ import annotations

from algorithm.on_policy.agent import OnPolicyAgent
from algorithm.on_policy.networks import NETWORKS
from algorithm.roles import Family

FAMILIES = {name: Family(name=name, make_agent=OnPolicyAgent, networks=NETWORKS) for name in ("PPO", "A2C")}
