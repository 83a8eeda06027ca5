"""ACER's agent: what it records, its update against autograd, replays, and what it refuses."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.distributions import Normal, kl_divergence

from algorithm.agents.on_policy.acer.config import AcerConfig
from algorithm.agents.on_policy.acer.family import AcerAgent
from algorithm.agents.registry import contradictions
from algorithm.config.schema import BaseConfig, Config
from algorithm.core import SequenceBatch
from algorithm.core.errors import ModelError, UsageError
from algorithm.nn.learning.gradients import TrainingMode
from algorithm.nn.protocols import HybridAction
from algorithm.ops.discrete import branch_log_probs
from tests.lib.callbacks import watch
from tests.lib.grid import N, make_agent, play
from tests.lib.oracles import retrace_returns

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
    "demonstrated": "none",
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


def cutting(agent: AcerAgent) -> AcerConfig:
    """Cut ratios off at 0.9, and move the average policy away, so that every term counts."""
    own = agent._keys.model_copy(update={"ratio_max": 0.9, "entropy_coef": 0.05})
    agent.learner._keys = agent.learner._heads._keys = own
    with torch.no_grad():
        agent.learner._average.flat.data.mul_(0.5).add_(0.2)
    return own


def encoded(agent: AcerAgent, batch: SequenceBatch):
    """Return observations, states, and policies of all tokens, by the networks and by the average ones."""
    model, (average_rep, average_policy) = agent.learner.model, agent.learner._average.modules
    obs = model.normaliser(batch.obs)
    inputs = obs, batch.prev_action, batch.carry, batch.obs_valid
    state = model.rep(*inputs)[0]
    return obs, state, model.policy(state, obs), average_policy(average_rep(*inputs)[0], obs)


def returned(learner, batch: SequenceBatch, value, q, trace) -> np.ndarray:
    reward = batch.reward * learner.return_scale.factor
    columns = reward, batch.terminated, batch.valid, value, q, trace
    return retrace_returns(*(x.detach().numpy() for x in columns), gamma=learner._heads._gamma)


def restricted(objective, divergence, leaf, own: AcerConfig, can=slice(None)):
    """Return z of a position, by the gradients of both at φ, and whether the trust region made it shorter."""
    g, k = (torch.autograd.grad(x, leaf, retain_graph=True)[0][can] for x in (objective, divergence))
    beyond = float(k @ g) - own.trust_region
    return g - max(0.0, beyond) / float(k @ k) * k, beyond > 0


def check_update(agent: AcerAgent, batch: SequenceBatch, losses: dict[tuple[int, int], torch.Tensor]) -> None:
    """Compare with the gradient of the mean over windows of the means of these losses of positions."""
    windows = int(batch.valid.any(-1).sum())
    counts = batch.valid.sum(-1).tolist()
    loss = sum(one / (counts[b] * windows) for (b, _), one in losses.items())
    parameters = [p for p in agent.learner.modules().parameters() if p.requires_grad]
    expected = torch.autograd.grad(loss, parameters, allow_unused=True)
    agent.learner.update(batch, drawn=True)
    for parameter, gradient in zip(parameters, expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("action", ["discrete", "branches"])
def test_an_update_of_choices_is_the_papers_gradient(action):
    """φ as a leaf, the trust region on its gradient, then the chain rule by a second backward pass."""
    agent = played(action)
    learner, own, branches = agent.learner, cutting(agent), agent.spec.action.branches
    batch = agent.replay.windows(agent.replay.spread(6), np.zeros(6, np.int64))
    allowed = batch.action_mask
    _, state, policy, average = encoded(agent, batch)
    (_, probs), (_, old) = (branch_log_probs(one.logits, allowed, branches) for one in (policy, average))
    q, number = learner._critics[0](state, state[..., :0]), len(branches)
    parts = torch.split(q * probs, branches, -1)
    values = torch.cat([x.sum(-1, keepdim=True).expand_as(x) for x in parts], -1).detach()
    value, taken = (q * probs).sum(-1).detach() / number, batch.action > 0
    ratios = probs[:, :-1].detach() / batch.behaviour_logp.exp()
    ratio = torch.where(taken, ratios, 1.0).prod(-1)
    q_taken = (q[:, :-1] * taken).sum(-1) / number
    returns = returned(learner, batch, value, q_taken, ratio.clamp(max=1))
    losses, shortened, correction = {}, 0, 0.0
    for b, t in batch.valid.nonzero().tolist():
        can, chosen, phi = allowed[b, t], taken[b, t], probs[b, t].detach()
        gain = float(ratio[b, t].clamp(max=own.ratio_max)) * float(returns[b, t] - value[b, t])
        leaf = phi.clone().requires_grad_()
        rest = (1 - own.ratio_max / ratios[b, t]).clamp(min=0) * phi
        rest = rest * (q[b, t].detach() - values[b, t]) / number
        correction += float(rest.abs().sum())
        objective = gain * leaf[chosen].log().sum()
        objective = objective + ((rest - own.entropy_coef * leaf) * leaf.log())[can].sum()
        divergence = (old[b, t] * (old[b, t].log() - leaf.log()))[can].sum()
        step, cut = restricted(objective, divergence, leaf, own, can)
        error = float(returns[b, t]) - q_taken[b, t]
        losses[b, t] = own.q_coef * 0.5 * error.square() - (step * probs[b, t][can]).sum()
        shortened += cut
    assert 0 < shortened < len(losses) and correction > 0
    check_update(agent, batch, losses)


def test_an_update_of_continuous_actions_is_the_papers_gradient():
    """With Q_opc for the policy, traces ρ^(1/d), one more action for the bias, and the target of V."""
    agent = played("continuous")
    learner, own = agent.learner, cutting(agent)
    batch = agent.replay.windows(agent.replay.spread(6), np.zeros(6, np.int64))
    obs, state, policy, average = encoded(agent, batch)
    advantages, values = learner._critics
    learner._generator.manual_seed(3)
    noise = torch.randn((6, *batch.z.shape), generator=torch.Generator().manual_seed(3))
    parts = [Normal(one.continuous.mean, one.continuous.log_std.exp()) for one in (policy, average)]
    mean, std = (x[:, :-1].detach() for x in (parts[0].loc, parts[0].scale))
    drawn = mean + std * noise

    def advantage(z):
        return advantages(state[:, :-1], z.clamp(-1, 1)).squeeze(-1)

    value = values(state, obs)
    baseline = torch.stack([advantage(z) for z in drawn[:5]]).mean(0)
    q, q_other = (value[:, :-1] + advantage(z) - baseline for z in (batch.z, drawn[5]))
    acted = Normal(batch.behaviour_logp[..., :2], batch.behaviour_logp[..., 2:].exp())
    ratio, ratio_other = (
        (Normal(mean, std).log_prob(z) - acted.log_prob(z)).sum(-1).exp() for z in (batch.z, drawn[5])
    )
    target = returned(learner, batch, value, q, ratio.sqrt().clamp(max=1))
    whole = returned(learner, batch, value, q, torch.ones_like(ratio))
    losses, shortened = {}, 0
    for b, t in batch.valid.nonzero().tolist():
        here = float(value[b, t].detach())
        leaf = torch.cat([mean[b, t], std[b, t].log()]).requires_grad_()
        own_part = Normal(leaf[:2], leaf[2:].exp())
        gain = float(ratio[b, t].clamp(max=own.ratio_max)) * (float(whole[b, t]) - here)
        rest = max(0.0, 1 - own.ratio_max / float(ratio_other[b, t])) * (float(q_other[b, t].detach()) - here)
        objective = gain * own_part.log_prob(batch.z[b, t]).sum()
        objective = objective + rest * own_part.log_prob(drawn[5, b, t]).sum()
        objective = objective + own.entropy_coef * own_part.entropy().sum()
        before = Normal(parts[1].loc[b, t].detach(), parts[1].scale[b, t].detach())
        step, cut = restricted(objective, kl_divergence(before, own_part).sum(), leaf, own)
        error = float(target[b, t]) - q[b, t]
        phi = torch.cat([parts[0].loc[b, t], policy.continuous.log_std[b, t]])
        of_value = min(1.0, float(ratio[b, t])) * error.detach() * value[b, t]
        losses[b, t] = own.q_coef * (0.5 * error.square() - of_value) - (step * phi).sum()
        shortened += cut
    assert 0 < shortened < len(losses)
    check_update(agent, batch, losses)


def test_the_average_policy_follows_at_its_own_pace():
    agent = played()
    learner, decay = agent.learner, cutting(agent).average_decay
    before, batch = learner._average.flat.data.clone(), agent.replay.windows(agent.replay.spread(4))
    learner.update(batch, drawn=True)
    now = learner._optimiser.flat.data[: len(before)]
    torch.testing.assert_close(learner._average.flat.data, decay * before + (1 - decay) * now)


def test_the_replay_is_learned_from_as_often_as_asked(monkeypatch):
    agent = make_agent(PLAIN, 1)
    calls: list[bool] = []
    watch(monkeypatch, agent.learner, "update", lambda _, drawn, **__: calls.append(drawn))
    play(agent, np.random.default_rng(0), 3)
    assert not calls, "no rollout is full"
    play(agent, np.random.default_rng(0), 160)
    of_rollouts = calls.count(False)
    assert of_rollouts == agent._rollouts
    mean = calls.count(True) / of_rollouts
    assert abs(mean - 4.0) < 4 * (4.0 / of_rollouts) ** 0.5, "Poisson: its variance is its mean"


def test_what_is_refused():
    with pytest.raises(UsageError, match="ACER has one horizon for all rewards"):
        make_agent({**PLAIN, "extension": "GAIL", "horizon": "two"}, 1)
    with pytest.raises(UsageError, match="ACER supports discrete or continuous actions, not both"):
        make_agent({**PLAIN, "action": "hybrid"}, 1)
    small = Config(
        algorithm="ACER",
        base_config=BaseConfig(n_envs=N),
        acer_config=AcerConfig(capacity=319, rollout_step=20, start_step=10),
    )
    assert [found.keys[0] for found in contradictions(small)] == ["acer_config.capacity"]
    with pytest.raises(UsageError, match="--disable_sample"):
        AcerAgent(replace(make_agent(PLAIN, 1).inputs, greedy=True))


def test_other_networks_begin_with_averages_equal_to_them():
    agent, other = played(), make_agent(PLAIN, 2)
    model = {name: value.clone() for name, value in agent.learner.tensors()["model"].items()}
    other.begin_with(model, None)
    averaged = other.learner._average.flat.data
    assert torch.equal(averaged, other.learner._optimiser.flat.data[: len(averaged)])


@pytest.mark.parametrize(("max_step", "factor"), [(1000, 0.827254), (-1, 1.0)])
def test_the_learning_rate_falls_until_the_end_of_the_run(max_step, factor):
    """With 600 of 1,000 steps left: ½ + ½ · (1 − cos .6π) / 2 = ½ + ½ · .65451."""
    inputs = make_agent(PLAIN, 1).inputs
    run = inputs.config.run.model_copy(update={"learning_rate_schedule": "cosine", "learning_rate_end": 0.5})
    ends = {"base_config": inputs.config.base_config.model_copy(update={"max_step": max_step})}
    agent = AcerAgent(replace(inputs, config=inputs.config.model_copy(update={"sac_config": run, **ends})))
    play(agent, np.random.default_rng(0), 100)
    assert agent.learner._optimiser.factor == pytest.approx(factor)


def test_a_policy_that_learns_with_other_probabilities_is_an_error():
    agent = make_agent(PLAIN, 1)
    agent.learner.model.policy.net.append(torch.nn.Dropout(0.5))
    agent.learner._training_mode = TrainingMode([agent.learner.model.policy])
    with pytest.raises(ModelError, match="different probabilities in learning"):
        play(agent, np.random.default_rng(0), 24)
