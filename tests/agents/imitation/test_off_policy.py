"""SAC and TD3 with demonstrations: cloning, shares of batches, updates before the first step, offline."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch

from algorithm.actions.parts import Categorical, NoBranches
from algorithm.agents.imitation.batches import MixedBatches
from algorithm.agents.imitation.cloning import Constraint, cloning_loss
from algorithm.agents.off_policy.setup import set_priorities
from algorithm.agents.registry import family
from algorithm.agents.roles import AgentInputs
from algorithm.agents.sac.config import SacConfig
from algorithm.config.schema import BaseConfig, Config, ReplayConfig
from algorithm.core.data import UNKNOWN_LOGP, Demonstrations
from algorithm.core.spec import ActionSpec, AgentSpec
from algorithm.demos.check import fitted
from algorithm.demos.episode import RecordedEpisode
from algorithm.keys.demonstrations import DemoConfig
from algorithm.keys.signals import BehavioralCloning, NnConfig
from algorithm.nn.protocols import HybridAction, TanhNormal
from algorithm.replay.budget import MemoryBudget
from tests.lib.batches import CPU, SMALL, SPECS, random_batch, saved, small_sac
from tests.lib.callbacks import watch
from tests.lib.grid import demonstrations, play

NEVER = bool
B = 16


def make(
    spec: AgentSpec = SMALL,
    algorithm: str = "SAC",
    *,
    shown=None,
    cloning=None,
    found: Demonstrations | None = None,
    nn: NnConfig | None = None,
    base=None,
    capacity: int = 300,
    **keys,
):
    """An agent of 4 that learns from two episodes of eight random steps."""
    small = {"dense_n": 8, "dense_depth": 1}
    config = Config(
        algorithm=algorithm,
        base_config=BaseConfig(max_step=1000, n_envs=4, **(base or {})),
        replay_config=ReplayConfig(capacity=capacity),
        sac_config=SacConfig(**{"start_step": 0, "batch_size": B, "n_step": 1, **keys}),
        nn_config=nn or NnConfig(rep=small, q=small, policy=small),
        demonstrations=DemoConfig(path="a.npz", **(shown or {})),
        behavioral_cloning=BehavioralCloning(**(cloning or {})),
    )
    inputs = AgentInputs(
        spec,
        config,
        nn_file=None,
        behaviour="x",
        seed=1,
        device=CPU,
        memory=MemoryBudget(free=10**9),
        demonstrations=found or demonstrations(spec),
    )
    return family(config).make_agent(inputs)


def moved(before, after) -> set[str]:
    return {name for name, value in after.items() if not torch.equal(value, before[name])}


def test_the_loss_of_a_hybrid_action_by_hand():
    """tanh m = (0.6, 0) for u = (0.8, −0.4): (0.04 + 0.16)/2 = 0.1.

    Branches: π = ½ of two that are allowed of three, ¼ of logits 0 and log 3: (log 2 + log 4)/2.
    """
    mean = torch.tensor([[0.6, 0.0]]).atanh()
    logits = torch.tensor([[1.0, 1.0, 9.0, 0.0, np.log(3.0)]])
    mask = torch.tensor([[True, True, False, True, True]])
    action = torch.tensor([[1.0, 0.0, 0.0, 1.0, 0.0, 0.8, -0.4]])
    policy = HybridAction(TanhNormal(mean, torch.ones_like(mean)), logits)
    spec = ActionSpec((3, 2), 2)
    found = cloning_loss(policy, action, mask, Categorical(spec), torch.tanh)
    assert found.tolist() == pytest.approx([0.1 + (np.log(2) + np.log(4)) / 2])
    alone = HybridAction(policy.continuous, None)
    assert cloning_loss(
        alone, action[:, 5:], mask[:, :0], NoBranches(), torch.tanh
    ).tolist() == pytest.approx([0.1])
    only = cloning_loss(HybridAction(None, logits), action[:, :5], mask, Categorical(spec), torch.tanh)
    assert only.tolist() == pytest.approx([(np.log(2) + np.log(4)) / 2])


def test_a_policy_offline_is_held_near_the_batch_by_hand():
    """Values −6 and 2 with shares ¾ and ¼: mean |q| = 5, λ = ½; errors 0.04 and 0.16: mean 0.07."""
    mean = torch.tensor([[0.6], [0.0]]).atanh()
    policy = HybridAction(TanhNormal(mean, mean), None)
    q = torch.tensor([[-6.0], [2.0]], requires_grad=True)
    action, share = torch.tensor([[0.8], [-0.4]]), torch.tensor([0.75, 0.25])
    constraint = Constraint(NoBranches(), 2.5)
    climbed = (q * constraint.weight(q[:, 0], share)).sum()
    cloning = constraint.cloning(policy, action, torch.zeros(2, 0, dtype=torch.bool), share)
    assert climbed.item() == pytest.approx(-2.0) and cloning.item() == pytest.approx(0.07)
    (climbed + cloning).backward()
    assert q.grad.flatten().tolist() == [0.5, 0.5], "λ has no gradient"


@pytest.mark.parametrize(
    ("algorithm", "kind"), [("SAC", "hybrid"), ("SAC", "discrete"), ("TD3", "continuous")]
)
def test_what_is_cloned_is_encoder_and_policy_and_what_follows_them(algorithm, kind):
    agent = make(SPECS[kind], algorithm, cloning={"strength": 30.0, "pretrain": 150, "batch_size": 64})
    before = saved(agent.learner)
    first = float(agent._clone(1)["loss/cloning"])
    assert agent.pretrain(NEVER)["loss/cloning"] < 0.6 * first
    changed = {name for name in moved(before, saved(agent.learner)) if name.startswith("model.")}
    parts = {name.split(".")[2] for name in changed}
    slow = {"target_policy"} if algorithm == "TD3" else set()
    assert parts == {"rep", "policy", "target_rep"} | slow, "the critics stay"
    model = agent.learner.model
    for own, target in zip(model.rep.parameters(), model.target_rep.parameters(), strict=True):
        assert torch.equal(own, target)
    assert agent.updates == 0 and agent.weights_version == 1 and agent.pretrain(NEVER) == {}


def test_cloning_fades_beside_the_updates_and_one_that_is_not_finite_counts(monkeypatch):
    agent = make(cloning={"strength": 0.5, "steps": 40, "updates": 2}, replay_ratio=0.25, learning_rate=0.004)
    rates, of_cloning = [], agent.learner.cloning.optimisers.values()
    watch(
        monkeypatch,
        agent.learner.cloning,
        "_step",
        lambda _: rates.extend(one.learning_rate * one.factor for one in of_cloning),
    )
    play(agent, np.random.default_rng(0), 12)
    expected = [0.002 * max(0.0, 1 - 4 * k / 40) for k in range(1, 13) if k >= 4]
    used = [rate for rate in expected if rate]
    assert rates == pytest.approx(np.repeat(used, 4)), "two steps of two optimisers for each update"
    assert agent.metrics(48)["loss/cloning"] > 0
    agent.learner.cloning.factor = 1.0
    with torch.no_grad():
        for name, value in agent.learner.model.policy.named_parameters():
            if name.endswith("bias"):
                value.fill_(float("nan"))
    before = agent.learner.skipped
    agent._clone(1)
    assert agent.learner.skipped > before


@pytest.mark.parametrize(("share", "size", "number"), [(0.5, 10, 5), (0.29, 100, 29), (0.99, 4, 3)])
def test_batches_have_their_share_behind_the_agents_own(share, size, number):
    """0.29 · 100 is 28.999… in floating point, and at least one window is the agent's own."""
    agent = make(shown={"share": share}, batch_size=size)
    play(agent, np.random.default_rng(0), 3 + size)
    batch, batches = agent._batches.sample(), agent._batches
    assert isinstance(batches, MixedBatches)
    alien = (batch.ids == -1).all(1)
    assert alien.tolist() == [False] * (size - number) + [True] * number
    assert batches.num_replayed == size - number
    assert (batch.weight[alien] == 1.0).all() and batch.weight[~alien].max() == 1.0
    shown = torch.cat([torch.tensor(e.obs["obs"]) for e in demonstrations(SMALL).episodes])
    assert all((row == shown).all(1).any() for row in batch.obs["obs"][alien, 0])


