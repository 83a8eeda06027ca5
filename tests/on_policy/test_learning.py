"""Updates from rollouts: what is learned from is what was done, once, with the probabilities it had."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import numpy as np
import pytest
import torch

from algorithm.agents.on_policy.learner import _entropies
from algorithm.agents.on_policy.rollout import Rollout
from algorithm.core.errors import ModelError, UsageError
from algorithm.nn.distributions import HybridAction, TanhNormal
from algorithm.nn.learning.optimiser import FlatAdam, FlatRms
from algorithm.ops.discrete import branch_log_probs
from algorithm.replay.budget import MemoryBudget
from tests.on_policy import agents
from tests.on_policy.agents import make, train, weights

KINDS = {
    "discrete": ("CartPole-v1", {}),
    "continuous": ("Pendulum-v1", {}),
    "hybrid": ("algorithm.env.toys:ToyHybrid-v0", {}),
    "image": ("algorithm.env.toys:ToyCatch-v0", {}),
    "gru": ("CartPole-v1", {"sac": {"seq_encoder": "RNN"}, "rep": {"rnn_n": 8}, "sequence_step": 5}),
    "lstm": (
        "Pendulum-v1",
        {"sac": {"seq_encoder": "RNN"}, "rep": {"rnn_n": 8, "rnn": "lstm"}, "sequence_step": 5},
    ),
    "attention": (
        "CartPole-v1",
        {"sac": {"seq_encoder": "ATTN", "burn_in_step": 4}, "rep": {"attn_n": 8}, "sequence_step": 5},
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_before_the_first_update_every_ratio_is_1(kind, monkeypatch):
    """Also in rollouts that begin in the middle of an episode, and over several of them."""
    env_name, options = KINDS[kind]
    agent, collector = make(env_name, 3, num_epoch=1, **options)
    seen = []
    epoch, evaluate = agent.learner._epoch, agent.learner._evaluate

    def begin(rollout, sums, *, checked):
        log_ratio, *_ = evaluate(rollout.part(torch.arange(len(rollout))))
        seen.append(float(log_ratio.detach().abs().max()))
        assert checked and (rollout.weight == 1).all()
        return epoch(rollout, sums, checked=True)

    monkeypatch.setattr(agent.learner, "_epoch", begin)
    train(agent, collector, 200)
    assert len(seen) >= 4 and max(seen) < 1e-5


@pytest.mark.parametrize("kind", KINDS)
def test_each_transition_is_learned_from_once(kind, monkeypatch):
    env_name, options = KINDS[kind]
    agent, collector = make(env_name, 3, num_epoch=1, **options)
    stored, learned = [], []
    add_steps, update = agent.replay.add_steps, agent.learner.update

    def added(steps):
        ids = add_steps(steps)
        stored.extend(ids.tolist())
        return ids

    def updated(batch, *, current):
        learned.extend(batch.ids[:, agent._ring.burn_in : -1][batch.valid[:, agent._ring.burn_in :]].tolist())
        assert sorted(learned) == sorted(stored)
        return update(batch, current=current)

    monkeypatch.setattr(agent.replay, "add_steps", added)
    monkeypatch.setattr(agent.learner, "update", updated)
    train(agent, collector, 300)
    assert len(learned) > 240


def test_ppo_with_one_plain_update_is_a2c(monkeypatch):
    """arXiv 2205.09123, with the same optimiser."""
    options = {"rollout_step": 8, "gae_lambda": 0.9, "entropy_coef": 0.01, "learning_rate": 1e-3}
    ppo, of_ppo = make(num_epoch=1, num_minibatch=1, clip=1e9, normalise_advantage="none", **options)
    a2c, of_a2c = make(algorithm="A2C", **options)
    flat = a2c.learner._optimiser.flat
    monkeypatch.setattr(a2c.learner, "_optimiser", FlatAdam.__new__(FlatAdam))
    vars(a2c.learner._optimiser).update(vars(make(algorithm="PPO")[0].learner._optimiser))
    a2c.learner._optimiser.flat = flat
    a2c.learner._optimiser.learning_rate = 1e-3
    train(ppo, of_ppo, 200)
    train(a2c, of_a2c, 200)
    other = weights(a2c)
    for name, value in weights(ppo).items():
        torch.testing.assert_close(value, other[name], rtol=0, atol=1e-6)


def test_an_update_is_that_of_a_plain_loop():
    """CleanRL's ppo.py in plain torch: the same rollout, networks and order of minibatches."""
    agent, collector = make("Pendulum-v1", 2, rollout_step=32, num_epoch=3, entropy_coef=0.01, clip_value=0.2)
    while agent._ring._num_new < 64:
        collector.step()
    batch = agent.replay.chains(np.sort(np.concatenate(agent._ring._new)))
    own, learner = agent._own, agent.learner
    policy, v = learner.model.policy, learner._v
    parameters = [*policy.parameters(), *v.parameters()]
    before = [p.detach().clone() for p in parameters]
    order = torch.Generator()
    order.set_state(learner._generator.get_state())
    learner.update(batch)
    found = [p.detach().clone() for p in parameters]
    for p, value in zip(parameters, before, strict=True):
        p.data.copy_(value)

    obs, following = batch.obs["obs"][:, 0], batch.obs["obs"][:, 1]
    ids, z, mu = batch.ids.numpy(), batch.z[:, 0], batch.behaviour_logp[:, 0, 0]
    with torch.no_grad():
        old, after = v(obs, {}), v(following, {})
    delta = batch.reward[:, 0] + 0.99 * after * ~batch.terminated[:, 0] - old
    advantage, row_of = delta.double().clone(), {one: i for i, one in enumerate(ids[:, 0])}
    for i in reversed(range(len(ids))):
        if ids[i, 1] in row_of:
            advantage[i] += 0.99 * 0.95 * advantage[row_of[ids[i, 1]]]
    target, advantage = (advantage + old).float(), advantage.float()
    adam = torch.optim.Adam(parameters, lr=own.learning_rate, eps=1e-5)
    for _ in range(3):
        for rows in torch.randperm(64, generator=order).tensor_split(4):
            d = policy(obs[rows], {}).continuous
            normal = torch.distributions.Normal(d.mean, d.log_std.exp())
            ratio = (normal.log_prob(z[rows]).sum(-1) - mu[rows]).exp()
            a = (advantage[rows] - advantage[rows].mean()) / (advantage[rows].std() + 1e-8)
            loss = torch.max(-a * ratio, -a * ratio.clamp(0.8, 1.2)).mean()
            value = v(obs[rows], {})
            held = old[rows] + (value - old[rows]).clamp(-0.2, 0.2)
            error = torch.max((value - target[rows]) ** 2, (held - target[rows]) ** 2).mean()
            loss = loss + 0.5 * error - 0.01 * normal.entropy().sum(-1).mean()
            adam.zero_grad()
            for p in parameters:
                p.grad = torch.zeros_like(p)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(parameters, 0.5)
            adam.step()
    for mine, plain in zip(found, parameters, strict=True):
        torch.testing.assert_close(mine, plain.detach(), rtol=0, atol=1e-5)


