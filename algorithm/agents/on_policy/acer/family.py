"""ACER as a family (arXiv 1611.01224)."""

from __future__ import annotations

from functools import partial

from algorithm.agents.base import Family
from algorithm.agents.on_policy.acer.agent import AcerAgent
from algorithm.agents.on_policy.acer.config import acer_block
from algorithm.agents.on_policy.acer.metrics import READOUTS
from algorithm.agents.on_policy.acer.networks import ALL_NETWORKS, networks_of, recorded
from algorithm.agents.on_policy.acting import make_acting, segments_of
from algorithm.agents.on_policy.networks import NETWORKS
from algorithm.agents.roles import RemoteLimits

FAMILIES = {
    "ACER": Family(
        name="ACER",
        make_agent=AcerAgent,
        make_acting=partial(make_acting, spec_of=recorded, networks_of=networks_of),
        remote_limits=lambda config: RemoteLimits(segments_of(acer_block(config).rollout_step)),
        networks={**ALL_NETWORKS, "ModelV": NETWORKS["ModelV"]},
        readouts=READOUTS,
    )
}