def test_priorities_and_ages_are_those_of_the_agents_own_windows():
    agent = make(shown={"share": 0.5})
    play(agent, np.random.default_rng(0), 4)
    tree = agent.replay._sampler.tree
    assert agent.updates == 12, (
        "of the steps 5 to 16: at step 8 there are the 8 transitions that a batch lacks"
    )
    before = tree.leaves.copy()
    batch = agent._batches.sample()
    result = agent.learner.update(batch)
    assert len(result.priority) == B and set_priorities(agent.replay, result, agent._batches.num_replayed)
    changed = set(np.flatnonzero(tree.leaves != before))
    assert changed <= set(result.anchor_ids[:8].tolist()) and len(changed) > 1
    agent._recent.add(batch, result, agent._batches.num_replayed)
    found = agent.metrics(16)
    assert 0 <= found["replay/age_mean"] < 30
    agent.load_state(agent.state())
    assert agent.metrics(16)["replay/age_mean"] == pytest.approx(found["replay/age_mean"])


def test_updates_before_the_first_step_go_on_exactly_and_belong_to_no_step():
    keys = {"cloning": {"strength": 1.0, "pretrain": 150}, "shown": {"pretrain": 6, "share": 0.5}}
    straight, stopped, resumed = (make(reward_scaling=True, **keys) for _ in range(3))
    metrics = straight.pretrain(NEVER)
    assert {"loss/cloning", "loss/q", "loss/policy"} <= set(metrics) and "replay/age_mean" not in metrics
    assert straight.updates == 6 and len(straight.replay) == 0
    asked = iter([False, True, True])
    stopped.pretrain(lambda: next(asked))
    assert stopped._pretraining.state() == {"steps": 100, "updates": 0}
    asked = iter([False] * 4 + [True])
    stopped.pretrain(lambda: next(asked))
    assert stopped._pretraining.state() == {"steps": 150, "updates": 3}
    resumed.learner.load_tensors(copy.deepcopy(stopped.learner.tensors()), stopped.updates)
    resumed.load_state(copy.deepcopy(stopped.state()))
    resumed.pretrain(NEVER)
    assert moved(saved(straight.learner), saved(resumed.learner)) == set()
    play(resumed, np.random.default_rng(0), 2)
    assert resumed.updates == 6 + 4, "those of the steps 5 to 8: at step 4 there are too few transitions"
    assert resumed.metrics(8)["time/replay_ratio"] == 1.0
    assert "time/replay_ratio" not in make().metrics(0)


