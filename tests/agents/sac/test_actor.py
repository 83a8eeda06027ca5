"""Acting: what is executed is what is stored, alone or in a crowd."""

import numpy as np
import pytest
import torch

from algorithm.actions.actor import MANY
from algorithm.agents.sac.config import SacConfig
from algorithm.core.spec import Z_LIMIT, ActionSpec, AgentSpec
from algorithm.nn import TanhNormal
from tests.lib.batches import CPU, SMALL, SPECS, small_sac
from tests.lib.batches import sac_actor as new_actor

OBS = SMALL.obs


@pytest.fixture
def networks():
    return small_sac().model


def actor(networks, seed=0, exploring=True, **options):
    return new_actor(SMALL, networks, SacConfig(**options), device=CPU, exploring=exploring, seed=seed)


def act(actor, n=4, **options):
    obs = {"obs": np.random.default_rng(0).normal(size=(n, 3)).astype(np.float32)}
    mask = SMALL.action.all_allowed(n)
    return obs, actor.act(obs, SMALL.action.padding(n), actor.initial_carry(n), mask, **options)


def test_greedy_is_the_mode_and_draws_nothing(networks):
    one = actor(networks)
    before = one.rng.bit_generator.state
    obs, out = act(one, greedy=True)
    mean = networks.policy(torch.from_numpy(obs["obs"]), {}).continuous.mean.detach().numpy()
    np.testing.assert_allclose(out.z, mean, rtol=1e-6)
    assert one.rng.bit_generator.state == before


def test_extreme_policies_are_clamped_and_their_density_stays_finite(networks):
    with torch.no_grad():
        networks.policy.head.continuous.bias.fill_(40.0)
    _, out = act(actor(networks))
    assert np.abs(out.z).max() == Z_LIMIT
    assert np.abs(out.action).max() < 1.0
    assert np.isfinite(out.behaviour_logp).all()


DISCRETE = AgentSpec(OBS, ActionSpec((3, 2)))
HYBRID = AgentSpec(OBS, ActionSpec((3, 2), 2))


def crowd(spec, n=4000, *, exploring=True, seed=0, greedy=False, forbid=(), model=None, **options):
    """What n agents with the same observation do, and the policy's distribution there."""
    model = model or small_sac(spec=spec).model
    one = new_actor(spec, model, SacConfig(**options), device=CPU, exploring=exploring, seed=seed)
    obs = {"obs": np.tile(np.array([[0.3, -1.0, 2.0]], np.float32), (n, 1))}
    mask = spec.action.all_allowed(n)
    mask[:, list(forbid)] = False
    out = one.act(obs, spec.action.padding(n), one.initial_carry(n), mask, greedy=greedy)
    with torch.no_grad():
        policy = model.policy(torch.from_numpy(obs["obs"][:1]), {})
    return out, policy, model


def shares(out, policy, forbid=()):
    """Frequencies of the choices, and π there."""
    logits = policy.logits[0].clone()
    logits[list(forbid)] = -torch.inf
    probs = torch.cat([part.softmax(-1) for part in logits.split([3, 2])]).numpy()
    return out.action[:, :5].mean(0), probs


def test_branches_are_sampled_from_the_policy_and_stored_with_their_probability():
    out, policy, _ = crowd(HYBRID)
    frequency, probs = shares(out, policy)
    np.testing.assert_allclose(frequency, probs, atol=0.03)
    joint = (out.action[:, :5] * np.log(probs)).sum(1)
    np.testing.assert_allclose(out.behaviour_logp[:, 0], joint, rtol=1e-4)
    density = TanhNormal(*(x.expand(4000, -1) for x in vars(policy.continuous).values())).logp(
        torch.from_numpy(out.z)
    )
    np.testing.assert_allclose(out.behaviour_logp[:, 1], density, rtol=1e-4, atol=1e-4)
    assert np.array_equal(out.action[:, 5:], np.tanh(out.z))


