"""The world model beside SAC: what it is given, what it is compared with, whom its gradient reaches."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from algorithm.agents.config import RewardSignals
from algorithm.agents.off_policy.model import NETWORKS
from algorithm.agents.sac.config import SacConfig
from algorithm.core.errors import ModelError
from algorithm.core.spec import ActionSpec, AgentSpec, ObsSpec
from algorithm.extensions.base import Context
from algorithm.extensions.options import Build
from algorithm.extensions.prediction import Prediction, make_prediction
from algorithm.nn.layers.images import image_layouts
from algorithm.nn.loader import load_networks
from algorithm.nn.models.world import ImageDecoder
from tests.batches import CPU, SMALL, Sac, random_batch, weights

NAMES = {"loss/transition", "loss/reward", "loss/observation"}
MIXED = AgentSpec(
    ObsSpec(
        ("v", "i", "c", "s", "b"),
        ((3,), (3, 9, 11), (2,), (), (2, 2)),
        ("float32", "uint8", "int64", "float32", "int8"),
        ((), (), (2, 3), (), ()),
    ),
    ActionSpec((2, 3), 2),
)
SIZES = {"dense_n": 8}
MEMORIES = {
    None: {},
    "RNN": {"burn_in_step": 1, "learn_step": 2},
    "ATTN": {"burn_in_step": 1, "learn_step": 2},
}


def learner(spec=SMALL, *, file=None, depth=1, seed=0, **options):
    """A learner with the world model; the same at every call."""
    config = SacConfig(**{"use_prediction": True, "n_step": 1, "clip_epsilon": -1.0, **options})
    torch.manual_seed(seed)
    networks = load_networks(
        spec, file, NETWORKS, rep={**SIZES, "dense_depth": depth} if file is None else None,
        q=SIZES, policy=SIZES, seq_encoder=config.seq_encoder, context=config.burn_in_step + 1,
    )  # fmt: skip
    build = Build(
        spec=spec,
        state_size=networks.state_size,
        options=config,
        signals=RewardSignals(),
        make_network=networks.make,
    )
    made = make_prediction(build)
    return Sac(spec, networks, config, device=CPU, seed=0, extensions=(made,) if made else ())


def batch_for(sac, spec=SMALL, *, exists=None, seed=0):
    """Windows of the learner's length, with a carry that fits."""
    window = sac._burn_in + sac._learn
    batch = random_batch(8, window, spec=spec, exists=exists, seed=seed)
    return replace(batch, carry=torch.zeros(8, *sac.model.rep.stored_carry_shape))


class Script(nn.Module):
    """Answers with a function and keeps what it was asked."""

    def __init__(self, answer):
        super().__init__()
        self.answer, self.asked = answer, []

    def forward(self, *args):
        self.asked.append(args)
        return self.answer(*args)


def counting_context(k=2, t=3, n=2):
    """Two windows whose state, observation, action and reward say which row and step they are of.

    Row 0 begins at its second token and is whole; row 1 ends at its fifth. What does not exist is 1000.
    """
    w = k + t + n - 1
    step = torch.arange(w + 1.0).repeat(2, 1) + torch.tensor([[10.0], [20.0]])
    exists = torch.ones(2, w + 1, dtype=torch.bool)
    exists[0, 0] = exists[1, 5:] = False
    valid = exists[:, :-1] & exists[:, 1:]

    def of(x, there):
        return torch.where(there, x, 1000.0).unsqueeze(-1)

    spec = AgentSpec(ObsSpec(("o",), ((1,),), ("float32",)), ActionSpec(continuous=1))
    batch = replace(
        random_batch(2, w, spec=spec),
        obs={"o": of(step + 0.5, exists)},
        action=of(step[:, :-1] * 2, valid),
        reward=of(step[:, :-1] * 3, valid).squeeze(-1),
        obs_valid=exists,
        valid=valid,
    )
    state = of(step, exists).requires_grad_()
    following = of(step[:, k + 1 :], exists[:, k + 1 :]).requires_grad_()
    states = SimpleNamespace(online=state, target_following=following)
    ctx = Context(
        batch=batch, obs=batch.obs, states=states, burn_in=k, learn=t, normalise=None, recode=None,
        q=None, target_q=None,
    )  # fmt: skip
    return spec, ctx


