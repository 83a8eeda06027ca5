"""Discrete, branched, hybrid and masked agents: the learner against plain code, and what holds for all."""

import math

import pytest
import torch

from algorithm.actions.parts import DiscretePolicy
from algorithm.agents.off_policy.values.scalar import ScalarValues
from algorithm.agents.sac.config import SacConfig
from algorithm.agents.sac.sac import SacObjective
from algorithm.core.spec import ActionSpec, AgentSpec
from algorithm.nn.protocols import HybridAction, TanhNormal
from algorithm.ops.sac import smallest
from algorithm.ops.shapes import valid_share
from tests.lib.batches import SMALL, random_batch, small_sac, target_of, update_policy
from tests.lib.oracles import n_step_target, vtrace_target

OBS = SMALL.obs
ONE = AgentSpec(OBS, ActionSpec((4,)))
BRANCHES = AgentSpec(OBS, ActionSpec((3, 2)))
HYBRID = AgentSpec(OBS, ActionSpec((3, 2), 2))
KINDS = {"continuous": SMALL, "one": ONE, "branches": BRANCHES, "hybrid": HYBRID}


def each_branch(spec: AgentSpec, row: torch.Tensor) -> list[torch.Tensor]:
    return [row[where] for where in spec.action.branch_slices]


def plain_policy(logits: torch.Tensor, mask: torch.Tensor, spec: AgentSpec) -> list[torch.Tensor]:
    """π_b of one state as full vectors, by torch's own softmax on the allowed choices."""
    result = []
    for part, allowed in zip(each_branch(spec, logits), each_branch(spec, mask), strict=True):
        probs = torch.zeros(len(part))
        probs[allowed] = part[allowed].softmax(-1)
        result.append(probs)
    return result


def at_state(sac, spec: AgentSpec, batch, states, at: tuple[int, int], noise) -> list[torch.Tensor]:
    """V(s), h(s) and log π/μ of the action stored there, of one state; states: online and target ones."""
    (online, target), keys, num = (one[at] for one in states), sac.config, len(spec.action.branches)
    policy, mask, stored = sac.model.policy(online, {}), batch.action_mask[at], at[1] < batch.window
    u, log_ratio, h = torch.zeros(0), torch.zeros(()), torch.zeros(())
    if policy.continuous is not None:
        z = policy.continuous.mean + policy.continuous.log_std.exp() * noise
        u, h = z.tanh(), -sac.objective.continuous.alpha * policy.continuous.logp(z)
        if stored:
            log_ratio += policy.continuous.logp(batch.z[at]) - batch.behaviour_logp[at][-1]
    q = sac.model.target_q.frozen(target, u).amin(0)
    if not num:
        return [q.squeeze(-1) + h, h, log_ratio]
    if keys.discrete_dqn_like:
        mean_q = sac.model.q.frozen(online, u).mean(0).masked_fill(~mask, -torch.inf)
        chosen = [torch.eye(len(p))[p.argmax()] for p in each_branch(spec, mean_q)]
    else:
        chosen = plain_policy(policy.logits, mask, spec)
        entropy = sum(torch.distributions.Categorical(p).entropy() for p in chosen) / num
        h = h + keys.discrete_soft_target * sac.objective.discrete.alpha * entropy
        if stored:
            taken = each_branch(spec, batch.action[at])
            log_ratio += sum(p[t.argmax()].log() for p, t in zip(chosen, taken, strict=True))
            log_ratio -= batch.behaviour_logp[at][0]
    value = sum((p * part).sum() for p, part in zip(chosen, each_branch(spec, q), strict=True)) / num
    return [value + h, h, log_ratio]