@pytest.mark.parametrize(
    "options", [{}, {"discrete_dqn_like": True, "discrete_dqn_epsilon": 0.5}, {"action_noise": [0.9, 0.9]}]
)
def test_what_is_forbidden_is_never_taken(options):
    for greedy in (False, True):
        out, policy, _ = crowd(DISCRETE, forbid=(1, 3), greedy=greedy, **options)
        assert out.action[:, [1, 3]].sum() == 0
        assert (out.action[:, 4] == 1).all() and (out.action[:, :3].sum(1) == 1).all()
    if not options:
        frequency, probs = shares(crowd(DISCRETE, forbid=(1, 3))[0], policy, forbid=(1, 3))
        np.testing.assert_allclose(frequency, probs, atol=0.03)


@pytest.mark.parametrize("spec", [DISCRETE, HYBRID], ids=["discrete", "hybrid"])
def test_dqn_like_agents_take_the_best_mean_value_at_their_own_continuous_action(spec):
    out, _, model = crowd(spec, 50, exploring=False, discrete_dqn_like=True)
    u = torch.from_numpy(out.action[:, 5:])
    with torch.no_grad():
        q = model.q.frozen(torch.tensor([[0.3, -1.0, 2.0]]).expand(50, -1), u).mean(0).numpy()
    for where in spec.action.branch_slices:
        assert np.array_equal(out.action[:, where].argmax(1), q[:, where].argmax(1))
    assert (out.behaviour_logp[:, 0] == 0).all()


def test_epsilon_and_extra_noise_make_each_branch_random_that_often():
    """ε = 0.3 and ν = 0.5 together: 1 − 0.7·0.5 = 0.65 of all choices are uniform."""
    best = crowd(DISCRETE, 1, exploring=False, discrete_dqn_like=True)[0].action[0]
    options = {"discrete_dqn_like": True, "discrete_dqn_epsilon": 0.3, "action_noise": [0.5, 0.5]}
    frequency = crowd(DISCRETE, 8000, **options)[0].action.mean(0)
    uniform = np.array([1 / 3] * 3 + [1 / 2] * 2)
    np.testing.assert_allclose(frequency, 0.35 * best + 0.65 * uniform, atol=0.03)
    assert (crowd(DISCRETE, 50, exploring=False, **options)[0].action == best).all()


def test_action_noise_widens_the_normal_and_mixes_the_branches():
    out, policy, _ = crowd(HYBRID, action_noise=[0.5, 0.5])
    wider = np.sqrt(policy.continuous.log_std.exp().numpy()[0] ** 2 + 0.25)
    np.testing.assert_allclose(out.z.std(0), wider, rtol=0.08)
    frequency, probs = shares(out, policy)
    mixed = 0.5 * probs + 0.5 * np.array([1 / 3] * 3 + [1 / 2] * 2)
    np.testing.assert_allclose(frequency, mixed, atol=0.03)
    joint = (out.action[:, :5] * np.log(mixed)).sum(1)
    np.testing.assert_allclose(out.behaviour_logp[:, 0], joint, rtol=1e-4)
    log_std = torch.from_numpy(np.log(wider)).expand(4000, -1)
    density = TanhNormal(policy.continuous.mean.expand(4000, -1), log_std).logp(torch.from_numpy(out.z))
    np.testing.assert_allclose(out.behaviour_logp[:, 1], density, rtol=1e-3, atol=1e-3)


def test_action_noise_is_spread_from_the_first_agent_to_the_last():
    out, policy, _ = crowd(HYBRID, 3, action_noise=[0.0, 1.0])
    std = policy.continuous.log_std.exp()
    for i, noise in enumerate((0.0, 0.5, 1.0)):
        log_std = (std.square() + noise**2).sqrt().log()
        logp = TanhNormal(policy.continuous.mean, log_std).logp(torch.from_numpy(out.z[i : i + 1]))
        np.testing.assert_allclose(out.behaviour_logp[i, 1], logp.numpy()[0], rtol=1e-3, atol=1e-3)