def test_each_model_is_asked_and_answered_at_the_right_token():
    """Predictions that are right only if state, action, reward and next state are of one transition."""
    spec, ctx = counting_context()
    transition = Script(lambda s, a, obs: ((s + a + obs["o"] - 0.5) / 4 + 1, torch.zeros_like(s)))
    reward = Script(lambda s, a: (s + a).squeeze(-1))
    observation = Script(lambda s: {"o": s + 0.5})
    extension = Prediction(spec.obs, transition, reward, observation, kl=0.0, use_extra_data=True)
    losses = extension.auxiliary_losses(ctx)
    constant = math.log(0.55) + 0.5 * math.log(2 * math.pi)  # of a likelihood without an error
    assert losses["transition"].item() == pytest.approx(constant)
    assert losses["reward"].item() == losses["observation"].item() == 0.0
    sum(losses.values()).backward()
    state, action, obs = transition.asked[0]
    assert state.shape == action.shape == obs["o"].shape == (2, 3, 1)
    assert state[0].flatten().tolist() == [12.0, 13.0, 14.0]


def test_losses_by_hand():
    """Row 0 has three transitions, row 1 two: tokens 22 → 23 → 24. Everything is off by one and more."""
    spec, ctx = counting_context()
    networks = (
        Script(lambda s, a, obs: (s - 1.0, torch.zeros_like(s))),  # two too small
        Script(lambda s, a: 3 * s.squeeze(-1) + torch.tensor([[1.0, 2.0, 0.0], [3.0, 1.0, 9.0]])),
        Script(lambda s: {"o": s + 1.5}),
    )
    losses = Prediction(spec.obs, *networks, kl=0.5, use_extra_data=False).auxiliary_losses(ctx)
    var, mean = 0.55**2, [np.array([11.0, 12.0, 13.0]), np.array([21.0, 22.0])]
    nll = 0.5 * 4 / var + math.log(0.55) + 0.5 * math.log(2 * math.pi)
    kl = np.mean([(0.5 * (m**2 + var - 1) - math.log(0.55)).mean() for m in mean])
    assert losses["transition"].item() == pytest.approx(nll + 0.5 * kl, rel=1e-5)
    assert losses["reward"].item() == pytest.approx(((1 + 4 + 0) / 3 + (9 + 1) / 2) / 2)
    assert losses["observation"].item() == pytest.approx(1.0)
    assert networks[0].asked[0][2] == {}  # without extra data the observations are not even handed over


def test_gradient_reaches_learned_states_and_no_target():
    spec, ctx = counting_context()
    factor = nn.Parameter(torch.ones(()))
    extension = Prediction(
        spec.obs,
        Script(lambda s, a, obs: (s * factor, s * factor)),
        Script(lambda s, a: (s * factor).squeeze(-1)),
        Script(lambda s: {"o": s * factor}),
        kl=0.8,
        use_extra_data=True,
    )
    for name, loss in extension.auxiliary_losses(ctx).items():
        ctx.state.grad = None
        loss.backward(retain_graph=True)
        reached = ctx.state.grad.squeeze(-1) != 0
        expected = torch.zeros(2, 7, dtype=torch.bool)
        expected[0, 2:5] = expected[1, 2:4] = True
        assert torch.equal(reached, expected), name
    assert ctx.target_following.grad is None


@pytest.mark.parametrize("kind", MEMORIES)
def test_neither_target_nor_policy_gets_a_gradient(kind):
    sac = learner(MIXED, seq_encoder=kind, **MEMORIES[kind])
    losses = sac.extensions[0].auxiliary_losses(sac.encode(batch_for(sac, MIXED)))
    for step in (sac.critics.step, sac.critics.joint):
        step.gradient.zero_()
    sum(losses.values()).backward()
    assert all(p.grad.any() for p in sac.extensions[0].joint.parameters() if p.dim() > 1)
    assert sum(p.grad.any().item() for p in sac.model.rep.parameters()) > 0
    assert not any(p.grad.any() for p in sac.model.q.parameters())
    others = (sac.model.target_rep, sac.model.target_q, sac.model.policy)
    assert all(p.grad is None or not p.grad.any() for net in others for p in net.parameters())


@pytest.mark.parametrize("kind", MEMORIES)
def test_what_does_not_exist_changes_nothing(kind):
    """Whatever stands where nothing is: losses and all gradients are the same bits."""
    sac = learner(MIXED, seq_encoder=kind, **MEMORIES[kind])
    sac.model.train()
    window = sac._burn_in + sac._learn
    batch = batch_for(sac, MIXED, exists=torch.arange(8) % (window + 1))

    def gradients(batch):
        for step in (sac.critics.step, sac.critics.joint):
            step.gradient.zero_()
        losses = sac.extensions[0].auxiliary_losses(sac.encode(batch))
        sum(losses.values()).backward()
        return [*losses.values(), sac.critics.step.gradient.clone(), sac.critics.joint.gradient.clone()]

    def other(x, there):
        missing = ~there.view(*there.shape, *[1] * (x.dim() - 2)).expand_as(x)
        return torch.where(missing, torch.full_like(x, 1 if not x.is_floating_point() else 7), x)

    changed = replace(
        batch,
        obs={name: other(x, batch.obs_valid) for name, x in batch.obs.items()},
        prev_action=other(batch.prev_action, batch.obs_valid),
        action=other(batch.action, batch.valid),
        reward=other(batch.reward, batch.valid),
    )
    for before, after in zip(gradients(batch), gradients(changed), strict=True):
        assert before.any() and torch.equal(before, after)


