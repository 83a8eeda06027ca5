"""Random network distillation: what is novel, who chooses by it, and for which agents."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn

from algorithm.agents.sac.config import SacConfig
from algorithm.config import ConfigError, load_config
from algorithm.core.errors import ModelError
from algorithm.extensions.base import Extension
from algorithm.extensions.rnd import RND
from algorithm.nn.distributions import TanhNormal
from algorithm.nn.models.dynamics import ModelRND
from tests.batches import CPU, SMALL, context, random_batch, small_sac
from tests.batches import sac_actor as new_actor
from tests.extensions.exploring import (
    MEMORIES,
    SPECS,
    batch_for,
    make_agent,
    only_extension,
    same,
    saved,
    with_garbage,
)


class Scaled(nn.Module):
    """Features (w·s_0, w·a_0)."""

    def __init__(self, w: float) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor(w))

    def forward(self, state: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        return self.w * torch.stack([state[..., 0], action[..., 0]], -1)


def test_loss_and_scores_by_hand():
    """((3 − 1) s_0)² and ((3 − 1) a_0)², halved: 2 (s_0² + a_0²)."""
    novelty = RND(Scaled(3.0), Scaled(1.0), 4)
    state, action = torch.tensor([[1.0, 5.0], [2.0, 5.0]]), torch.tensor([[[1.0], [0.0]], [[0.5], [2.0]]])
    assert novelty.score_actions(state, action).tolist() == [[4.0, 2.0], [8.5, 16.0]]
    sac = small_sac(extensions=(novelty,), n_step=3)
    batch = random_batch(8, 3, exists=torch.tensor([1, 2, 3, 3, 3, 2, 3, 3]))
    expected = 2.0 * (batch.obs["obs"][:, 0, 0] ** 2 + batch.action[:, 0, 0] ** 2).mean()
    torch.testing.assert_close(novelty.own_losses(context(sac, batch))["rnd"], expected)
    assert novelty.reward_bonus(context(sac, batch)) == 0.0


def test_the_novelty_of_what_is_visited_falls_and_of_other_actions_stays():
    """Visited: actions with a first component above 0, in states around 0."""
    sac = make_agent(use_rnd=True, learning_rate=0.003, n_step=1)
    novelty = only_extension(sac)
    tried = torch.tensor([[[0.5, 0.3], [0.8, -0.4]]])
    strange = torch.tensor([[[-0.9, 0.3], [-0.9, -0.4]]])
    with torch.no_grad():
        sac.model.rep.net[0].weight.mul_(0.0)  # every observation is the same state
        state = sac.model.rep({"obs": torch.zeros(1, 1, 3)}, torch.zeros(1, 1, 2), None, None)[0][:, 0]
        before = [novelty.score_actions(state, a).mean().item() for a in (tried, strange)]
    for seed in range(60):
        batch = random_batch(32, 1, seed=seed)
        batch.action[..., 0].abs_()
        sac.update(batch)
    with torch.no_grad():
        after = [novelty.score_actions(state, a).mean().item() for a in (tried, strange)]
    assert after[0] < 0.1 * before[0]
    assert after[1] > 5 * after[0]


def test_the_fixed_network_is_random_saved_and_never_moves():
    sac = make_agent(use_rnd=True)
    novelty = only_extension(sac)
    before = saved(sac)
    fixed = [name for name in before if ".fixed." in name]
    assert len(fixed) == 6 and all(name.startswith("model.extensions.0.fixed.") for name in fixed)
    for seed in range(3):
        sac.update(batch_for(sac, seed=seed))
    after = saved(sac)
    assert all(torch.equal(before[name], after[name]) for name in fixed)
    trained = [name.replace(".fixed.", ".own.0.") for name in fixed]
    assert not any(torch.equal(before[name], after[name]) for name in trained)
    assert not any(torch.equal(before[a], before[b]) for a, b in zip(fixed, trained, strict=True))
    assert not any(parameter.requires_grad for parameter in novelty.fixed.parameters())
    assert sum(p.numel() for p in novelty.own.parameters()) == after["optim.own.exp_avg"].numel()


def test_encoder_critics_and_policy_are_what_they_are_without():
    plain, judged = make_agent(), make_agent(use_rnd=True)
    for seed in range(3):
        plain.update(batch_for(plain, seed=seed))
        judged.update(batch_for(judged, seed=seed))
    expected, found = saved(plain), saved(judged)
    assert all(torch.equal(found[name], value) for name, value in expected.items())


class Scorer(Extension):
    """Scores by fixed weights of the action's components; remembers what it was asked."""

    num_candidates = 6

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weights = torch.linspace(-1.0, 1.7, size)
        self.asked: list[torch.Tensor] = []

    def score_actions(self, state: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        assert state.shape == (len(action), 3)
        self.asked.append(action)
        return action @ self.weights


def act(spec, sac, extensions, *, n=40, exploring=True, greedy=False, **options):
    actor = new_actor(
        spec, sac.model, SacConfig(**options), device=CPU, exploring=exploring, seed=3, extensions=extensions
    )
    obs = {"obs": np.random.default_rng(0).normal(size=(n, 3)).astype(np.float32)}
    mask = spec.action.all_allowed(n)
    return obs, actor.act(obs, spec.action.padding(n), actor.initial_carry(n), mask, greedy=greedy)


@pytest.mark.parametrize("kind", SPECS)
def test_the_candidate_with_the_largest_score_is_taken_with_its_own_probability(kind):
    spec = SPECS[kind]
    sac, scorer = small_sac(spec=spec), Scorer(spec.action.size)
    obs, out = act(spec, sac, (scorer,))
    (candidates,) = scorer.asked
    assert candidates.shape == (40, 6, spec.action.size)
    scores = (candidates @ scorer.weights).numpy()
    np.testing.assert_allclose(out.action @ scorer.weights.numpy(), scores.max(1), rtol=1e-5, atol=1e-6)
    assert len(set(scores.argmax(1))) > 1 and scores.std(1).max() > 0.1
    np.testing.assert_array_equal(out.action[:, spec.action.discrete :], np.tanh(out.z))
    with torch.no_grad():
        policy = sac.model.policy(torch.from_numpy(obs["obs"]), {})
    heads = []
    if spec.action.branches:
        parts = policy.logits.split(spec.action.branches, -1)
        logp = torch.cat([part.log_softmax(-1) for part in parts], -1).numpy()
        heads.append((logp * out.action[:, : spec.action.discrete]).sum(1))
    if spec.action.continuous:
        heads.append(TanhNormal(*vars(policy.continuous).values()).logp(torch.from_numpy(out.z)).numpy())
    np.testing.assert_allclose(out.behaviour_logp, np.stack(heads, 1), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("how", [{"exploring": False}, {"greedy": True}])
def test_nobody_judges_who_does_not_explore(how):
    sac, scorer = small_sac(), Scorer(2)
    act(SMALL, sac, (scorer,), **how)
    assert scorer.asked == []


class Recorded(RND):
    """Keeps what it was asked and what it said."""

    def score_actions(self, state: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        self.seen = action, super().score_actions(state, action)
        return self.seen[1]


@pytest.mark.parametrize("options", [{}, {"discrete_dqn_like": True, "discrete_dqn_epsilon": 0.9}])
@pytest.mark.parametrize("kind", ["branches", "hybrid"])
def test_the_most_novel_action_is_taken(kind, options):
    spec = SPECS[kind]
    sac = small_sac(spec=spec, **options)
    novelty = Recorded(ModelRND(spec, 3), ModelRND(spec, 3), 10)
    _, out = act(spec, sac, (novelty,), **options)
    action, error = novelty.seen
    assert error.shape == (40, 10)
    best = action[torch.arange(40), error.argmax(1)].numpy()
    np.testing.assert_allclose(out.action, best, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("actions", SPECS)
@pytest.mark.parametrize("memory", MEMORIES)
def test_every_kind_of_agent_and_padding_changes_nothing(actions, memory):
    spec = SPECS[actions]
    one, other = (make_agent(spec, memory, use_rnd=True) for _ in range(2))
    batch = batch_for(one, spec, memory)
    losses = [sac.update(b).metrics["loss/rnd"] for sac, b in ((one, batch), (other, with_garbage(batch)))]
    assert torch.equal(*losses) and losses[0] > 0
    mine, theirs = saved(one), saved(other)
    model = [name for name in mine if "extensions" in name or name.startswith("optim.own")]
    assert len(model) > 12 and all(torch.equal(mine[name], theirs[name]) for name in model)
    novelty = only_extension(one)
    size = next(iter(novelty.fixed.parameters())).shape[1] - spec.action.size
    scores = novelty.score_actions(torch.zeros(5, size), torch.zeros(5, 10, spec.action.size))
    assert scores.shape == (5, 10)


def test_a_checkpoint_goes_on_bit_for_bit():
    straight, resumed = make_agent(use_rnd=True), make_agent(use_rnd=True, seed=5)
    straight.update(batch_for(straight))
    assert not same(saved(straight), saved(resumed))
    resumed.load_tensors(copy.deepcopy(straight.tensors()), straight.updates)
    for sac in (straight, resumed):
        sac.update(batch_for(sac, seed=7))
    assert same(saved(straight), saved(resumed))


def test_both_together_do_what_each_does_alone():
    """But for curiosity's bonus, which acts on the critics, neither knows of the other."""
    alone = make_agent(use_rnd=True)
    both = make_agent(use_rnd=True, curiosity="INVERSE", curiosity_strength=0)
    assert [type(x).__name__ for x in both.extensions] == ["Curiosity", "RND"]
    both.extensions[1].load_state_dict(only_extension(alone).state_dict())
    for seed in range(2):
        alone.update(batch_for(alone, seed=seed))
        both.update(batch_for(both, seed=seed))
    expected, found = only_extension(alone).state_dict(), both.extensions[1].state_dict()
    assert all(torch.equal(found[name], value) for name, value in expected.items())


def test_a_network_without_a_width_of_features_is_refused(tmp_path):
    file = tmp_path / "nn.py"
    file.write_text(
        "from torch import nn\n\n\nclass ModelRND(nn.Module):\n"
        "    def __init__(self, spec, state_size):\n        super().__init__()\n\n"
        "    def forward(self, state, action):\n        return state.sum()\n"
    )
    with pytest.raises(ModelError) as error:
        make_agent(use_rnd=True, file=file)
    assert "expected (2, 3, F)" in error.value.why and "ModelRND.forward" in str(error.value)


def test_a_choice_of_one_is_a_contradiction(tmp_path):
    (tmp_path / "config.yaml").write_text("default: {sac_config: {use_rnd: true, rnd_n_sample: 1}}\n")
    with pytest.raises(ConfigError, match="of one sampled action"):
        load_config(str(tmp_path))
