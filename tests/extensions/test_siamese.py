"""ATC and BYOL: who is compared with whom, that they learn, and that what does not exist changes nothing."""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import algorithm.nn as m
from algorithm.agents.config import RewardSignals
from algorithm.agents.off_policy.model import NETWORKS
from algorithm.agents.sac.config import SacConfig
from algorithm.core.errors import ModelError
from algorithm.core.spec import ActionSpec, AgentSpec, ObsSpec
from algorithm.extensions import atc, make_siamese
from algorithm.extensions.atc import Atc, pairs
from algorithm.extensions.byol import Byol
from algorithm.extensions.options import Build
from algorithm.extensions.two_views import TwoViews, no_additional_loss
from algorithm.nn.layers.augment import Augmentation
from algorithm.nn.loader import OPTIONAL, load_networks
from algorithm.nn.models.projections import ModelRepPrediction, ModelRepProjection
from tests.batches import CPU, Sac, context, random_batch, weights
from tests.oracles import window_mean

VECTOR = ObsSpec(("obs",), ((3,),), ("float32",))
IMAGE = ObsSpec(("obs",), ((12, 12, 1),), ("uint8",))
CHOICE = ObsSpec(("obs",), ((),), ("int64",), ((4,),))
MIXED = ObsSpec(
    ("image", "vector", "choice"),
    ((3, 16, 16), (3,), ()),
    ("uint8", "float32", "int64"),
    ((), (), (4,)),
    (3, 1, 1),
)
MEMORIES = {
    None: {"dense_depth": 1},
    "RNN": {"rnn_n": 8},
    "ATTN": {"attn_n": 8, "attn_heads": 2},
}
KINDS = ["ATC", "BYOL"]


def make_sac(
    siamese: str | None, obs: ObsSpec = VECTOR, *, rep=None, action=None, seed=0, file=None, **options
) -> Sac:
    """A small agent with that extension; with memory its windows have 2 + 3 steps."""
    spec = AgentSpec(obs, action or ActionSpec((2, 3), 2))
    memory = options.get("seq_encoder")
    lengths = {"burn_in_step": 2, "learn_step": 3} if memory else {}
    config = SacConfig(**{"clip_epsilon": -1.0, "n_step": 1, "siamese": siamese, **lengths, **options})
    torch.manual_seed(0)
    networks = load_networks(
        spec,
        file,
        NETWORKS,
        rep={"dense_n": 8, **(MEMORIES[memory] if rep is None else rep)},
        q={"dense_n": 8},
        policy={"dense_n": 8},
        seq_encoder=memory,
        context=config.burn_in_step + 1,
    )
    build = Build(
        spec=spec,
        state_size=networks.state_size,
        options=config,
        signals=RewardSignals(),
        make_network=networks.make,
    )
    extension = make_siamese(build)
    return Sac(
        spec, networks, config, device=CPU, seed=seed, extensions=() if extension is None else (extension,)
    )


