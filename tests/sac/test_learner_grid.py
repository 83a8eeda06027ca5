"""Every pair of settings of a better learner: they train, act, are saved, and go on exactly there."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest

from algorithm.agents.config import NnConfig
from algorithm.agents.off_policy.agent import OffPolicyAgent
from algorithm.agents.roles import AgentInputs
from algorithm.agents.sac.config import SacConfig
from algorithm.agents.sac.family import SAC
from algorithm.agents.td3.family import TD3
from algorithm.config.schema import BaseConfig, Config, ReplayConfig
from algorithm.core.spec import AgentSpec
from algorithm.replay.budget import MemoryBudget
from algorithm.runs.logs.metrics import METRICS
from tests.batches import CPU
from tests.extensions.test_grid import (
    ACTIONS,
    ENCODERS,
    OBSERVATIONS,
    act,
    assert_alike,
    continued,
    covering_rows,
    pairs,
    segments,
)

HEADS = {
    "scalar": {},
    "quantile": {"value_head": "quantile", "quantile_num": 5},
    "categorical": {"value_head": "categorical", "categorical_num": 7},
}
NORMS = {
    "none": ({}, {}),
    "layer": ({"norm": "layer"}, {}),
    "residual": ({"block": "residual"}, {"weight_decay": 0.01}),
    "batch": ({"norm": "batch"}, {}),
    "batch_first": ({"norm": "batch_first"}, {"unit_weights": True}),
}
TARGETS = {"target": {}, "no target": {"use_target_network": False}}
CRITICS = {
    "two": {},
    "one": {"ensemble_q_num": 1, "ensemble_q_sample": 1},
    "subset": {"ensemble_q_num": 5, "ensemble_q_sample": 2, "ensemble_q_reduce": "mean"},
}
REPLAYS = {
    "priorities": {"use_add_with_td": True},
    "one step": {"n_step": 1, "use_priority": False, "policy_update_per_step": 2},
    "uncorrected": {"n_step": 4, "use_n_step_is": False},
    "fresh": {"use_replay_buffer": False, "use_priority": False},
    "slow encoder": {"encoder_learning_rate": 1e-4, "use_normalization": False},
}
VARIANTS = {"SAC": SAC, "TD3": TD3}
FACTORS = HEADS, NORMS, TARGETS, CRITICS, ACTIONS, ENCODERS, REPLAYS, VARIANTS
SMALL = {"dense_n": 8, "dense_depth": 1}


def can_be(row):
    """Only a batch norm makes target networks dispensable; TD3 has continuous actions."""
    return (row[2] == "target" or row[1].startswith("batch")) and (row[7] == "SAC" or row[4] == "continuous")


ROWS = covering_rows(FACTORS, can_be)


def make_agent(row, seed):
    head, norm, target, critics, action, encoder, replay, variant = (
        choices[name] for choices, name in zip(FACTORS, row, strict=True)
    )
    spec, action_options = action
    options = {**head, **norm[1], **target, **critics, **action_options, **encoder, **replay}
    nets = {**SMALL, **norm[0]}
    config = Config(
        base_config=BaseConfig(max_step=100),
        replay_config=ReplayConfig(capacity=200),
        sac_config=SacConfig(**{"start_step": 0, "batch_size": 16, **options}),
        nn_config=NnConfig(rep={"dense_n": 8, "dense_depth": 1}, q=nets, policy=nets),
    )
    inputs = AgentInputs(
        AgentSpec(OBSERVATIONS["vector"], spec), config, nn_file=None, behaviour="x", seed=seed, device=CPU,
        memory=MemoryBudget(free=10**9),
    )  # fmt: skip
    return OffPolicyAgent(variant, inputs)


def train(agent, rng):
    """Two updates at least, with data that is new between them."""
    for step in (16, 32, 48):
        for segment in segments(agent, rng, range(10 * step, 10 * step + 6)):
            agent.add(segment)
        agent.learn(step)
    assert agent.learner.updates >= 2 and agent.learner.skipped == 0


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(row, marks=pytest.mark.slow if i % 3 else [], id="-".join(row))
        for i, row in enumerate(ROWS)
    ],
)
def test_it_trains_acts_and_goes_on_exactly_where_it_was_saved(row):
    one, other = make_agent(row, 1), make_agent(row, 2)
    train(one, np.random.default_rng(0))
    metrics = one.metrics(2)
    assert all(np.isfinite(value) for value in metrics.values()) and set(metrics) <= set(METRICS)
    act(one, np.random.default_rng(1))
    continued(one, other)
    batch = one.replay.windows(one.replay.spread(16))
    for _ in range(2):  # a turn of the policy is among them
        for agent in (one, other):
            agent.learner.update(batch)
    assert_alike(one, other)


def test_every_pair_that_can_be_is_there():
    seen = set().union(*map(pairs, ROWS))
    for (i, one), (j, other) in combinations(enumerate(FACTORS), 2):
        missing = {((i, a), (j, b)) for a, b in product(one, other)} - seen
        discrete = {((4, action), (7, "TD3")) for action in ACTIONS if action != "continuous"}
        no_norm = {((1, norm), (2, "no target")) for norm in ("none", "layer", "residual")}
        assert missing <= no_norm | discrete
    assert len(ROWS) <= 60 and len(set(ROWS)) == len(ROWS)