@pytest.mark.parametrize("inside", [False, True])
def test_rmsprop_is_that_of_torch_and_skips_what_is_not_finite(inside):
    module = torch.nn.Linear(3, 2)
    plain = torch.nn.Linear(3, 2)
    plain.load_state_dict(module.state_dict())
    mine = FlatRms([module], 0.01, decay=0.9, epsilon=1e-3, inside=inside)
    theirs = torch.optim.RMSprop(plain.parameters(), lr=0.01, alpha=0.9, eps=1e-3)
    square = [torch.ones_like(p) for p in plain.parameters()]
    for k in range(5):
        x = torch.full((1, 3), float(k + 1))
        mine.step(module(x).square().sum())
        plain.zero_grad()
        plain(x).square().sum().backward()
        if not inside:
            theirs.step()
        for p, s in zip(plain.parameters(), square, strict=True):
            if inside:
                s.mul_(0.9).add_(0.1 * p.grad**2)
                p.data.sub_(0.01 * p.grad / (s + 1e-3).sqrt())
        torch.testing.assert_close(module.weight, plain.weight)
    kept, moments = module.weight.clone(), mine.tensors()["square_avg"].clone()
    mine.step(module(torch.full((1, 3), math.nan)).sum())
    assert torch.equal(module.weight, kept) and torch.equal(mine.tensors()["square_avg"], moments)
    assert int(mine.skipped) == 1


def test_a_truncated_episode_counts_on_the_value_of_its_last_observation():
    agent, collector = make("Pendulum-v1", 1, rollout_step=250)
    while agent._ring._num_new < 250:  # an episode ends as truncated after 200 steps
        collector.step()
    batch = agent.replay.chains(np.sort(np.concatenate(agent._ring._new)))
    value = agent.learner._values(batch)
    rollout = Rollout(batch, 0, value)
    rollout.estimate(torch.zeros(250, 1), reward_scale=1.0, gamma=0.9, trace_decay=0.0)
    last = int(batch.step[:, 0].argmax())
    expected = batch.reward[last, 0] + 0.9 * value[last, 1] - value[last, 0]
    assert rollout.advantage[last, 0].item() == pytest.approx(expected.item(), rel=1e-5)


def test_networks_that_forget_while_learning_are_named():
    agent, collector = make("CartPole-v1", 2)
    agent.learner.model.policy.net.append(torch.nn.Dropout(0.5))
    with pytest.raises(ModelError, match="other probabilities while it learns") as told:
        train(agent, collector, 200)
    assert "dropout" in str(told.value)


