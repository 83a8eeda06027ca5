"""From environment to batch: what an agent learns from is what happened."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from algorithm.config.loader import load_config
from algorithm.core.seeding import episode_seeds
from algorithm.core.spec import DEFAULT_BEHAVIOUR
from algorithm.env.registry import make_vec_env
from algorithm.experience.collector import LocalCollector
from algorithm.replay.budget import MemoryBudget
from tests.batches import sac_agent

SEEDS = episode_seeds(11, "train")
CONFIG = """\
default:
  base_config: {env_type: GYM, env_name: counting}
  nn_config: {q: {dense_n: 8}, policy: {dense_n: 8}}
  sac_config: {batch_size: 32, start_step: 40, n_step: 3}
  replay_config: {capacity: 150}
"""


@pytest.fixture
def agent_and_rollout(tmp_path):
    (tmp_path / "config.yaml").write_text(CONFIG)
    env = make_vec_env("GYM", "tests.toys:Counting-v0", n=3, seed_of=SEEDS)
    env.reset()
    config = load_config(str(tmp_path), seed=1).config
    agent = sac_agent(
        env.specs[DEFAULT_BEHAVIOUR],
        config,
        nn_file=None,
        behaviour="x",
        seed=1,
        device=torch.device("cpu"),
        memory=MemoryBudget(),
    )
    return agent, LocalCollector(env, {DEFAULT_BEHAVIOUR: agent.policy}, {DEFAULT_BEHAVIOUR: agent})


def test_counting_environment_through_training(agent_and_rollout):
    """100 steps of three copies: the ring wraps while the agent learns from it."""
    agent, rollout = agent_and_rollout
    lengths = {}
    for copy in range(3):
        for episode in range(200):
            seed = SEEDS(copy, episode)
            lengths.setdefault(seed % 1000, set()).add((3 + seed % 5, seed % 2 == 0))
    for step in range(1, 101):
        rollout.step()
        agent.learn(3 * step)
        batch = agent.replay.sample() if step % 10 == 0 else None
        if batch is not None:
            check(batch, lengths)
    assert agent.updates == 300 - 40
    assert agent.replay.next_id > 2 * 150


def check(batch, lengths) -> None:
    obs, valid = batch.obs["obs"].numpy(), batch.valid.numpy()
    assert valid[:, 0].all()
    for b, t in zip(*np.nonzero(valid), strict=True):
        (ident, at), (same, after) = obs[b, t], obs[b, t + 1]
        assert ident == same and after == at + 1 and batch.step[b, t] == at
        # the reward is the step that was reached plus the action in the Box [−2, 4]
        assert batch.reward[b, t] == pytest.approx(after + 1.0 + 3.0 * batch.action[b, t, 0].item(), abs=1e-4)
        possible = lengths[int(ident)]
        if batch.terminated[b, t]:
            assert (after, True) in possible
        assert any(after <= length for length, _ in possible)
        if t + 1 < valid.shape[1] and valid[b, t + 1]:
            assert torch.equal(batch.prev_action[b, t + 1], batch.action[b, t])
            assert not batch.terminated[b, t]
        if at == 0:
            assert not batch.prev_action[b, t].any()