@pytest.mark.parametrize(
    ("kind", "use_is", "greedy", "soft"),
    [
        ("continuous", True, False, True),
        ("continuous", False, False, True),
        ("continuous", "sampled", False, True),
        ("one", True, False, False),
        ("branches", True, False, True),
        ("branches", True, True, True),
        ("hybrid", True, False, True),
        ("hybrid", True, False, False),
        ("hybrid", True, True, True),
        ("hybrid", False, False, True),
        ("hybrid", "sampled", False, True),
    ],
)
@torch.no_grad()
def test_the_target_is_that_of_loops_over_states_and_branches(kind, use_is, greedy, soft):
    """n = 3 with an encoder: every V, h and ratio from a single state at a time."""
    spec = KINDS[kind]
    options = {"n_step": 3, "use_n_step_is": use_is, "rep_depth": 1, "v_lambda": 0.9, "init_log_alpha": -0.5}
    sac = small_sac(spec=spec, discrete_dqn_like=greedy, discrete_soft_target=soft, **options)
    sac.model.target.flat.data.add_(0.1 * torch.randn_like(sac.model.target.flat.data))
    batch = random_batch(8, 3, spec=spec, seed=7, exists=torch.tensor([1, 2, 3, 3, 3, 2, 3, 3]))
    state = sac._generator.get_state()
    y = target_of(sac, batch)
    noise = torch.randn(24, spec.action.continuous, generator=sac._generator.set_state(state)).view(8, 3, -1)
    inputs = (batch.obs, batch.prev_action, batch.carry, batch.obs_valid)
    states = sac.model.rep(*inputs)[0], sac.model.target_rep(*inputs)[0]
    found = [
        [at_state(sac, spec, batch, states, (b, t), noise[b, t - 1]) for t in (1, 2, 3)] for b in range(8)
    ]
    value, bonus, log_ratio = torch.tensor(found).unbind(-1)
    arrays = [x.double().numpy() for x in (batch.reward, batch.terminated, batch.valid, value, bonus)]
    common = {"gamma": 0.99, "n": 3}
    if use_is == "sampled":
        coins = torch.rand((8, 2), generator=sac._generator)
        follows = coins < 0.9 * log_ratio[:, :2].exp()
        assert 0.2 < follows[:, 0].float().mean() < 0.8
        arrays[2] = arrays[2].astype(bool)
        arrays[2][:, 1:] &= follows.cumprod(1).bool().numpy()
        expected = n_step_target(*arrays, **common)
    elif use_is:
        ratio = log_ratio[:, :2].exp().numpy()
        expected = vtrace_target(*arrays, ratio, trace_decay=0.9, rho_max=1.0, c_max=1.0, **common)
    else:
        expected = n_step_target(*arrays, **common)
    torch.testing.assert_close(y, torch.from_numpy(expected).float(), rtol=1e-4, atol=1e-4)


def composition(spec: AgentSpec, **options):
    return SacObjective(spec.action, SacConfig(**options))


def expected(q, choice):
    """R(q, π) without gradient to π, as an update computes it."""
    return ScalarValues(HYBRID.action, smallest).expected(q, choice.probs.detach())


def parts_of_hybrid(p: int = 16):
    g = torch.Generator().manual_seed(3)
    normal = TanhNormal(torch.randn(p, 2, generator=g), torch.randn(p, 2, generator=g) - 1)
    logits, q = torch.randn(p, 5, generator=g), torch.randn(p, 5, generator=g)
    valid = valid_share(torch.rand(p, generator=g) < 0.8, q.dtype)
    return normal, logits, q, valid, torch.ones(p, 5, dtype=torch.bool)


def test_the_continuous_part_moves_no_logits_and_the_discrete_part_no_mean():
    """R(q̂, π.detach()) in one loss, q̂.detach() in the other (design, the policy's loss)."""
    normal, logits, _, valid, mask = parts_of_hybrid()
    hybrid, only_d = composition(HYBRID), composition(BRANCHES)
    only_c = composition(AgentSpec(OBS, ActionSpec(continuous=2)))
    mean, logits = normal.mean.requires_grad_(), logits.requires_grad_()
    policy = HybridAction(TanhNormal(mean, normal.log_std), logits)
    u, logp = hybrid.next_action(policy, torch.randn(16, 2, generator=torch.Generator().manual_seed(0)))
    q = torch.cat([u, u.square(), u.sum(-1, keepdim=True)], -1)
    choice = hybrid.parts.discrete.distribution(policy, mask, None)
    value = expected(q, choice)
    discrete = only_d.losses(logp, choice, q, value, valid)["policy"]
    continuous = only_c.losses(logp, None, q, value, valid)["policy"]
    of_both = hybrid.losses(logp, choice, q, value, valid)
    of_each = [part.losses(logp, choice, q, value, valid)["alpha"] for part in (only_d, only_c)]
    torch.testing.assert_close(of_both["alpha"], sum(of_each), msg="each has its own temperature")
    together = of_both["policy"]

    def gradient(loss: torch.Tensor, of: torch.Tensor) -> torch.Tensor | None:
        return torch.autograd.grad(loss, of, retain_graph=True, allow_unused=True)[0]

    assert gradient(discrete, mean) is None and gradient(continuous, logits) is None
    torch.testing.assert_close(gradient(together, mean), gradient(continuous, mean))
    torch.testing.assert_close(gradient(together, logits), gradient(discrete, logits))