@pytest.mark.parametrize("algorithm", ["PPO", "A2C"])
def test_a_ring_that_does_not_fit_says_which_rollout_would(algorithm, monkeypatch):
    monkeypatch.setattr(agents, "MemoryBudget", lambda: MemoryBudget(2**20))
    with pytest.raises(UsageError) as caught:
        make("CartPole-v1", 2, algorithm=algorithm, rollout_step=100_000)
    block = f"{algorithm.lower()}_config"
    assert caught.value.where == f"{block}.rollout_step of x"
    found = re.match(rf"set {block}.rollout_step to (\d+) or less", caught.value.fix)
    make("CartPole-v1", 2, algorithm=algorithm, rollout_step=int(found[1]))


def test_target_kl_ends_the_epochs():
    agent, collector = make("CartPole-v1", 2, learning_rate=0.1, num_epoch=10, target_kl=1e-4)
    train(agent, collector, 40)
    assert agent.updates < 10 and agent.metrics(40)["ppo/epochs_done"] < 2


def test_a_normaliser_is_frozen_while_a_rollout_is_made_and_the_first_one_only_measured():
    agent, collector = make("Pendulum-v1", 2, sac={"use_normalization": True})
    normaliser = agent.learner.model.normaliser
    train(agent, collector, 30)
    assert normaliser.count == 0
    train(agent, collector, 32)
    assert normaliser.count == 32 and agent.updates == 0
    shift = normaliser.shift.clone()
    train(agent, collector, 62)
    assert torch.equal(normaliser.shift, shift)
    train(agent, collector, 64)
    assert agent.updates == 40 and not torch.equal(normaliser.shift, shift)


def test_clip_and_learning_rate_fall():
    agent, collector = make(
        "Pendulum-v1", 2, clip_schedule="linear", sac={"learning_rate_schedule": "linear"}
    )
    train(agent, collector, 512)
    assert agent.learner._clip_factor == pytest.approx(1 - 512 / 1000)
    assert agent.learner._optimiser.factor == pytest.approx(1 - 512 / 1000)


def test_the_entropy_is_a_sum_over_allowed_choices_branches_and_components():
    agent, _ = make("algorithm.env.toys:ToyHybrid-v0", 2)
    logits, mean, log_std = torch.randn(5, 3), torch.randn(5, 1), torch.randn(5, 1)
    mask = torch.tensor([[True, False, True]] * 5)
    policy = HybridAction(TanhNormal(mean, log_std), logits)
    entropies = _entropies(policy, branch_log_probs(logits, mask, (3,)))
    choices = torch.distributions.Categorical(logits=logits.masked_fill(~mask, -torch.inf))
    allowed = torch.distributions.Categorical(logits=logits[:, [0, 2]])
    torch.testing.assert_close(choices.probs[:, [0, 2]], allowed.probs)
    number = torch.distributions.Normal(mean, log_std.exp()).entropy().sum(-1)
    torch.testing.assert_close(entropies, {"c": number, "d": allowed.entropy()})
    widths = agent.learner._widths({name: entropy.mean() for name, entropy in entropies.items()})
    assert widths["policy/std"].item() == pytest.approx(log_std.mean().exp().item())
    assert widths["policy/entropy_share"].item() == pytest.approx(allowed.entropy().mean() / math.log(3.0))


def from_older_networks(agent, collector):
    """Fill a rollout, then let the policy move on; return the rollout."""
    while agent._ring._num_new < agent._ring.size:
        collector.step()
    with torch.no_grad():
        agent.learner.model.policy.head.discrete.bias[0] += 1.0
    return agent.replay.chains(np.sort(np.concatenate(agent._ring._new)))


@pytest.mark.parametrize("algorithm", ["PPO", "A2C"])
def test_what_older_networks_did_is_weighed(algorithm, monkeypatch):
    """V-trace weighs by min(1, π/μ), and the ratio is to the policy before the update."""
    agent, collector = make("CartPole-v1", 2, algorithm=algorithm, rollout_step=32)
    batch = from_older_networks(agent, collector)
    learner, seen = agent.learner, []
    monkeypatch.setattr(learner, "_epoch", lambda rollout, sums, *, checked: seen.append((rollout, checked)))
    learner.update(batch, current=False)
    (rollout, checked), at = seen[0], batch.valid
    with torch.no_grad():
        state, _ = learner.model.rep(batch.obs, batch.prev_action, batch.carry, batch.obs_valid)
        logits = learner.model.policy(state[:, :-1][at], {}).logits
    log_pi = torch.log_softmax(logits, -1)[batch.action[at].bool()]
    ratio = (log_pi - batch.behaviour_logp[at][:, 0]).exp()
    torch.testing.assert_close(rollout.weight[at], ratio.clamp(max=1.0))
    assert not checked and 0.3 < ratio.min() < 0.95 < 1.05 < ratio.max()
    now, *_ = learner._evaluate(rollout.part(torch.arange(len(rollout))))
    assert now.detach().abs().max() < 1e-5


