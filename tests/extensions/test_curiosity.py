"""Bonus of curiosity by hand, on its own scale; novelty of actions, and policies that choose by it."""

import numpy as np
import pytest
import torch
from torch import nn

from algorithm.agents.sac.config import SacConfig
from algorithm.extensions.base import Extension
from algorithm.extensions.curiosity import RND, Curiosity, forward_error, inverse_error
from algorithm.nn.protocols import TanhNormal
from tests.lib.batches import CPU, SMALL, SPECS, context, random_batch, small_sac
from tests.lib.batches import sac_actor as new_actor

KINDS = ["FORWARD", "INVERSE"]


class Stays(nn.Module):
    """Predicts the first numbers of the first state, whatever comes second; its parameter has no effect."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width, self.weight = width, nn.Parameter(torch.ones(()))

    def forward(self, state: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return state[..., : self.width] + 0.0 * self.weight


def squared(x):
    return 0.5 * (x.double() ** 2).sum(-1).numpy()


def errors_by_hand(batch, surprise):
    """[B, W] of a model that says that nothing changes, or that a = (s_0, s_1)."""
    obs = batch.obs["obs"]
    if surprise is forward_error:
        return squared(obs[:, :-1] - obs[:, 1:])
    return squared(obs[:, :-1, :2] - batch.action)


@pytest.fixture(params=[(forward_error, 3), (inverse_error, 2)], ids=KINDS)
def stub(request):
    """A learner with curiosity that never learns anything, and how it is surprised."""
    surprise, width = request.param
    curiosity = Curiosity(Stays(width), surprise, 0.5)
    return small_sac(extensions=(curiosity,), n_step=3), curiosity, surprise


EXISTS = torch.tensor([1, 2, 3, 3, 3, 2, 3, 3])


def test_the_running_deviation_is_that_of_all_learned_errors_so_far(stub):
    sac, curiosity, surprise = stub
    seen = []
    for seed in range(4):
        batch = random_batch(8, 3, seed=seed, exists=EXISTS)
        before = np.std(seen) if seen else 1.0
        assert curiosity.deviation().item() == pytest.approx(before, rel=1e-5)
        error = errors_by_hand(batch, surprise)
        bonus = np.where(batch.valid, 0.5 * error / before, 0.0)
        found = curiosity.reward_bonus(context(sac, batch))
        np.testing.assert_allclose(found, bonus, rtol=1e-5)
        assert not found.requires_grad and (found[batch.terminated & batch.valid] > 0).all()
        metrics = sac.update(batch).metrics  # position 0 is learned, the others are for three steps
        seen += error[:, 0].tolist()
        assert metrics["loss/curiosity"].item() == pytest.approx(error[:, 0].mean(), rel=1e-5)
        assert metrics["curiosity/bonus_mean"].item() == pytest.approx(bonus[:, 0].mean(), rel=1e-5)
        assert metrics["curiosity/bonus_std"].item() == pytest.approx(bonus[:, 0].std(), rel=1e-4)


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
    batch = random_batch(8, 3, exists=EXISTS)
    expected = 2.0 * (batch.obs["obs"][:, 0, 0] ** 2 + batch.action[:, 0, 0] ** 2).mean()
    torch.testing.assert_close(novelty.own_losses(context(sac, batch))["rnd"], expected)
    assert novelty.reward_bonus(context(sac, batch)) == 0.0


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