def test_rewards_of_demonstrations_count_where_they_are_learned_from():
    """Eight rewards of 1, times 2, discounted by 0.5: the largest return is 2 · (2 − 2⁻⁷)."""
    scaled = {"reward_scaling": True, "gamma": 0.5, "base": {"reward_scale": 2.0}}
    agent = make(shown={"share": 0.5}, **scaled)
    assert agent.learner.return_scale.count == 16
    assert agent.learner.return_scale.largest == pytest.approx(4 - 2**-6)
    batch = agent._demonstrations.draw(5, torch.Generator().manual_seed(0))
    assert (batch.reward == 2.0).all()
    assert make(cloning={"strength": 1.0}, **scaled).learner.return_scale.count == 0


def test_ratios_of_whoever_acted_count_as_one_where_they_are_unknown():
    known = demonstrations(SMALL)
    unknown = replace(known, episodes=[replace(e, behaviour_logp=None) for e in known.episodes])
    agent = make(found=unknown, shown={"share": 0.5}, n_step=3)
    drawn = agent._demonstrations.draw(8, torch.Generator().manual_seed(0))
    assert drawn.window == 3 and (drawn.behaviour_logp[drawn.valid] == UNKNOWN_LOGP).all()


@pytest.mark.parametrize(
    ("changed", "known"),
    [
        ({}, True),
        ({"z": None}, False),
        ({"behaviour_logp": np.full((2, 1), np.nan, np.float32)}, False),
        ({"behaviour_logp": np.zeros((2, 4), np.float32)}, False),
        ({"z": np.full((2, 2), 0.3, np.float32)}, False),
    ],
)
def test_a_recorded_policy_of_another_kind_counts_as_unknown(changed, known):
    z = np.array([[0.1, -2.0], [0.0, 0.5]], np.float32)
    episode = RecordedEpisode(
        number=0,
        behaviour="default",
        agent=0,
        obs={"obs": np.zeros((3, 3), np.float32)},
        action_mask=np.ones((3, 0), np.bool_),
        action=np.tanh(z),
        reward=np.ones(2, np.float32),
        terminated=np.zeros(2, np.bool_),
        truncated=np.zeros(2, np.bool_),
        z=z,
        behaviour_logp=np.zeros((2, 1), np.float32),
    )
    found = fitted(replace(episode, **changed), SMALL)
    assert (found.z is not None) == (found.behaviour_logp is not None) == known