def test_without_v_trace_the_ratio_is_to_the_policy_that_acted(monkeypatch):
    agent, collector = make("CartPole-v1", 2, rollout_step=32, use_vtrace=False)
    batch = from_older_networks(agent, collector)
    seen = []
    monkeypatch.setattr(agent.learner, "_epoch", lambda rollout, sums, *, checked: seen.append(rollout))
    agent.learner.update(batch, current=False)
    assert (seen[0].weight == 1).all()
    now, *_ = agent.learner._evaluate(seen[0].part(torch.arange(len(seen[0]))))
    assert now.detach().abs().max() > 0.05


def test_a_rollout_is_as_old_as_its_oldest_segment():
    agent, collector = make("CartPole-v1", 1, rollout_step=4)
    found = []
    agent.learner.update = lambda batch, *, current: found.append(current) or {"loss/policy": 0.0}
    rows = []
    agent.add_steps = lambda steps: rows.extend(steps.segments())
    while len(rows) < 8:
        collector.step()
    for i, segment in enumerate(rows):
        agent.add(replace(segment, lag=2 if i == 1 else 0))
        agent.learn(i + 1)
    assert found == [False, True] and agent.weights_version == 2


@pytest.mark.parametrize("memory", [False, True])
def test_curiosity_is_added_once_to_a_rollout_and_learns_beside_it(memory, monkeypatch):
    sac = {"curiosity": "FORWARD", "curiosity_strength": 0.5}
    more = {"rep": {"rnn_n": 8}, "sequence_step": 5} if memory else {}
    agent, collector = make(
        "CartPole-v1", 2, num_epoch=2, sac=sac | ({"seq_encoder": "RNN"} if memory else {}), **more
    )
    train(agent, collector, 40)
    learner, found = agent.learner, {}
    (curiosity,) = learner._bonuses.extensions
    estimate, rewards = Rollout.estimate, learner._bonuses.rewards
    before = {name: value.clone() for name, value in curiosity.own.state_dict().items()}
    weights_before, sigma = weights(agent), float(curiosity.deviation())

    def estimated(rollout, bonus, **options):
        assert "bonus" not in found, "once a rollout"
        found.update(bonus=bonus, batch=rollout._batch, valid=rollout.valid)
        one_step = {**options, "trace_decay": 0.0}
        estimate(rollout, 0.0 * bonus, **one_step)
        without = rollout.advantage.clone()
        estimate(rollout, bonus, **one_step)
        torch.testing.assert_close(rollout.advantage - without, bonus * rollout.valid)
        return estimate(rollout, bonus, **options)

    monkeypatch.setattr(Rollout, "estimate", estimated)
    train(agent, collector, 64)
    batch, valid = found["batch"], found["valid"]
    for name, value in before.items():
        assert not torch.equal(value, curiosity.own.state_dict()[name]), "it has learned"
    learner.load_model(weights_before)
    with torch.no_grad():
        state, _ = learner.model.rep(batch.obs, batch.prev_action, batch.carry, batch.obs_valid)
        predicted = curiosity.own[0](state[:, :-1], batch.action)
        error = 0.5 * (predicted - state[:, 1:]).square().sum(-1)
    torch.testing.assert_close(found["bonus"][valid], 0.5 * error[valid] / sigma)
    torch.testing.assert_close(rewards(batch, 3, reward_scale=1.0), found["bonus"])
    assert agent.metrics(64)["curiosity/bonus_mean"] > 0 and agent.metrics(64)["loss/curiosity"] > 0
    assert learner.num_parameters()["curiosity"] > 0


@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_recurrent_states_while_learning_are_those_while_acting(kind):
    """Each sequence ends in the state that was stored, while acting, for the one that follows it."""
    env_name, options = KINDS[kind]
    agent, collector = make(env_name, 3, **options)
    while agent._ring._num_new < 48:
        collector.step()
    batch = agent.replay.chains(np.sort(np.concatenate(agent._ring._new)))
    with torch.no_grad():
        _, after = agent.learner.model.rep(batch.obs, batch.prev_action, batch.carry, batch.obs_valid)
    begins = {int(batch.ids[row, 0]): row for row in range(len(batch.ids))}
    followed = [(row, begins[one]) for row, one in enumerate(batch.ids[:, -1].tolist()) if one in begins]
    assert len(followed) >= 3
    for row, following in followed:
        stored = batch.carry[following]
        assert stored.abs().max() > 0.01
        torch.testing.assert_close(after[row, -2], stored, rtol=0, atol=1e-6)
