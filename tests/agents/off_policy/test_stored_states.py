"""An agent with memory from the first random step on: what of its carries is stored, refreshed, measured."""

import numpy as np
import pytest
import torch

from algorithm.keys.signals import NnConfig
from tests.agents.off_policy.test_agent import agent_and_rollout, train

RNN = {"seq_encoder": "RNN", "burn_in_step": 3, "learn_step": 4, "n_step": 2}
REP = {"RNN": {"dense_n": 8, "rnn_n": 8}, "ATTN": {"dense_n": 8, "attn_n": 8}}


@pytest.fixture
def make(monkeypatch):
    def make(**options):
        sizes = NnConfig(rep=REP[options["seq_encoder"]], q={"dense_n": 8}, policy={"dense_n": 8})
        monkeypatch.setattr("tests.agents.off_policy.test_agent.SMALL", sizes)
        return agent_and_rollout(**{"use_normalization": False, **options})

    return make


def every_window(agent):
    return agent.replay.windows(agent.replay.spread(10**6))


def recomputed(agent, batch):
    return torch.cat([batch.carry.unsqueeze(1), agent.learner.encode(batch).states.carry[:, :-1]], 1)


def test_random_steps_are_remembered_as_if_the_policy_had_taken_them(make):
    agent, rollout = make(**RNN, start_step=1000)
    while rollout.steps < 60:
        rollout.step()
    batch = every_window(agent)
    stored = torch.from_numpy(agent.replay.carries(batch.ids.numpy()))
    exists = batch.obs_valid
    torch.testing.assert_close(recomputed(agent, batch)[exists], stored[exists], atol=1e-6, rtol=1e-5)
    begins = batch.step == 0
    assert not stored[begins & exists].any() and stored[~begins & exists].flatten(1).any(1).all()


@pytest.mark.parametrize("refresh", [False, True])
def test_only_refreshed_carries_follow_the_encoder(make, refresh):
    agent, rollout = make(**RNN, refresh_carry=refresh, learning_rate=0.01)
    train(agent, rollout, 40)
    batch = every_window(agent)
    before = agent.replay.carries(batch.ids.numpy())
    sampled = []
    sample = agent.replay.sample
    agent.replay.sample = lambda: sampled.append(sample()) or sampled[-1]
    rollout.step()
    agent.learn(rollout.steps)
    after = agent.replay.carries(batch.ids.numpy())
    touched = np.isin(batch.ids.numpy(), np.concatenate([b.ids.numpy().ravel() for b in sampled]))
    begins = batch.step.numpy() == 0
    changed = (before != after).reshape(*touched.shape, -1).any(-1)
    assert not changed[~touched | begins].any()
    assert changed.any() == refresh
