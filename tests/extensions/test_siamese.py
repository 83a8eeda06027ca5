"""ATC and BYOL: who is compared with whom, that they learn, and that what does not exist changes nothing."""

import copy
from dataclasses import replace

import pytest
import torch
from torch import nn

from algorithm.core.spec import ActionSpec, AgentSpec
from tests.lib.batches import SMALL, Sac, context, random_batch, small_sac
from tests.lib.oracles import window_mean

SPEC = AgentSpec(SMALL.obs, ActionSpec((2, 3), 2))


def make_sac(siamese: str, **options) -> Sac:
    """A small agent with that extension; with memory its windows have 2 + 3 steps."""
    plain = {"spec": SPEC, "rep_depth": 1, "learn_step": 3 if options.get("seq_encoder") else 1}
    return small_sac(siamese=siamese, **{**plain, **options})


def make_batch(sac: Sac, *, n=1, size=8, seed=0):
    """Windows of which some end early; with memory some begin late, and learned tokens may be missing."""
    window = sac.config.burn_in_step + sac.config.learn_step + n - 1
    batch = random_batch(size, window, spec=SPEC, seed=seed)
    time, row = torch.arange(window + 1), torch.arange(size)[:, None]
    first, missing = (row % 4, row // 2 % 3) if sac.config.burn_in_step else (0, (row % 3 == 0).long())
    exists = (time >= first) & (time <= window - missing)
    carry = torch.randn(size, *sac.model.rep.stored_carry_shape)
    return replace(batch, obs_valid=exists, valid=exists[:, :-1] & exists[:, 1:], carry=carry)


class Zero(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.zeros_like(x)


def test_the_atc_loss_is_a_loop_over_the_pairs_of_a_batch():
    """With f = 0 and W = 1 a logit is the product of two states; looks are what was seen."""
    sac = make_sac("ATC", seq_encoder="RNN")
    (extension,) = sac.extensions
    extension.joint[0] = Zero()
    nn.init.eye_(extension.joint[1].weight)
    batch = make_batch(sac, n=2)
    ctx = context(sac, batch)
    exists, found = batch.obs_valid, torch.zeros(8, 3)
    keys = [(b, t) for b in range(8) for t in (2, 3, 4) if exists[b, t] and exists[b, t + 2]]
    assert len(keys) < 8 * 3
    for b, t in keys:
        scores = [ctx.state[b, t] @ ctx.target_following[c, s + 2 - 3] for c, s in keys]
        found[b, t - 2] = -torch.stack(scores).log_softmax(0)[keys.index((b, t))]
    loss = extension.contrast(ctx, ctx.states, ctx.states)
    torch.testing.assert_close(loss, window_mean(found, exists[:, 2:5] & exists[:, 4:7]))


def recurring(size: int, seed: int):
    """Windows whose two tokens show the same two numbers, each with noise, beside one of noise alone."""
    batch = random_batch(size, 1, seed=seed)
    g = torch.Generator().manual_seed(seed)
    common = torch.randn(size, 1, 2, generator=g) + 0.05 * torch.randn(size, 2, 2, generator=g)
    return replace(batch, obs={"obs": torch.cat([common, torch.randn(size, 2, 1, generator=g)], -1)})


def train(siamese: str, updates: int) -> tuple[Sac, list[dict[str, torch.Tensor]]]:
    sac = make_sac(siamese, spec=SMALL, rep={"dense_n": 32}, learning_rate=0.003)
    return sac, [sac.update(recurring(64, seed)).metrics for seed in range(updates)]


def test_atc_learns_what_stays_the_same():
    _, metrics = train("ATC", 60)
    before, after = (
        torch.stack([m["siamese/accuracy"] for m in part]).mean() for part in (metrics[:3], metrics[-3:])
    )
    assert before < 0.1 and after > 0.2  # by chance 1/64
    assert metrics[-1]["loss/siamese"] < metrics[0]["loss/siamese"]


def test_byol_comes_to_agree_with_its_target_without_collapsing():
    fresh, _ = train("BYOL", 0)
    sac, metrics = train("BYOL", 100)
    assert metrics[0]["loss/siamese"] > 0.5 and metrics[-1]["loss/siamese"] < 0.1
    variances = [
        torch.linalg.eigvalsh(one.encode(recurring(256, 1000)).state[:, 0].t().cov()) for one in (fresh, sac)
    ]
    spread = [x.sum() / x.max() for x in variances]
    assert spread[1] > 0.8 * spread[0] > 1.2


def test_the_byol_loss_is_the_mean_of_both_directions_over_what_exists():
    sac = make_sac("BYOL", seq_encoder="RNN")
    (extension,) = sac.extensions
    batch = make_batch(sac)
    ctx = context(sac, batch)
    looks = [extension._view(ctx, noise) for noise in ctx.drawn["Byol"]["views"]]
    projection, prediction = extension.joint
    assert not batch.obs_valid[:, 2:5].all()
    found = torch.zeros(8, 3)
    for b, t in torch.nonzero(batch.obs_valid[:, 2:5]).tolist():
        for by, of in (looks, looks[::-1]):
            one = prediction(projection(by.learned[b, t][None]))[0]
            other = extension.target_projection(of.target_learned[b, t][None])[0]
            found[b, t] += 1 - (one @ other) / (one.norm() * other.norm())
    torch.testing.assert_close(extension.contrast(ctx, *looks), window_mean(found, batch.obs_valid[:, 2:5]))


def test_the_target_projection_moves_by_tau_without_gradient_and_is_saved():
    sac = make_sac("BYOL", tau=0.25, update_target_per_step=2)
    (extension,) = sac.extensions
    before = copy.deepcopy(extension.target_projection)
    sac.update(make_batch(sac))
    for own, old in zip(extension.target_projection.parameters(), before.parameters(), strict=True):
        assert torch.equal(own, old) and own.grad is None and not own.requires_grad
    sac.update(make_batch(sac))
    trios = zip(
        *(m.parameters() for m in (extension.target_projection, before, extension.joint[0])), strict=True
    )
    for own, old, online in trios:
        torch.testing.assert_close(own, old + 0.25 * (online - old))
        assert not torch.equal(own, old)
    names = set(sac.tensors()["model"])
    assert {f"extensions.0.target_projection.{name}" for name in before.state_dict()} <= names


def test_agreement_of_values_reaches_encoder_and_critics():
    """By hand: online Q of an augmented look against the target's Q of what was seen, of valid positions."""
    sac = make_sac("ATC", siamese_use_q=True, seq_encoder="RNN")
    (extension,) = sac.extensions
    with torch.no_grad():  # the targets have fallen behind
        sac.critic_optimiser.flat.data.add_(0.1 * torch.randn_like(sac.critic_optimiser.flat.data))
    batch = make_batch(sac)
    ctx = context(sac, batch)
    losses = extension.auxiliary_losses(ctx)
    view = extension._view(ctx, ctx.drawn["Atc"]["views"][0])
    valid = batch.valid[:, 2:5]
    difference = ctx.q(view.learned) - sac.target_q(ctx.states.target_learned, batch.action[:, 2:5])
    torch.testing.assert_close(losses["siamese_q"], window_mean(difference.square().mean(0), valid))
    sac.critic_optimiser.gradient.zero_()
    losses["siamese_q"].backward()
    assert sac.critic_optimiser.gradient[sac.encoder].any()
    assert sac.critic_optimiser.gradient[sac.encoder.stop :].any()
    plain = make_sac("ATC", seq_encoder="RNN")
    assert set(plain.extensions[0].auxiliary_losses(context(plain, batch))) == {"siamese"}


def test_the_target_projection_of_other_networks_begins_equal_to_theirs():
    trained, _ = train("BYOL", 2)
    sac, _ = train("BYOL", 0)
    sac.begin_with(trained.tensors()["model"], None)
    theirs, own = (one.extensions[0].joint[0].state_dict() for one in (trained, sac))
    for name, target in sac.extensions[0].target_projection.state_dict().items():
        assert torch.equal(target, own[name]) and torch.equal(target, theirs[name])


@pytest.mark.parametrize("siamese", ["ATC", "BYOL"])
def test_the_encoder_and_the_joint_parts_learn_and_the_policy_does_not(siamese):
    sac = make_sac(siamese)
    ctx = context(sac, make_batch(sac))
    (extension,) = sac.extensions
    loss = extension.auxiliary_losses(ctx)["siamese"]
    for step in sac.optimisers().values():
        step.gradient.zero_()
    loss.backward()
    assert sac.critic_optimiser.gradient[sac.encoder].any()
    assert not sac.critic_optimiser.gradient[sac.encoder.stop :].any()  # the critics
    assert all(p.grad.any() for p in extension.joint.parameters() if p.dim() > 1)
    assert not sac.policy_optimiser.gradient.any()