def test_one_branch_is_a_plain_categorical():
    """SAC-discrete (arXiv 1910.07207, equations 10 to 12) on one state at a time."""
    sac = small_sac(spec=ONE, init_log_alpha=-1.0, target_d_alpha=0.3)
    batch = random_batch(8, 1, spec=ONE)
    alpha, objective = math.exp(-1.0), sac.objective
    with torch.no_grad():
        logits = sac.model.policy(batch.obs["obs"][:, 0], {}).logits
        q = sac.model.q.frozen(batch.obs["obs"][:, 0], torch.zeros(8, 0)).amin(0)
        policy = HybridAction(logits=logits)
        choice = objective.parts.discrete.distribution(policy, batch.action_mask[:, 0], None)
        losses = objective.losses(torch.zeros(8), choice, q, expected(q, choice), torch.full((8,), 1 / 8))
    policy = alpha_loss = 0.0
    for b in range(8):
        allowed = batch.action_mask[b, 0]
        plain = torch.distributions.Categorical(logits=logits[b][allowed])
        policy += (plain.probs * (alpha * plain.logits - q[b][allowed])).sum().item() / 8
        target = 0.3 * math.log(int(allowed.sum()))
        alpha_loss += -1.0 * (plain.entropy().item() - target) / 8
    assert losses["policy"].item() == pytest.approx(policy, rel=1e-5)
    assert losses["alpha"].item() == pytest.approx(alpha_loss, rel=1e-5)


@pytest.mark.parametrize(("gap", "grows"), [(1.0, False), (20.0, True)])
def test_a_temperature_that_is_high_enough_waits_for_a_policy_that_was_certain(gap, grows):
    """Of q/α = 1 the softmax has 0.58 nats, of 20 none, and half of log 2 is the target."""
    spec = AgentSpec(ONE.obs, ActionSpec((2,)))
    objective = small_sac(spec=spec, init_log_alpha=0.0, target_d_alpha=0.5).objective
    log_probs = torch.tensor([[0.0, -50.0]])
    choice = DiscretePolicy(probs=log_probs.exp(), log_probs=log_probs, mask=log_probs > -torch.inf)
    q, zero = torch.tensor([[gap, 0.0]]), torch.zeros(1)
    losses = objective.losses(zero, choice, q, zero, torch.ones(1))
    (slope,) = torch.autograd.grad(losses["alpha"], objective.discrete.log_alpha)
    assert slope.item() == pytest.approx(-0.5 * math.log(2.0) if grows else 0.0, abs=1e-4)


@pytest.mark.parametrize("greedy", [False, True])
def test_each_token_has_its_own_mask(greedy):
    """What is forbidden in the learned state alone has no influence on what the policy learns there."""
    results = []
    for offset in (0.0, 50.0):
        sac = small_sac(spec=HYBRID, discrete_dqn_like=greedy)
        batch = random_batch(16, 1, spec=HYBRID)
        mask = torch.ones_like(batch.action_mask)
        mask[:, 0, 0] = False
        object.__setattr__(batch, "action_mask", mask)
        _shift(sac, torch.tensor([offset, 0.0, 0.0, 0.0, 0.0]))
        update_policy(sac, batch)
        results.append(torch.cat([p.flatten() for p in sac.model.policy.net.parameters()]))
    torch.testing.assert_close(*results)


def _shift(sac, forbidden: torch.Tensor) -> None:
    with torch.no_grad():
        sac.model.policy.head.discrete.bias += forbidden
        for q in (sac.model.q, sac.model.target_q):
            q.get_parameter("net/4/bias").add_(forbidden)