@pytest.mark.parametrize("kind", MEMORIES)
def test_losses_fall(kind):
    """On one batch all three learn; what a state may say of the next one is bounded by σ ≥ 0.1."""
    sac = learner(MIXED, seq_encoder=kind, learning_rate=3e-3, transition_kl=0.0, **MEMORIES[kind])
    batch = batch_for(sac, MIXED)
    seen = [
        {k: v.mean().item() for k, v in sac.update(batch).metrics.items() if k in NAMES} for _ in range(40)
    ]
    first, last = seen[0], seen[-1]
    assert set(first) == NAMES
    assert last["loss/reward"] < 0.5 * first["loss/reward"]
    assert last["loss/observation"] < 0.7 * first["loss/observation"]
    assert last["loss/transition"] < first["loss/transition"] - 0.3


@pytest.mark.parametrize("scaled", [True, False])
def test_rewards_are_predicted_on_the_scale_of_values(scaled):
    """With reward_scaling their unit does not decide how much the encoder listens to their model."""
    losses = {}
    for unit in (1.0, 1e4):
        sac = learner(reward_scaling=scaled)
        batch = batch_for(sac)
        batch = replace(batch, reward=batch.reward * unit)
        sac.return_scale.observe(SimpleNamespace(rewards=lambda unit=unit: [(0, 0, [unit, -3 * unit], True)]))
        losses[unit] = sac.extensions[0].auxiliary_losses(sac.encode(batch))["reward"].item()
    assert (losses[1e4] == pytest.approx(losses[1.0], rel=1e-3)) is scaled


def test_the_encoder_learns_from_it():
    """After one update it is another one than the critics alone would have made of it."""
    after = {}
    for on in (True, False):
        sac = learner(use_prediction=on, learning_rate=1e-3)
        sac.update(batch_for(sac))
        after[on] = {name: value for name, value in weights(sac).items() if name.startswith("model.rep")}
    assert after[True] and all(not torch.equal(after[False][name], after[True][name]) for name in after[True])


def test_a_large_kl_pulls_predictions_to_the_standard_normal():
    spreads = {}
    for kl in (0.0, 20.0):
        sac = learner(learning_rate=3e-3, transition_kl=kl, depth=0)
        batch = batch_for(sac)
        for _ in range(30):
            sac.update(batch)
        mean, raw = sac.extensions[0].joint[0](batch.obs["obs"], batch.action.expand(-1, 2, -1), batch.obs)
        spreads[kl] = mean.square().mean().item(), raw.mean().item()
    assert spreads[20.0][0] < 0.2 * spreads[0.0][0] and spreads[20.0][1] > spreads[0.0][1]


BLIND = """
import torch
import algorithm.nn as m


class ModelRep(m.Rep):
    def __init__(self, spec):
        super().__init__(spec)
        self.net = torch.nn.Linear(2, 4)

    def forward(self, obs, prev_action, carry, valid):
        return self.net(obs["seen"]), carry
"""


@pytest.mark.parametrize("extra", [True, False])
def test_only_the_transition_model_sees_what_the_encoder_leaves_out(tmp_path, extra):
    (tmp_path / "nn.py").write_text(BLIND)
    spec = AgentSpec(ObsSpec(("seen", "secret"), ((2,), (3,)), ("float32",) * 2), ActionSpec(continuous=1))
    sac = learner(spec, file=tmp_path / "nn.py", use_extra_data=extra)
    batch = batch_for(sac, spec)
    losses = {}
    for secret in (0.0, 1.0):
        other = replace(batch, obs={**batch.obs, "secret": torch.full_like(batch.obs["secret"], secret)})
        losses[secret] = sac.extensions[0].auxiliary_losses(sac.encode(other))
    assert (losses[0.0]["transition"] != losses[1.0]["transition"]).item() == extra
    assert losses[0.0]["reward"] == losses[1.0]["reward"]
    assert losses[0.0]["observation"] != losses[1.0]["observation"]  # of which the state should know


def test_observations_are_compared_as_networks_see_them():
    """Bytes from 0 to 1, vectors normalised."""
    sac = learner(MIXED, use_normalization=True)
    sac.model.normaliser.observe(
        {name: x.flatten(0, 1).numpy() for name, x in batch_for(sac, MIXED).obs.items()}
    )
    ctx = sac.encode(batch_for(sac, MIXED))
    here = {name: x[:, ctx.learned] for name, x in ctx.obs.items()}
    exact = {**here, "i": here["i"] / 255, "b": here["b"].float()}
    exact["c"] = (
        torch.cat([nn.functional.one_hot(here["c"][..., i], n) for i, n in enumerate((2, 3))], -1) * 50.0
    )
    extension = sac.extensions[0]
    extension.joint[2] = Script(lambda s: exact)
    assert extension.auxiliary_losses(ctx)["observation"].item() == pytest.approx(0.0, abs=1e-6)
    assert here["v"].abs().max() <= 5.0 and not torch.equal(ctx.obs["v"], ctx.batch.obs["v"])