def journey(spec, sac, steps=6):
    """What 3 agents do in a few steps with random masks, and the actor."""
    one = new_actor(
        spec, sac.model, sac.config, device=CPU, exploring=True, seed=3, extensions=sac.extensions
    )
    rng, outputs = np.random.default_rng(1), []
    action, carry = spec.action.padding(3), one.initial_carry(3)
    for _ in range(steps):
        mask = spec.action.all_allowed(3) & (rng.random((3, spec.action.discrete)) < 0.9)
        out = one.act({"obs": rng.normal(size=(3, 3)).astype(np.float32)}, action, carry, mask)
        action, carry = out.action, out.carry
        outputs.append(out)
    return outputs, one


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("continuous", {}),
        ("discrete", {"seq_encoder": "RNN"}),
        ("branches", {"discrete_dqn_like": True, "discrete_dqn_epsilon": 0.4, "ensemble_q_num": 5}),
        ("hybrid", {"discrete_dqn_like": True, "discrete_dqn_epsilon": 0.4, "ensemble_q_num": 3}),
        ("hybrid", {"use_normalization": True, "action_noise": [0.1, 0.6]}),
        ("hybrid", {"use_rnd": True, "rnd_n_sample": 4}),
    ],
    ids=["plain", "gru", "many critics", "greedy branches", "noise", "rnd"],
)
def test_numpy_computes_what_torch_does(kind, options):
    spec = SPECS[kind]
    sac = small_sac(spec=spec, rep_depth=1, **options)
    sac.model.normaliser.observe({"obs": np.random.default_rng(0).normal(2, 3, (50, 3)).astype(np.float32)})
    found, actor = journey(spec, sac)
    assert actor.way(3) == "numpy"
    sac.model.policy.register_forward_hook(lambda *_: None)
    expected, by_torch = journey(spec, sac)
    assert by_torch.way(3) == "torch: a module has hooks"
    assert actor.rng.bit_generator.state == by_torch.rng.bit_generator.state
    for one, other in zip(found, expected, strict=True):
        for field in ("action", "z", "behaviour_logp", "carry"):
            left, right = getattr(one, field), getattr(other, field)
            assert left.dtype == right.dtype
            np.testing.assert_allclose(left, right, rtol=1e-4, atol=1e-5, err_msg=field)


def test_more_agents_than_numpy_is_sooner_for_act_by_torch(networks):
    one = actor(networks)
    assert one.way(MANY - 1) == "numpy" and one.way(MANY) == "torch: 1,024 rows"
    _, few = act(one, MANY - 1, greedy=True)
    _, many = act(one, MANY, greedy=True)
    np.testing.assert_allclose(many.z[:-1], few.z, rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("error")
def test_the_logarithm_of_0_is_no_warning():
    assert crowd(DISCRETE, 5, forbid=(1, 3))[0].action[:, [1, 3]].sum() == 0


@pytest.mark.parametrize("n", [1, 4])
def test_the_sample_is_that_of_the_distribution(networks, n):
    """Acting leaves out the density of ``rsample``; learning must see the same actions all the same."""
    obs, out = act(actor(networks, seed=5), n)
    with torch.no_grad():
        normal = networks.policy(torch.from_numpy(obs["obs"]), {}).continuous
    noise = np.random.default_rng(5).standard_normal(normal.mean.shape, np.float32)
    z, _ = normal.rsample(torch.from_numpy(noise))
    np.testing.assert_allclose(out.z, z.numpy(), rtol=1e-5)


def test_what_acts_sees_normalised_observations():
    sac = small_sac(use_normalization=True)
    sac.model.normaliser.observe({"obs": np.random.default_rng(1).normal(5.0, 3.0, (50, 3))})
    obs, out = act(actor(sac.model), greedy=True)
    seen = sac.model.normaliser({"obs": torch.from_numpy(obs["obs"])})["obs"]
    mean = sac.model.policy(seen, {}).continuous.mean.detach().numpy()
    np.testing.assert_allclose(out.z, mean, rtol=1e-5)
    assert not np.allclose(seen.numpy(), obs["obs"])