def make_batch(sac: Sac, obs: ObsSpec = VECTOR, *, n=1, size=8, seed=0, action=None):
    """Windows of which some end early; with memory some begin late, and learned tokens may be missing."""
    window = sac._burn_in + sac._learn + n - 1
    batch = random_batch(size, window, spec=AgentSpec(obs, action or ActionSpec((2, 3), 2)), seed=seed)
    time, row = torch.arange(window + 1), torch.arange(size)[:, None]
    first, missing = (row % 4, row // 2 % 3) if sac._burn_in else (0, (row % 3 == 0).long())
    exists = (time >= first) & (time <= window - missing)
    carry = torch.randn(size, *sac.model.rep.stored_carry_shape)
    return replace(batch, obs_valid=exists, valid=exists[:, :-1] & exists[:, 1:], carry=carry)


@pytest.mark.parametrize("burn_in, learn, n", [(0, 1, 1), (0, 1, 3), (2, 3, 1), (1, 4, 2), (0, 2, 5)])
def test_each_positive_is_the_token_n_steps_later_of_the_same_window(burn_in, learn, n):
    """States count: 100 · window + token. Some tokens are missing in front, others at the end."""
    size, window = 5, burn_in + learn + n - 1
    state = (100 * torch.arange(size)[:, None] + torch.arange(window + 1)).unsqueeze(-1)
    first, last = torch.tensor([0, 1, 2, 0, 1]), torch.tensor([0, 0, 1, 2, 1])
    exists = torch.arange(window + 1) >= first[:, None]
    exists &= torch.arange(window + 1) <= window - last[:, None]
    ctx = SimpleNamespace(
        batch=SimpleNamespace(window=window, obs_valid=exists),
        burn_in=burn_in,
        learn=learn,
        learned=slice(burn_in, burn_in + learn),
    )
    anchor, positive, valid = pairs(ctx, state[:, ctx.learned], state[:, burn_in + 1 :])
    expected = [
        (100 * b + t, 100 * b + t + n, bool(exists[b, t] and exists[b, t + n]))
        for b in range(size)
        for t in range(burn_in, burn_in + learn)
    ]
    assert list(zip(anchor[:, 0].tolist(), positive[:, 0].tolist(), valid.tolist(), strict=True)) == expected


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
        found[b, t - 2] = -torch.stack(scores).softmax(0)[keys.index((b, t))].log()
    loss = extension.contrast(ctx, ctx.states, ctx.states)
    torch.testing.assert_close(loss, window_mean(found, exists[:, 2:5] & exists[:, 4:7]))


def test_more_pairs_than_fit_are_drawn_among_those_that_exist(monkeypatch):
    monkeypatch.setattr(atc, "MAX_PAIRS", 4)
    valid = torch.tensor([True, False, True, True, False, True, True])
    draws = [atc._some(valid, torch.rand(7, generator=torch.Generator().manual_seed(i))) for i in range(30)]
    assert all(valid[one].all() and len(set(one.tolist())) == 4 for one in draws)
    assert {i for one in draws for i in one.tolist()} == {0, 2, 3, 5, 6}
    few = torch.tensor([False, True, False, True, False])
    assert few[atc._some(few, torch.rand(5))].sum() == 2


def recurring(size: int, seed: int):
    """Windows whose two tokens show the same two numbers, each with noise, beside one of noise alone."""
    batch = random_batch(size, 1, spec=AgentSpec(VECTOR, ActionSpec(continuous=2)), seed=seed)
    g = torch.Generator().manual_seed(seed)
    common = torch.randn(size, 1, 2, generator=g) + 0.05 * torch.randn(size, 2, 2, generator=g)
    obs = torch.cat([common, torch.randn(size, 2, 1, generator=g)], -1)
    full = torch.ones(size, 2, dtype=torch.bool)
    return replace(batch, obs={"obs": obs}, obs_valid=full, valid=full[:, 1:])


def train(siamese: str, updates: int) -> tuple[Sac, list[dict[str, torch.Tensor]]]:
    sac = make_sac(siamese, action=ActionSpec(continuous=2), rep={"dense_n": 32, "dense_depth": 1},
                   learning_rate=0.003)  # fmt: skip
    return sac, [sac.update(recurring(64, seed)).metrics for seed in range(updates)]


def test_atc_learns_what_stays_the_same():
    _, metrics = train("ATC", 60)
    before, after = (
        torch.stack([m["siamese/accuracy"] for m in part]).mean() for part in (metrics[:3], metrics[-3:])
    )
    assert before < 0.1 and after > 0.2  # by chance 1/64
    assert metrics[-1]["loss/siamese"] < metrics[0]["loss/siamese"]


def effective_rank(states: torch.Tensor) -> float:
    """exp of the entropy of the covariance's normalised eigenvalues (Roy and Vetterli 2007)."""
    shares = torch.linalg.eigvalsh(states.t().cov()).clamp(min=1e-12)
    shares = shares / shares.sum()
    return (-(shares * shares.log()).sum()).exp().item()


def test_byol_comes_to_agree_with_its_target_without_collapsing():
    fresh, _ = train("BYOL", 0)
    sac, metrics = train("BYOL", 100)
    before, after = (
        torch.stack([m["loss/siamese"] for m in part]).mean() for part in (metrics[:3], metrics[-3:])
    )
    assert before > 0.5 and after < 0.1
    batch = recurring(256, 1000)
    ranks = [effective_rank(one.encode(batch).state[:, 0].detach()) for one in (fresh, sac)]
    assert ranks[0] > 2 and ranks[1] > 0.8 * ranks[0]
    seen = sac.encode(batch).state[:, 0]
    (extension,) = sac.extensions
    assert effective_rank(extension.joint[0](seen).detach()) > 1.5


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
    expected = window_mean(found, batch.obs_valid[:, 2:5])
    torch.testing.assert_close(extension.contrast(ctx, *looks), expected)


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


def test_the_target_projection_of_other_networks_begins_equal_to_theirs():
    trained, _ = train("BYOL", 2)
    sac, _ = train("BYOL", 0)
    sac.begin_with(trained.tensors()["model"], None)
    theirs, own = (one.extensions[0].joint[0].state_dict() for one in (trained, sac))
    for name, target in sac.extensions[0].target_projection.state_dict().items():
        assert torch.equal(target, own[name]) and torch.equal(target, theirs[name])


def test_the_encoder_and_the_joint_parts_learn_and_the_policy_does_not():
    for siamese in KINDS:
        sac = make_sac(siamese)
        ctx = context(sac, make_batch(sac))
        (extension,) = sac.extensions
        loss = extension.auxiliary_losses(ctx)["siamese"]
        for step in sac.optimisers().values():
            step.gradient.zero_()
        loss.backward()
        assert sac.critics.step.gradient[sac.critics.encoder].any()
        assert not sac.critics.step.gradient[sac.critics.encoder.stop :].any()  # the critics
        assert all(p.grad.any() for p in extension.joint.parameters() if p.dim() > 1)
        assert not sac._policy_step.gradient.any()


def test_agreement_of_values_reaches_encoder_and_critics():
    """By hand: online Q of an augmented look against the target's Q of what was seen, of valid positions."""
    sac = make_sac("ATC", siamese_use_q=True, seq_encoder="RNN")
    (extension,) = sac.extensions
    with torch.no_grad():  # the targets have fallen behind
        sac.critics.step.flat.data.add_(0.1 * torch.randn_like(sac.critics.step.flat.data))
    batch = make_batch(sac)
    ctx = context(sac, batch)
    losses = extension.auxiliary_losses(ctx)
    view = extension._view(ctx, ctx.drawn["Atc"]["views"][0])
    valid = batch.valid[:, 2:5]
    difference = ctx.q(view.learned) - sac.critics.taken_q(
        batch, sac.model.target_q.frozen, ctx.states.target_learned
    )
    torch.testing.assert_close(losses["siamese_q"], window_mean(difference.square().mean(0), valid))
    sac.critics.step.gradient.zero_()
    losses["siamese_q"].backward()
    assert sac.critics.step.gradient[sac.critics.encoder].any()
    assert sac.critics.step.gradient[sac.critics.encoder.stop :].any()
    plain = make_sac("ATC", seq_encoder="RNN")
    assert set(plain.extensions[0].auxiliary_losses(context(plain, batch))) == {"siamese"}


@pytest.mark.parametrize("siamese", KINDS)
@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("obs", [VECTOR, IMAGE, MIXED, CHOICE], ids=["vector", "image", "mixed", "choice"])
def test_works_with_every_observation_and_memory_and_padding_changes_nothing(siamese, memory, obs):
    results = []
    for fill in (0, 1):
        sac = make_sac(siamese, obs, seq_encoder=memory, n_step=2, siamese_use_q=True, use_normalization=True)
        for seed in range(2):
            torch.manual_seed(seed)
            batch = make_batch(sac, obs, n=2, seed=seed)
            filled = {name: value.clone() for name, value in batch.obs.items()}
            for value in filled.values():
                value[~batch.obs_valid] = fill
            result = sac.update(replace(batch, obs=filled))
        assert all(value.isfinite().all() for value in result.metrics.values())
        assert {"loss/siamese", "loss/siamese_q"} <= set(result.metrics)
        assert ("siamese/accuracy" in result.metrics) == (siamese == "ATC")
        assert sac.skipped == 0
        results.append({"priority": result.priority, **weights(sac)})
    for name, value in results[0].items():
        assert torch.equal(value, results[1][name]), name


@pytest.mark.parametrize("siamese", KINDS)
def test_windows_of_which_nothing_exists_teach_nothing(siamese):
    sac = make_sac(siamese, siamese_use_q=True)
    batch = make_batch(sac)
    nothing = replace(batch, valid=batch.valid & False, obs_valid=batch.obs_valid & False)
    losses = sac.extensions[0].auxiliary_losses(context(sac, nothing))
    assert [loss.item() for loss in losses.values()] == [0.0, 0.0]
    sac.critics.step.gradient.zero_()
    sum(losses.values()).backward()
    assert not sac.critics.step.gradient.any()


@pytest.mark.parametrize("siamese", KINDS)
@pytest.mark.parametrize("action", [ActionSpec((), 2), ActionSpec((3,)), ActionSpec((2, 3), 1)], ids=str)
@pytest.mark.parametrize("options", [{}, {"discrete_dqn_like": True, "siamese_use_adaptive": True}], ids=str)
def test_works_with_every_action(siamese, action, options):
    sac = make_sac(siamese, action=action, siamese_use_q=True, **options)
    before = weights(sac)
    result = sac.update(make_batch(sac, action=action))
    assert all(value.isfinite().all() for value in result.metrics.values())
    moved = {name for name, value in weights(sac).items() if not torch.equal(value, before[name])}
    assert {"extensions.0.joint.0", "extensions.0.joint.1"} <= {name[:20] for name in moved}


@pytest.mark.parametrize("siamese", KINDS)
@pytest.mark.parametrize("adaptive", [False, True])
def test_an_encoder_without_parameters_is_no_reason_to_fail(siamese, adaptive):
    sac = make_sac(siamese, rep={"dense_depth": 0}, siamese_use_q=True, siamese_use_adaptive=adaptive)
    assert sac.critics.encoder == slice(0, 0)
    for _ in range(2):
        assert all(value.isfinite().all() for value in sac.update(make_batch(sac)).metrics.values())
    assert sac.skipped == 0


OWN = """
from torch import nn


class ModelRepProjection(nn.Module):
    def __init__(self, spec, state_size):
        super().__init__()
        self.net = nn.Linear(state_size, 5)

    def forward(self, state):
        return self.net(state)PROJECTED


class ModelRepPrediction(nn.Module):
    def __init__(self, spec, size):
        super().__init__()
        self.net = nn.Linear(size, size)

    def forward(self, x):
        return self.net(x)
"""


@pytest.mark.parametrize("siamese, sizes", [("ATC", [8]), ("BYOL", [5, 5])])
def test_a_task_s_own_networks_are_taken(tmp_path, siamese, sizes):
    (tmp_path / "nn.py").write_text(OWN.replace("PROJECTED", ""))
    sac = make_sac(siamese, file=tmp_path / "nn.py")
    (extension,) = sac.extensions
    own = [network.net.out_features for network in extension.joint if hasattr(network, "net")]
    assert own == sizes
    assert sac.update(make_batch(sac)).metrics["loss/siamese"].isfinite()


def test_the_defaults_can_be_subclassed_with_other_sizes(tmp_path):
    """In an ``nn.py`` as in a task's, from what ``algorithm.nn`` offers."""
    (tmp_path / "nn.py").write_text(
        "import algorithm.nn as m\n\n\nclass ModelRepProjection(m.ModelRepProjection):\n"
        "    def __init__(self, spec, state_size):\n"
        "        super().__init__(spec, state_size, dense_n=6, out_size=4)\n"
    )
    (extension,) = make_sac("BYOL", file=tmp_path / "nn.py").extensions
    shapes = [tuple(p.shape) for p in extension.joint[0].parameters() if p.dim() > 1]
    assert shapes == [(6, 8), (4, 6)]
    assert {*OPTIONAL, "ImageDecoder"} <= set(m.__all__)


def test_the_file_of_a_wrong_network_is_named(tmp_path):
    (tmp_path / "nn.py").write_text(OWN.replace("PROJECTED", "[:, 0]"))
    with pytest.raises(ModelError, match=r"(?s)ModelRepProjection.*nn\.py.*expected \(2, P\), got \(2,\)"):
        make_sac("BYOL", file=tmp_path / "nn.py")


@pytest.mark.parametrize("siamese", KINDS)
def test_saved_in_the_middle_and_continued_is_trained_straight_through(siamese):
    make = partial(make_sac, siamese, MIXED, siamese_use_q=True, siamese_use_adaptive=True)
    straight, continued = make(), make(seed=9)
    for seed in range(4):
        if seed == 2:
            saved = copy.deepcopy(straight.tensors())
            continued.load_tensors(saved, straight.updates)
        for sac in [straight] + [continued] * (seed >= 2):
            torch.manual_seed(seed)
            sac.update(make_batch(sac, MIXED, seed=seed))
    for name, value in weights(straight).items():
        assert torch.equal(value, weights(continued)[name]), name


def test_what_is_configured_is_what_is_made():
    assert isinstance(make_sac("ATC").extensions[0], Atc)
    assert isinstance(make_sac("BYOL").extensions[0], Byol)
    assert not make_sac(None).extensions
    assert [make_sac("ATC", siamese_use_adaptive=on).extensions[0].gated for on in (False, True)] == [
        False,
        True,
    ]


@pytest.mark.parametrize("key", ["siamese_use_q", "siamese_use_adaptive"])
def test_keys_of_siamese_need_it(key):
    (contradiction,) = SacConfig(**{key: True}).contradictions()
    assert f"{key} changes how siamese trains" in contradiction.why


class Wide(nn.Module):
    """Returns a row too many numbers wide, or one of ``rows`` rows too few."""

    def __init__(self, wide: int = 0, cut: int = 0, single: bool = False) -> None:
        super().__init__()
        self.wide, self.cut, self.single = wide, cut, single

    def forward(self, x: torch.Tensor) -> object:
        y = torch.zeros(len(x) - self.cut, x.shape[1] + self.wide)
        return (y,) if self.single else y


def test_two_views_without_a_contrast_cannot_be_made():
    with pytest.raises(TypeError, match=r"abstract.*contrast"):
        TwoViews(Augmentation(VECTOR, normalised=False), view_loss=no_additional_loss, gated=False)


@pytest.mark.parametrize(
    "siamese, name, network, said",
    [
        ("ATC", "ModelRepPrediction", Wide(wide=1), r"expected \(2, 8\), got \(2, 9\)"),
        ("BYOL", "ModelRepPrediction", Wide(wide=-1), r"expected \(2, 128\), got \(2, 127\)"),
        ("BYOL", "ModelRepProjection", Wide(cut=1), r"expected \(2, P\), got \(1, 8\)"),
        ("BYOL", "ModelRepProjection", Wide(single=True), r"expected \(2, P\), got tuple"),
        ("BYOL", "ModelRepProjection", nn.Linear(3, 3), "RuntimeError"),
    ],
)
def test_wrong_networks_are_refused_by_class_expected_and_got(siamese, name, network, said):
    spec = AgentSpec(VECTOR, ActionSpec(continuous=1))
    defaults = {"ModelRepProjection": ModelRepProjection, "ModelRepPrediction": ModelRepPrediction}

    def make_network(asked: str, *args: object) -> nn.Module:
        return network if asked == name else defaults[asked](*args)

    build = Build(
        spec=spec,
        state_size=8,
        options=SacConfig(siamese=siamese),
        signals=RewardSignals(),
        make_network=make_network,
    )
    with pytest.raises(ModelError, match=f"(?s){name}.*{said}"):
        make_siamese(build)
