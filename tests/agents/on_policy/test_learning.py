"""Updates from rollouts: what is learned from is what was done, once, with the probabilities it had."""

import copy
import math
import re
from dataclasses import replace

import numpy as np
import pytest
import torch

from algorithm.agents.on_policy import update
from algorithm.agents.on_policy.descent import make_descent
from algorithm.agents.on_policy.family_config import PpoConfig
from algorithm.agents.on_policy.rollout import check_ratios, estimate_advantages, make_rollout
from algorithm.core.errors import ModelError, UsageError
from algorithm.extensions.base import Horizon
from algorithm.keys.signals import CuriositySignal, RewardSignals
from algorithm.nn.learning.optimiser import FlatRms
from algorithm.nn.protocols import HybridAction, TanhNormal
from algorithm.replay.budget import MemoryBudget
from tests.lib import on_policy as agents
from tests.lib.callbacks import watch
from tests.lib.on_policy import fill, make, train, weights

KINDS = {
    "hybrid": ("algorithm.env.toys:ToyHybrid-v0", {}),
    "image": ("algorithm.env.toys:ToyCatch-v0", {}),
    "lstm": ("Pendulum-v1", {"sac": {"seq_encoder": "RNN"}, "rep": {"rnn_n": 8, "rnn": "lstm"}}),
    "attention": ("CartPole-v1", {"sac": {"seq_encoder": "ATTN", "burn_in_step": 4}, "rep": {"attn_n": 8}}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_each_transition_is_learned_from_once_and_first_with_ratio_1(kind, monkeypatch):
    """Also in rollouts that begin in the middle of an episode, and over several of them."""
    env_name, options = KINDS[kind]
    agent, collector = make(env_name, 3, num_epoch=1, sequence_step=5, **options)
    stored, learned, ratios = [], [], []
    add_steps, learner = agent.replay.add_steps, agent.learner
    descend = learner._descend

    def added(steps):
        ids = add_steps(steps)
        stored.extend(ids.tolist())
        return ids

    def see(batch, **_):
        first = agent._ring.burn_in
        learned.extend(batch.ids[:, first:-1][batch.valid[:, first:]].tolist())
        assert sorted(learned) == sorted(stored)

    def begin(rollout, batch, *, current):
        log_ratio, *_ = learner._actor_critic.evaluate(rollout)
        ratios.append(float(log_ratio.detach().abs().max()))
        assert current and (rollout.weight == 1).all()
        return descend(rollout, batch, current=True)

    monkeypatch.setattr(agent.replay, "add_steps", added)
    watch(monkeypatch, learner, "update", see)
    monkeypatch.setattr(learner, "_descend", begin)
    train(agent, collector, 200)
    assert len(learned) > 180 and len(ratios) >= 4 and max(ratios) < 1e-5


def test_ppo_with_one_plain_update_is_a2c(monkeypatch):
    """arXiv 2205.09123, with the same optimiser."""
    options = {"rollout_step": 8, "gae_lambda": 0.9, "entropy_coef": 0.01, "learning_rate": 1e-3}
    ppo, of_ppo = make(num_epoch=1, num_minibatch=1, clip=1e9, normalise_advantage="none", **options)
    a2c, of_a2c = make(algorithm="A2C", **options)
    learner = a2c.learner
    learner._descent = make_descent(
        PpoConfig(learning_rate=1e-3), learner._actor_critic.trained, max_norm=0.5, skipped=learner._skipped
    )
    train(ppo, of_ppo, 200)
    train(a2c, of_a2c, 200)
    other = weights(a2c)
    for name, value in weights(ppo).items():
        torch.testing.assert_close(value, other[name], rtol=0, atol=1e-6)


@pytest.mark.parametrize("inside", [False, True])
def test_rmsprop_is_that_of_torch_and_skips_what_is_not_finite(inside):
    module = torch.nn.Linear(3, 2)
    plain = torch.nn.Linear(3, 2)
    plain.load_state_dict(module.state_dict())
    mine = FlatRms([module], 0.01, decay=0.9, epsilon=1e-3, inside=inside)
    theirs = torch.optim.RMSprop(plain.parameters(), lr=0.01, alpha=0.9, eps=1e-3)
    square = torch.ones_like(plain.weight)
    for k in range(5):
        x = torch.full((1, 3), float(k + 1))
        mine.step(module(x).square().sum())
        plain.zero_grad()
        plain(x).square().sum().backward()
        square = 0.9 * square + 0.1 * plain.weight.grad**2
        by_hand = plain.weight.detach() - 0.01 * plain.weight.grad / (square + 1e-3).sqrt()
        theirs.step()
        if inside:
            plain.load_state_dict({"weight": by_hand, "bias": module.bias})
        torch.testing.assert_close(module.weight, plain.weight)
    kept, moments = module.weight.clone(), mine.tensors()["square_avg"].clone()
    mine.step(module(torch.full((1, 3), math.nan)).sum())
    assert torch.equal(module.weight, kept) and torch.equal(mine.tensors()["square_avg"], moments)
    assert int(mine.skipped) == 1


def test_networks_that_forget_while_learning_are_named():
    agent, collector = make("CartPole-v1", 2)
    agent.learner.model.policy.net.append(torch.nn.Dropout(0.5))
    with pytest.raises(ModelError, match="different probabilities in learning") as told:
        train(agent, collector, 200)
    assert "dropout" in str(told.value)


def test_a_ratio_that_is_no_number_is_no_one():
    check_ratios(torch.tensor([0.0, 0.01, -0.01]))
    with pytest.raises(ModelError, match="different probabilities"):
        check_ratios(torch.tensor([0.0, math.nan]))


def test_target_kl_ends_the_epochs():
    agent, collector = make("CartPole-v1", 2, learning_rate=0.1, num_epoch=10, target_kl=1e-4)
    train(agent, collector, 40)
    assert agent.updates < 10 and agent.metrics(40)["ppo/epochs_done"] < 2


def test_a_normaliser_is_frozen_while_a_rollout_is_made_and_knows_the_first_before(
    monkeypatch,
):
    agent, collector = make("Pendulum-v1", 2, sac={"use_normalization": True})
    normaliser, seen = agent.learner.model.normaliser, []
    watch(
        monkeypatch, agent.learner, "update", lambda _, current: seen.append((int(normaliser.count), current))
    )
    train(agent, collector, 30)
    assert normaliser.count == 0
    train(agent, collector, 32)
    assert seen == [(32, False)]
    shift = normaliser.shift.clone()
    train(agent, collector, 62)
    assert torch.equal(normaliser.shift, shift)
    train(agent, collector, 64)
    assert seen == [(32, False), (32, True)] and not torch.equal(normaliser.shift, shift)


def test_the_entropy_is_a_sum_over_allowed_choices_branches_and_components():
    agent, collector = make("algorithm.env.toys:ToyHybrid-v0", 2)
    batch, nets = fill(agent, collector), agent.learner._actor_critic
    part = make_rollout(batch, nets.values(batch)).minibatch(torch.arange(5), torch.device("cpu"))
    logits, mean, log_std = torch.randn(5, 3), torch.randn(5, 1), torch.randn(5, 1)
    mask = torch.tensor([[True, False, True]] * 5)
    nets.model.policy.forward = lambda state, obs: HybridAction(TanhNormal(mean, log_std), logits)
    _, entropies, _ = nets.evaluate(replace(part, action_mask=mask.unsqueeze(1)))
    choices = torch.distributions.Categorical(logits=logits.masked_fill(~mask, -torch.inf))
    allowed = torch.distributions.Categorical(logits=logits[:, [0, 2]])
    torch.testing.assert_close(choices.probs[:, [0, 2]], allowed.probs)
    number = torch.distributions.Normal(mean, log_std.exp()).entropy().sum(-1)
    torch.testing.assert_close(entropies, {"continuous": number, "discrete": allowed.entropy()})


@pytest.mark.parametrize(("algorithm", "corrects"), [("PPO", True), ("A2C", True), ("PPO", False)])
def test_what_older_networks_did_is_weighed(algorithm, corrects, monkeypatch):
    """V-trace weighs by min(1, π/μ), and the ratio is to the policy before the update or the acting one."""
    agent, collector = make("CartPole-v1", 2, algorithm=algorithm, rollout_step=32, use_vtrace=corrects)
    batch, learner, seen = fill(agent, collector), agent.learner, []
    with torch.no_grad():
        learner.model.policy.head.discrete.bias[0] += 1.0
    monkeypatch.setattr(
        learner, "_descend", lambda rollout, _, *, current: seen.append((rollout, current)) or ([], 0)
    )
    learner.update(batch, current=False)
    (rollout, current), at = seen[0], batch.valid
    with torch.no_grad():
        state, _ = learner.model.rep(batch.obs, batch.prev_action, batch.carry, batch.obs_valid)
        logits = learner.model.policy(state[:, :-1][at], {}).logits
    log_pi = torch.log_softmax(logits, -1)[batch.action[at].bool()]
    ratio = (log_pi - batch.behaviour_logp[at][:, 0]).exp()
    expected = ratio.clamp(max=1.0) if corrects else torch.ones_like(ratio)
    torch.testing.assert_close(rollout.weight[at], expected)
    assert not current and 0.3 < ratio.min() < 0.95 < 1.05 < ratio.max()
    now, *_ = learner._actor_critic.evaluate(rollout)
    torch.testing.assert_close(now.detach(), 0.0 * ratio if corrects else ratio.log(), rtol=0, atol=1e-5)


def test_a_rollout_is_as_old_as_its_oldest_steps():
    agent, collector = make("CartPole-v1", 1, rollout_step=4)
    found = []
    agent.learner.update = lambda batch, *, current: found.append(current) or {"loss/policy": 0.0}
    rows, add_steps = [], agent.add_steps
    agent.add_steps = lambda steps: rows.append(steps.rows(np.arange(len(steps))))
    while len(rows) < 8:
        collector.step()
    for i, steps in enumerate(rows):
        add_steps(replace(steps, lag=2 if i == 1 else 0))
        agent.learn(i + 1)
    assert found == [False, True] and agent.weights_version == 2


@pytest.mark.parametrize("memory", [False, True])
def test_curiosity_is_added_once_to_a_rollout_and_learns_beside_it(memory, monkeypatch):
    keys = {"curiosity": "FORWARD", "curiosity_strength": 0.5, "learning_rate_schedule": "linear"}
    more = {"rep": {"rnn_n": 8}, "sequence_step": 5} if memory else {}
    keys |= {"seq_encoder": "RNN"} if memory else {}
    agent, collector = make("CartPole-v1", 2, num_epoch=1, sac=keys, clip_schedule="linear", **more)
    train(agent, collector, 32)
    learner, found = agent.learner, []
    (curiosity,) = learner._bonuses.extensions
    sigma = float(curiosity.deviation())
    before, model = copy.deepcopy(curiosity.own[0]), copy.deepcopy(learner.model.rep)
    watch(monkeypatch, update, "estimate_advantages", lambda *args, **_: found.append(args))
    train(agent, collector, 64)
    ((rollout, batch, _, (reward,), _),) = found  # once a rollout
    bonus = reward - batch.reward
    with torch.no_grad():
        state, _ = model(batch.obs, batch.prev_action, batch.carry, batch.obs_valid)
        error = 0.5 * (before(state[:, :-1], batch.action) - state[:, 1:]).square().sum(-1)
    torch.testing.assert_close(bonus[rollout.valid], 0.5 * error[rollout.valid] / sigma)
    assert any(
        not torch.equal(p, old) for p, old in zip(curiosity.parameters(), before.parameters(), strict=True)
    )
    factors = {learner._clip_factor, *(one.factor for one in learner.optimisers().values())}
    assert factors == {1 - collector.steps / 1000}, "all fall alike"


def curious(gamma, *, ends=True):
    return {"reward_signals": RewardSignals(curiosity=CuriositySignal(gamma=gamma, ends=ends))}


@pytest.mark.parametrize("algorithm", ["PPO", "ACKTR"])
def test_the_horizon_of_the_agent_changes_nothing_to_the_last_bit(algorithm):
    found = []
    for gamma in (None, 0.9):
        keys = {"curiosity": "FORWARD", "gamma": 0.9}
        agent, collector = make("CartPole-v1", 2, algorithm=algorithm, sac=keys, blocks=curious(gamma))
        train(agent, collector, 64)
        found.append(weights(agent))
    assert found[0].keys() == found[1].keys()
    assert all(torch.equal(found[1][name], value) for name, value in found[0].items())


def test_advantages_of_two_horizons_are_added_and_one_goes_on_behind_an_end():
    """Of the further one r is the bonus alone, and V at an end that of the final observation."""
    keys, blocks = {"curiosity": "FORWARD", "gamma": 0.9}, curious(0.5, ends=False)
    agent, collector = make("CartPole-v1", 2, sac=keys, blocks=blocks, rollout_step=40)
    batch = fill(agent, collector)
    values, size = agent.learner._actor_critic.values(batch), len(batch.reward)
    rewards = [batch.reward, torch.rand(size, 1)]
    rollout = make_rollout(batch, values)
    horizons = list(agent.learner._bonuses.by_horizon)
    assert horizons == [Horizon(0.9), Horizon(0.5, ends=False)]
    estimate_advantages(rollout, batch, values, rewards, horizons, trace_decay=0.8)
    place = {int(number): i for i, number in enumerate(batch.ids[:, 0])}

    def plain(i, v, reward, gamma, ends):
        left = gamma * (not (ends and batch.terminated[i, 0]))
        after = place.get(int(batch.ids[i, 1]))
        ahead = 0.0 if after is None else gamma * 0.8 * plain(after, v, reward, gamma, ends)
        return float(reward[i, 0] + left * v[i, 1] - v[i, 0]) + ahead

    parts = [
        [plain(i, v, reward, gamma, ends) for i in range(size)]
        for v, reward, gamma, ends in (
            (values[0], batch.reward, 0.9, True),
            (values[1], rewards[1], 0.5, False),
        )
    ]
    assert batch.terminated.any()
    for part, value, target in zip(parts, values, rollout.targets, strict=True):
        torch.testing.assert_close(target[:, 0], torch.tensor(part) + value[:, 0])
    torch.testing.assert_close(rollout.advantage[:, 0], torch.tensor(parts).sum(0))


@pytest.mark.parametrize("algorithm", ["PPO", "A2C"])
def test_a_ring_that_does_not_fit_says_which_rollout_would(algorithm, monkeypatch):
    monkeypatch.setattr(agents, "MemoryBudget", lambda: MemoryBudget(2**20))
    with pytest.raises(UsageError) as caught:
        make("CartPole-v1", 2, algorithm=algorithm, rollout_step=100_000)
    block = f"{algorithm.lower()}_config"
    assert caught.value.where == f"{block}.rollout_step of x"
    found = re.match(rf"set {block}.rollout_step to (\d+) or less", caught.value.fix)
    make("CartPole-v1", 2, algorithm=algorithm, rollout_step=int(found[1]))