def test_offline_nothing_is_stored_and_all_is_learned():
    agent = make(shown={"offline": True})
    assert agent.stores() == {} and agent.replay.capacity == B + 1
    before = saved(agent.learner)
    for step in range(1, 9):
        agent.learn(step)
    assert agent.updates == 8 and agent.metrics(8)["time/replay_ratio"] == 1.0
    assert {name.split(".")[2] for name in moved(before, saved(agent.learner)) if ".model." in name} >= {
        "q",
        "policy",
    }
    assert not any(name.startswith("replay/") for name in agent.metrics(8))
    assert any("nothing is stored offline" in text for _, text in agent.rows())


def test_the_policy_as_it_begins_fills_the_replay():
    agent = make(shown={"warm_up_policy": 24})
    play(agent, np.random.default_rng(0), 6)
    assert agent.warm_up_steps == 24 and not agent.policy.warming_up and agent.updates == 0
    assert len(agent.replay) > 24
    play(agent, np.random.default_rng(0), 7)
    assert agent.updates == 4, "those of the steps 25 to 28"


def test_an_update_offline_weighs_the_values_and_adds_the_cloning():
    """``mean α log π − λ Q`` plus the cloning error, for continuous actions; λ comes of mean |Q|."""
    sac = small_sac(constraint=Constraint(NoBranches(), 2.5), use_auto_alpha=False)
    batch = random_batch(8)
    state, noise = batch.obs["obs"][:, :1], torch.randn(8, 2)
    with torch.no_grad():
        loss, _ = sac.policy_losses(batch, {}, state, noise)
        policy = sac.model.policy(state[:, 0], {})
        z, logp = policy.continuous.rsample(noise)
        q = sac.model.q(state[:, 0], z.tanh())[..., 0].amin(0)
        weight = 2.5 / q.abs().mean()
        error = (policy.continuous.mean.tanh() - batch.action[:, 0]).square().mean(-1)
    alpha = sac.objective.continuous.alpha
    assert abs(weight - 1.0) > 0.1
    torch.testing.assert_close(loss.value, (alpha * logp - weight * q + error).mean())


def test_a_batch_norm_of_the_policy_moves_with_cloning_and_an_encoder_without_parameters_costs_nothing():
    sizes = {"dense_n": 8, "dense_depth": 1}
    nn = NnConfig(rep={"dense_depth": 0}, q=sizes, policy={**sizes, "norm": "batch"})
    agent = make(nn=nn, cloning={"strength": 1.0})
    assert [*agent.learner.cloning.optimisers] == ["cloning"]
    before = saved(agent.learner)
    agent._clone(3)
    assert any(name.endswith("mean") for name in moved(before, saved(agent.learner))), "running statistics"
