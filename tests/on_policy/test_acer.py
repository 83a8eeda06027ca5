"""ACER's agent: what it records, its update against autograd, replays, and what it refuses."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from algorithm.agents.on_policy.acer.agent import AcerAgent
from algorithm.agents.on_policy.acer.config import AcerConfig
from algorithm.agents.on_policy.acer.networks import recorded
from algorithm.agents.registry import contradictions, misplaced
from algorithm.config.schema import BaseConfig, Config
from algorithm.core.errors import UsageError
from algorithm.core.spec import ActionSpec, AgentSpec, ObsSpec
from algorithm.nn.distributions import HybridAction
from algorithm.ops.discrete import branch_log_probs
from algorithm.replay.sizing import replay_bytes
from tests.grid.agents import N, make_agent, play
from tests.oracles import retrace_returns

PLAIN = {
    "family": "ACER",
    "action": "discrete",
    "memory": "none",
    "obs": "vector",
    "head": "scalar",
    "norm": "none",
    "targets": "slow",
    "critics": "two",
    "replay": "v-trace",
    "extension": "none",
}


def played(action: str = "discrete", calls: int = 12) -> AcerAgent:
    agent = make_agent({**PLAIN, "action": action}, 1)
    assert isinstance(agent, AcerAgent)
    play(agent, np.random.default_rng(0), calls)
    return agent


@pytest.mark.parametrize("action", ["discrete", "branches", "continuous"])
def test_the_policys_whole_distribution_is_stored(action):
    agent = played(action, calls=3)  # no rollout has been learned from
    assert agent.updates == 0
    batch = agent.replay.windows(agent.replay.spread(8), np.zeros(8, np.int64))
    obs = agent.learner.model.normaliser({name: value[:, 0] for name, value in batch.obs.items()})
    carry = torch.zeros(8, 0)
    tokens = {name: value.unsqueeze(1) for name, value in obs.items()}
    state, _ = agent.learner.model.rep(tokens, batch.prev_action[:, :1], carry, batch.obs_valid[:, :1])
    policy: HybridAction = agent.learner.model.policy(state[:, 0], obs)
    if policy.continuous is not None:
        expected = torch.cat([policy.continuous.mean, policy.continuous.log_std], -1)
    else:
        mask = batch.action_mask[:, 0]
        assert not mask.all()
        expected, probs = branch_log_probs(policy.logits, mask, agent.spec.action.branches)
        assert (probs[batch.action[:, 0] > 0] > 0).all()
    torch.testing.assert_close(batch.behaviour_logp[:, 0], expected)


def test_a_distribution_takes_the_memory_that_is_counted():
    spec = AgentSpec(ObsSpec(("v",), ((3,),), ("float32",)), ActionSpec((5, 4)))
    plain, whole = (replay_bytes(one, 1000, (0,), prioritised=False) for one in (spec, recorded(spec)))
    assert whole - plain == 1000 * 4 * (9 - 1)


def test_an_update_is_the_papers_gradient():
    """φ as a leaf, the trust region on its gradient, then the chain rule by a second backward pass."""
    agent = played()
    learner, own = agent.learner, agent._own
    with torch.no_grad():  # so that the trust region has work to do
        learner._average.flat.data.mul_(0.5)
    batch = agent.replay.windows(agent.replay.spread(6), np.zeros(6, np.int64))
    obs, allowed = learner.model.normaliser(batch.obs), batch.action_mask
    inputs = obs, batch.prev_action, batch.carry, batch.obs_valid
    state, _ = learner.model.rep(*inputs)
    _, probs = branch_log_probs(learner.model.policy(state, obs).logits, allowed, (3,))
    average_rep, average_policy = learner._average.modules
    _, average = branch_log_probs(average_policy(average_rep(*inputs)[0], obs).logits, allowed, (3,))
    q = learner._critics[0](state, state[..., :0])
    value, taken = (q * probs).sum(-1).detach(), batch.action > 0
    ratios = probs[:, :-1].detach() / batch.behaviour_logp.exp()
    trace, q_taken = ((x * taken).sum(-1).detach() for x in (ratios.clamp(max=1), q[:, :-1]))
    reward = batch.reward * learner.return_scale.factor
    columns = reward, batch.terminated, batch.valid, value, q_taken, trace
    returns = retrace_returns(*(x.numpy() for x in columns), gamma=learner._gamma)
    per_window = batch.valid.sum(-1).clamp(min=1) * int(batch.valid.any(-1).sum())
    loss, shortened = torch.zeros(()), 0
    for b, t in batch.valid.nonzero().tolist():
        can, choice = allowed[b, t], int(batch.action[b, t].argmax())
        phi, ratio, gain = probs[b, t].detach(), ratios[b, t], float(returns[b, t] - value[b, t])
        leaf = phi.clone().requires_grad_()
        rest = (1 - own.ratio_max / ratio).clamp(min=0) * phi * (q[b, t].detach() - value[b, t])
        objective = ratio[choice].clamp(max=own.ratio_max) * leaf[choice].log() * gain
        objective = objective + ((rest - own.entropy_coef * leaf) * leaf.log())[can].sum()
        divergence = (average[b, t] * (average[b, t].log() - leaf.log()))[can].sum()
        g, k = (torch.autograd.grad(x, leaf)[0][can] for x in (objective, divergence))
        beyond = float(k @ g) - own.trust_region
        step = g - max(0.0, beyond) / float(k @ k) * k
        error = float(returns[b, t]) - q[b, t, choice]
        terms = own.q_coef * 0.5 * error.square() - (step * probs[b, t][can]).sum()
        loss = loss + terms / per_window[b]
        shortened += beyond > 0
    assert 0 < shortened < int(batch.valid.sum())
    parameters = [p for p in learner.modules().parameters() if p.requires_grad]
    expected = torch.autograd.grad(loss, parameters, allow_unused=True)
    learner.update(batch, drawn=True)
    for parameter, gradient in zip(parameters, expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-4, atol=1e-6)


def test_actions_of_the_policy_are_worth_its_value():
    """Q(s, a) − V(s) of the dueling critic has mean 0 over π, by the draws of many updates."""
    agent = played("continuous")
    learner = agent.learner
    batch = agent.replay.windows(np.repeat(agent.replay.spread(1), 2000), np.zeros(2000, np.int64))
    obs = learner.model.normaliser(batch.obs)
    state, _ = learner.model.rep(obs, batch.prev_action, batch.carry, batch.obs_valid)
    part = learner.model.policy(state, obs).continuous
    z = part.mean + part.log_std.exp() * torch.randn(
        part.mean.shape, generator=torch.Generator().manual_seed(0)
    )
    terms = learner._terms(replace(batch, z=z[:, :-1].detach()))
    excess = (terms.q - terms.own_value)[:, 0].detach()
    assert abs(float(excess.mean())) < 4 * float(excess.std()) / 2000**0.5
    assert float(excess.std()) > 0.01


def test_the_average_policy_follows_at_its_own_pace():
    agent = played()
    learner, decay = agent.learner, agent._own.average_decay
    before, batch = learner._average.flat.data.clone(), agent.replay.windows(agent.replay.spread(4))
    learner.update(batch, drawn=True)
    now = learner._optimiser.flat.data[: len(before)]
    torch.testing.assert_close(learner._average.flat.data, decay * before + (1 - decay) * now)


def test_the_replay_is_learned_from_as_often_as_asked(monkeypatch):
    agent = make_agent(PLAIN, 1)
    drawn = []
    update = agent.learner.update

    def counted(batch, *, drawn: bool):
        calls.append(drawn)
        return update(batch, drawn=drawn)

    calls = drawn
    monkeypatch.setattr(agent.learner, "update", counted)
    play(agent, np.random.default_rng(0), 3)
    assert not calls, "the first rollout is measured, the others are not full"
    play(agent, np.random.default_rng(0), 160)
    of_rollouts = calls.count(False)
    assert of_rollouts == agent._rollouts - 1
    mean = calls.count(True) / of_rollouts
    assert abs(mean - 4.0) < 4 * (4.0 / of_rollouts) ** 0.5, "Poisson: its variance is its mean"
    waits = replace(agent._inputs, config=agent.config.model_copy(update={"acer_config": NEVER}))
    other = AcerAgent(waits)
    play(other, np.random.default_rng(0), 20)
    assert other.updates == other._rollouts - 1


NEVER = AcerConfig(rollout_step=4, capacity=200, start_step=199)


def test_what_is_refused():
    with pytest.raises(UsageError, match="ACER is for discrete actions, or for continuous ones"):
        make_agent({**PLAIN, "action": "hybrid"}, 1)
    assert misplaced("ACER", "replay_config", "capacity")
    assert misplaced("ACER", "sac_config", "replay_ratio") == (
        "it is SAC's, and algorithm is ACER",
        "set acer_config.replay_ratio",
    )
    assert misplaced("ACER", "sac_config", "gamma") is None
    small = Config(
        algorithm="ACER",
        base_config=BaseConfig(n_envs=N),
        acer_config=AcerConfig(capacity=319, rollout_step=20, start_step=10),
    )
    assert [found.keys[0] for found in contradictions(small)] == ["acer_config.capacity"]
