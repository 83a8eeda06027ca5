"""On-policy agents: what enters a rollout, and what becomes of one that is of no use."""

import math

import numpy as np
import pytest
import torch

from algorithm.agents.on_policy.config import contradictions
from algorithm.agents.on_policy.rollout import standardised
from algorithm.agents.sac.config import SacConfig
from algorithm.config.schema import Config
from algorithm.core import StepBatch, UsageError
from tests.lib.callbacks import watch
from tests.lib.on_policy import make, train


def step_of(agent, n, t):
    """The t-th step of n agents of Pendulum, in which nothing ends."""
    drawn = (np.random.default_rng(at).normal(size=(n, 3)).astype(np.float32) for at in (t, t + 1))
    obs, behind = ({"obs": values} for values in drawn)
    none, mask = np.zeros((n, 0), np.float32), np.ones((n, 0), np.bool_)
    out = agent.policy.act(obs, np.zeros((n, 1), np.float32), none, mask)
    return StepBatch(
        streams=np.arange(n),
        start_steps=np.full(n, t),
        obs=obs,
        action_mask=mask,
        carry=none,
        next_obs=behind,
        next_action_mask=mask,
        next_carry=none,
        action=out.action,
        z=out.z,
        behaviour_logp=out.behaviour_logp,
        reward=np.ones(n, np.float32),
        terminated=np.zeros(n, np.bool_),
        truncated=np.zeros(n, np.bool_),
    )


def test_more_agents_than_a_rollout_has_room_for_are_refused_with_the_length_that_has(monkeypatch):
    def play(rollout_step):
        agent, _ = make("Pendulum-v1", n=1, algorithm="A2C", rollout_step=rollout_step)
        learned = []
        watch(monkeypatch, agent.learner, "update", lambda batch, **_: learned.append(int(batch.valid.sum())))
        for t in range(8):
            agent.add_steps(step_of(agent, 100, t))
            agent.learn(100 * (t + 1))
        return sum(learned)

    with pytest.raises(UsageError, match="overwritten before it was learned from") as caught:
        play(5)
    assert "100 agents of 'x' act at once, and there are 148 rows" in caught.value.why
    assert caught.value.fix == "raise rollout_step to 136 or more"
    assert play(136) == 800


@pytest.mark.parametrize("steps", [242, 246, 250, 254])
def test_a_rollout_goes_on_with_more_environments(steps):
    """Also where the ring has been written over, so that a larger one numbers its rows anew."""
    agent, collector = make(n=2, rollout_step=16)
    train(agent, collector, steps)
    more, _ = make(n=3, rollout_step=16)
    more.replay.load_state(agent.replay.state())
    more.load_state(agent.state())
    before, after = (one.replay.chains(np.sort(np.concatenate(one._ring._new))) for one in (agent, more))
    assert len(before.reward) and more._ring._num_new == agent._ring._num_new
    for name in ("obs", "action", "reward", "step"):
        one, other = (getattr(batch, name) for batch in (before, after))
        torch.testing.assert_close(one, other)


def test_a_rollout_that_gives_no_finite_loss_is_counted_and_not_logged(monkeypatch):
    agent, collector = make("Pendulum-v1", n=2)
    train(agent, collector, 64)
    before, update = agent.metrics(64), agent.learner.update
    monkeypatch.setattr(
        agent.learner, "update", lambda batch, **how: update(batch, **how) | {"loss/value": math.inf}
    )
    train(agent, collector, 96)
    found = agent.metrics(96)
    assert found.pop("optim/skipped") == before.pop("optim/skipped") + 1
    assert all(map(math.isfinite, found.values())) and found["loss/value"] == before["loss/value"]


def test_one_transition_keeps_its_advantage():
    assert standardised(torch.tensor([3.0])).tolist() == [3.0]


def test_a_sequence_of_a_memory_is_no_longer_than_a_rollout():
    """So A2C has a memory with its defaults, whose rollouts have five steps."""
    assert not list(contradictions(Config(algorithm="A2C", sac_config=SacConfig(seq_encoder="RNN"))))
    agent, collector = make(algorithm="A2C", sac={"seq_encoder": "RNN"}, rep={"rnn_n": 8}, rollout_step=5)
    train(agent, collector, 40)
    assert agent.updates and dict(agent.rows())["memory"] == "recurrent, sequences of 5 steps"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"sequence_step": 8}, "ppo_config.sequence_step has no effect"),
        ({"sac": {"learning_rate_end": 0.5}}, "learning_rate_end has no effect"),
        ({"rollout_step": 600}, "the first update comes after 1,200"),
        ({"shared": False}, "ppo_config.shared: false has no effect"),
        ({"rollout_step": 500, "sac": {"use_normalization": True}}, None),
        ({"sequence_step": 8, "sac": {"seq_encoder": "RNN"}, "rep": {"rnn_n": 8}}, None),
        ({"shared": False, "env_name": "algorithm.env.toys:ToyCatch-v0"}, None),
    ],
    ids=str,
)
def test_keys_without_an_effect_are_told_and_a_training_that_learns_nothing(options, said):
    notices = make(**options)[0].notices
    assert len(notices) == (said is not None) and all(said in line for line in notices)