@pytest.mark.parametrize("action", [
    ActionSpec(continuous=2), ActionSpec((3,)), ActionSpec((2, 3)), ActionSpec((2, 3), 2)
], ids=str)  # fmt: skip
@pytest.mark.parametrize("dqn", [False, True])
def test_it_goes_on_exactly_where_it_was_saved(action, dqn):
    spec = AgentSpec(SMALL.obs, action)
    one, other = (learner(spec, discrete_dqn_like=dqn, seed=seed) for seed in (0, 1))
    batches = [batch_for(one, spec, seed=i) for i in range(3)]
    for batch in batches[:2]:
        assert set(one.update(batch).metrics) >= NAMES
    other.load_tensors(one.tensors(), one.updates)
    for sac in (one, other):
        sac.update(batches[2])
    assert any("joint" in name for name in weights(one))
    for name, value in weights(one).items():
        assert torch.equal(value, weights(other)[name]), name


@pytest.mark.parametrize(("shape", "dtype", "stack"), [
    ((3, 40, 40), "uint8", 1), ((20, 33, 3), "uint8", 1), ((4, 9, 13), "float32", 4), ((8, 8), "uint8", 1),
    ((2, 9, 13, 3), "uint8", 2),
])  # fmt: skip
def test_pictures_have_the_shape_in_which_they_are_observed(shape, dtype, stack):
    """Decoded planes are put where the encoder takes them from."""
    layout = image_layouts(ObsSpec(("i",), (shape,), (dtype,), ((),), (stack,)))["i"]
    decoder = ImageDecoder(6, layout)
    assert decoder(torch.randn(2, 3, 6)).shape == (2, 3, *shape)
    picture = torch.rand(2, 3, *shape)
    decoder.net = Script(lambda features: nn.functional.pad(layout.to_planes(picture), (0, 5, 0, 2)))
    assert torch.equal(decoder(torch.randn(2, 3, 6)), picture)


def test_an_image_is_shown_beside_its_reconstruction():
    """The first anchor's: observed on the left, predicted on the right, cut to what a pixel can be."""
    sac = learner(MIXED)
    extension = sac.extensions[0]
    assert extension.pictures() == {}
    decoder = extension.joint[2]
    extension.joint[2] = Script(lambda s: {**decoder(s), "i": torch.full((*s.shape[:2], 3, 9, 11), 2.0)})
    batch = batch_for(sac, MIXED)
    sac.update(batch)
    ((name, picture),) = extension.pictures().items()
    assert name == "observation/i" and picture.dtype == torch.uint8 and picture.shape == (9, 22, 3)
    assert torch.equal(picture[:, :11], batch.obs["i"][0, 0].permute(1, 2, 0))
    assert (picture[:, 11:] == 255).all()


def test_nothing_is_made_unless_asked_for():
    build = Build(
        spec=SMALL,
        state_size=3,
        options=SacConfig(),
        signals=RewardSignals(),
        make_network=partial(pytest.fail, "made"),
    )
    assert make_prediction(build) is None


WRONG = {
    "ModelReward": ("state, action", "action[..., :1]", r"shape of reward.*\(2, 3\), got \(2, 3, 1\)"),
    "ModelTransition": (
        "state, action, obs",
        "state, state[..., :1]",
        r"raw_std.*\(2, 3, 3\), got \(2, 3, 1\)",
    ),
    "ModelObservation": ("state", "{'image': state}", r"wrong value.*expected obs, got image"),
}
"""Class -> arguments, what it returns, and the message."""


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("fails", [False, True])
def test_networks_of_wrong_shapes_are_named(tmp_path, name, fails):
    args, answer, message = WRONG[name]
    result = "nothing" if fails else answer
    (tmp_path / "nn.py").write_text(
        f"import torch\nclass {name}(torch.nn.Module):\n"
        f"    def __init__(self, *args):\n        super().__init__()\n"
        f"    def forward(self, {args}):\n        return {result}\n"
    )
    with pytest.raises(ModelError) as raised:
        learner(file=tmp_path / "nn.py")
    text = str(raised.value)
    assert f"{name}.forward" in text and "nn.py" in text
    if fails:
        assert "nn.py:6" in text and "NameError" in text
    else:
        assert re.search(message, text, re.DOTALL), text
