"""TD3: its target and its policy by hand, its delay, what it refuses, a task that it solves."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from algorithm.actions.continuous import NoNoise, SpreadNoise
from algorithm.agents.health import History, Summary
from algorithm.agents.off_policy.update import OffPolicyLearner
from algorithm.agents.sac.config import SacConfig
from algorithm.agents.td3.config import Td3Config, misplaced, shared_keys
from algorithm.agents.td3.family import FAMILIES, TD3, Deterministic, Td3Objective
from algorithm.config.schema import Config
from algorithm.core import ActionSpec, UsageError
from algorithm.nn.protocols import HybridAction, TanhNormal
from main import main
from tests.learning.test_continuous import TARGET, last_eval
from tests.lib.batches import CPU, SMALL, random_batch, small_networks, target_of, weights


def policy_of(*mean: float) -> HybridAction:
    value = torch.tensor([mean]).T
    return HybridAction(continuous=TanhNormal(value, torch.zeros_like(value)))


def small_td3(*, own: Td3Config | None = None, **options: object) -> OffPolicyLearner:
    own = own or Td3Config()
    plain = {"n_step": 1, "use_normalization": False, "reward_scaling": False, **options}
    keys = shared_keys(SimpleNamespace(sac_config=SacConfig(**plain), td3_config=own))
    networks = small_networks(SMALL, keys)
    return OffPolicyLearner(SMALL, networks, keys, Td3Objective(SMALL.action, own), device=CPU, seed=0)


def test_actions_of_targets_have_clipped_noise():
    """σ ε = 0.2 · (1, 4, −4) = (0.2, 0.8, −0.8), clipped to (0.2, 0.5, −0.5); 0.9 + 0.2 is cut to 1."""
    objective = Td3Objective(ActionSpec(continuous=1), Td3Config())
    policy = policy_of(math.atanh(0.9), 0.0, 0.0)
    u, logp = objective.next_action(policy, torch.tensor([[1.0], [4.0], [-4.0]]))
    torch.testing.assert_close(u, torch.tensor([[1.0], [0.5], [-0.5]]))
    assert logp.tolist() == [0.0, 0.0, 0.0]
    torch.testing.assert_close(
        objective.parts.continuous.sample(policy, torch.ones(3, 1))[0][0], torch.tensor([0.9])
    )


def test_the_policy_climbs_the_first_critic():
    """Shares ½ each: −(½ · 3 + ½ · 5) = −4."""
    objective = Td3Objective(ActionSpec(continuous=1), Td3Config())
    q = torch.tensor([[3.0], [5.0]])
    losses = objective.losses(torch.zeros(2), None, q, q[:, 0], torch.tensor([0.5, 0.5]))
    assert losses == {"policy": pytest.approx(-4.0)} and objective.policy_critics == [0]


def test_the_target_is_the_smaller_value_of_the_slow_networks():
    """y = r + γ min_i Q'_i(s', π'(s')) without noise, by the slow policy on states of the slow encoder."""
    td3, batch = small_td3(own=Td3Config(target_noise=0)), random_batch(16)
    with torch.no_grad():
        for parameter in td3.model.policy.parameters():
            parameter.add_(1.0)  # which targets know nothing of
    ctx = td3.encode(batch)
    state = ctx.target_following.flatten(0, 1)
    obs = {name: value[:, 1:].flatten(0, 1) for name, value in ctx.obs.items()}
    with torch.no_grad():
        u = td3.model.target_policy(state, obs).continuous.mean.tanh()
        q = td3.model.target_q(state, u)[..., 0].min(0).values
    y = batch.reward[:, 0] + 0.99 * torch.where(batch.terminated[:, 0], 0.0, q)
    valid = batch.valid[:, 0]
    torch.testing.assert_close(target_of(td3, batch)[:, 0][valid], y[valid])


def test_policy_and_targets_wait_for_two_updates_of_the_critics():
    td3, batch = small_td3(), random_batch(16)
    before = weights(td3)
    td3.update(batch)
    once = weights(td3)
    waiting = [name for name in before if "policy" in name or "target" in name]
    assert waiting and all(torch.equal(before[name], once[name]) for name in waiting)
    assert any(not torch.equal(before[name], once[name]) for name in before)
    td3.update(batch)
    twice = weights(td3)
    moved = {name.split(".")[1] for name in waiting if not torch.equal(once[name], twice[name])}
    assert moved >= {"policy", "target_policy", "target_q"}


def test_noise_is_added_to_actions_and_not_to_greedy_ones():
    """Standard deviation √(0.3² + 0.4²) = 0.5 with action_noise of 0.4."""
    part, normal = Deterministic(0.3), torch.randn(4000, 1, generator=torch.Generator().manual_seed(0))
    zeros = policy_of(*[0.0] * 4000)
    for noise, std in ((NoNoise(), 0.3), (SpreadNoise(0.4, 0.4), 0.5)):
        z, logp = part.act(zeros, normal, noise)
        u = z.tanh()
        inside = u.abs() < 0.999
        assert float(u.mean()) == pytest.approx(0.0, abs=0.03)
        expected = torch.distributions.Normal(0.0, std).log_prob(u)
        torch.testing.assert_close(logp[inside[:, 0]], expected[inside], rtol=1e-4, atol=1e-4)
        assert float((u.abs() < std).float().mean()) == pytest.approx(0.683, abs=0.03)
    greedy, _ = part.act(zeros, None, NoNoise())
    assert not greedy.any() and np.isclose(part.squash(np.float32(0.5)), math.tanh(0.5))


@pytest.mark.parametrize("exploring", [True, False])
def test_there_is_noise_only_while_exploring(exploring):
    """Not in what ``--run`` samples, nor in evaluations."""
    config = SimpleNamespace(td3_config=Td3Config())
    part = TD3.make_parts(ActionSpec(continuous=1), config, exploring).continuous
    z, logp = part.act(policy_of(0.5), torch.ones(1, 1), NoNoise())
    assert logp.isfinite().all() and (float(z) == 0.5) != exploring


def test_discrete_actions_are_refused():
    with pytest.raises(UsageError, match="continuous actions only") as caught:
        Td3Objective(ActionSpec((3,), 1), Td3Config())
    assert "discrete actions" in caught.value.why and "SAC" in caught.value.fix


@pytest.mark.parametrize(
    ("key", "says"),
    [
        ("init_log_alpha", "SAC's temperatures"),
        ("policy_update_per_step", "one delay"),
        ("use_n_step_is", "no density"),
        ("tau", None),
        ("curiosity", None),
    ],
)
def test_keys_that_say_nothing_are_named(key, says):
    found = misplaced("TD3", "sac_config", key)
    assert found is None if says is None else says in found[0]


@pytest.mark.slow
def test_the_best_action_is_found(cwd):
    """The reward is −|a − ½|: always ½ gives 0, uniformly random actions −12.5 in 20 steps."""
    (cwd / "target").mkdir()
    (cwd / "target" / "config.yaml").write_text(TARGET.replace("default:", "default:\n  algorithm: TD3"))
    assert main(["./target", "--seed=1", "--device=cpu", "--quiet"]) == 0
    assert last_eval("target") > -1.5


def test_trouble_is_reported():
    rules, history = FAMILIES["TD3"].health_rules(Config(algorithm="TD3")), History(random_until=0)
    for i in range(12):
        values = {"value/q_mean": 3.0**i}
        values |= {f"rollout/return_{name}": -1.0 - i for name in ("mean", "min", "max")}
        history.add(Summary(1000 * i, {**values, "rollout/length": 10.0}))
    assert "no more than 120 is possible" in rules["diverging"](history)  # 12 / 10 a step · 1 / (1 − γ)
