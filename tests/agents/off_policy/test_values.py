"""Heads of values: a number, quantiles, a histogram; and the values that they learn."""

import math

import pytest
import torch

from algorithm.agents.off_policy.model import NETWORKS
from algorithm.agents.off_policy.records import CriticTarget
from algorithm.agents.off_policy.values.choice import make_values, with_values
from algorithm.agents.off_policy.values.distributions import CategoricalValues, QuantileValues
from algorithm.agents.sac.config import SacConfig
from algorithm.core import ActionSpec, AgentSpec, ObsSpec, SequenceBatch
from algorithm.core.errors import ModelError
from algorithm.nn.loader import load_networks
from algorithm.nn.protocols import q_size
from algorithm.ops.sac import smallest
from tests.lib.batches import CPU, SMALL, Sac, learning_targets, random_batch, small_sac

HEADS = {
    "scalar": {},
    "quantile": {"value_head": "quantile", "quantile_num": 5, "quantile_drop": 1},
    "categorical": {"value_head": "categorical", "categorical_num": 21},
}
ACTIONS = {
    "continuous": ActionSpec(continuous=2),
    "choice": ActionSpec(branches=(3,)),
    "branches": ActionSpec(branches=(2, 3)),
    "hybrid": ActionSpec(branches=(3,), continuous=1),
}


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("head", HEADS)
def test_the_mean_of_what_was_done_is_its_part_of_all_values(head, action):
    """Reducing over choices before the mean and after it is the same."""
    spec = AgentSpec(SMALL.obs, ACTIONS[action])
    config = SacConfig(**HEADS[head])
    values = make_values(config, spec.action, CPU)
    out = torch.randn(2, 6, q_size(with_values(spec, config).action))
    chosen = random_batch(6, spec=spec).action[:, 0]

    mean = values.mean(values.taken(out, chosen).unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(mean, values.of_action(values.point(out), chosen), atol=1e-5, rtol=1e-5)


def test_quantiles_share_the_outputs_by_value():
    values = QuantileValues(ActionSpec(branches=(2,)), 2, 0, CPU)
    out = torch.tensor([[1.0, 3.0, 10.0, 30.0]])  # two choices of two quantiles each
    assert values.point(out).tolist() == [[2.0, 20.0]]
    assert values.taken(out, torch.tensor([[0.0, 1.0]])).flatten().tolist() == [10.0, 30.0]


def test_the_spread_follows_the_steps():
    """One step: y + γ d (z − z̄); a terminal one has none. Three steps: γ^k Π d."""
    for n, is_used in ((1, True), (3, False)):
        sac = small_sac(n_step=n, use_n_step_is=is_used, gamma=0.9, **HEADS["quantile"])
        batch = random_batch(4, n, exists=torch.tensor([1, n, n, n]))
        batch.terminated[:] = False
        batch.terminated[2, 0] = True
        target = learning_targets(sac, batch)[0]
        widths = target.spread.amax(0) - target.spread.amin(0)
        assert target.spread.shape == (2 * (5 - 1), 4, 1)
        torch.testing.assert_close(target.spread.mean(0), torch.zeros(4, 1), atol=1e-6, rtol=0)
        assert widths[2] == 0 and (widths[[0, 1, 3]] > 0).all()
        whole = small_sac(n_step=n, use_n_step_is=is_used, gamma=1.0, **HEADS["quantile"])
        other = learning_targets(whole, batch)[0]  # the same bootstrap states with γ = 1
        ratio = target.spread[:, [0, 1], 0] / other.spread[:, [0, 1], 0]
        torch.testing.assert_close(ratio, torch.tensor([0.9, 0.9**n]).expand_as(ratio))


def test_a_target_beyond_the_range_counts_as_its_end_and_is_logged():
    values = CategoricalValues(ActionSpec(continuous=1), 5, 1.0, CPU, sigma=0.75, reduce=smallest)
    taken = torch.zeros(1, 5, 4, 1).log_softmax(1)

    def target(y: list[float]) -> CriticTarget:
        return CriticTarget(
            y=torch.tensor(y).view(4, 1),
            spread=None,
            slow_q=None,
            weight=torch.ones(4),
            valid=torch.ones(4, 1, dtype=torch.bool),
            unit=1.0,
        )

    beyond = target([0.0, 7.0, -9.0, 0.5])
    assert torch.equal(values.loss(taken, beyond), values.loss(taken, target([0.0, 1.0, -1.0, 0.5])))
    assert values.metrics(taken, beyond)["value/clamped"] == 0.5


def test_a_row_weighs_as_it_is_drawn():
    values = QuantileValues(ActionSpec(continuous=1), 3, 0, CPU)
    taken, y = torch.randn(2, 3, 2, 1), torch.randn(2, 1)

    def loss(weight: list[float], valid: list[bool]) -> torch.Tensor:
        target = CriticTarget(
            y=y,
            spread=torch.zeros(1, 2, 1),
            slow_q=None,
            weight=torch.tensor(weight),
            valid=torch.tensor(valid).view(2, 1),
            unit=1.0,
        )
        return values.loss(taken, target)

    whole = loss([1.0, 1.0], [True, True])
    torch.testing.assert_close(loss([1.0, 0.0], [True, True]) + loss([0.0, 1.0], [True, True]), whole)
    torch.testing.assert_close(loss([1.0, 1.0], [True, False]), loss([1.0, 0.0], [True, True]))


# ---- a task whose values are known

REWARD = torch.tensor([[0.0, 0.5], [1.0, -0.5]])  # of choice a in state s; the next state is a
GAMMA, ALPHA = 0.5, 0.5


def soft_q() -> torch.Tensor:
    """The soft Q of that task [s, a], by iteration."""
    q = torch.zeros(2, 2)
    for _ in range(100):
        q = REWARD + GAMMA * ALPHA * torch.logsumexp(q / ALPHA, -1)
    return q


def walks(size: int, n: int, generator: torch.Generator) -> SequenceBatch:
    """Windows of n steps by a policy that takes each choice as often."""
    spec = AgentSpec(ObsSpec(("obs",), ((2,),), ("float32",)), ActionSpec(branches=(2,)))
    batch = random_batch(size, n, spec=spec)
    chosen = torch.randint(0, 2, (size, n), generator=generator)
    state = torch.cat([torch.randint(0, 2, (size, 1), generator=generator), chosen], 1)
    batch.obs["obs"][:] = torch.nn.functional.one_hot(state, 2)
    batch.action[:] = torch.nn.functional.one_hot(chosen, 2)
    batch.action_mask[:] = True
    batch.behaviour_logp[:] = math.log(0.5)
    batch.reward[:] = REWARD[state[:, :-1], chosen]
    batch.terminated[:] = False
    batch.weight[:] = 1.0
    return batch


def learned(n: int, *, own_target: bool, updates: int, **head: object) -> torch.Tensor:
    """The values [s, a] after so many updates."""
    spec = AgentSpec(ObsSpec(("obs",), ((2,),), ("float32",)), ActionSpec(branches=(2,)))
    config = SacConfig(
        **{
            "use_normalization": False,
            "n_step": n,
            "gamma": GAMMA,
            "tau": 0.1,
            "use_auto_alpha": False,
            "init_log_alpha": math.log(ALPHA),
            "discrete_soft_target": True,
            "use_target_network": own_target,
            "v_rho": 1e6,  # the policy's own values, not those of one between both
            "learning_rate": 3e-3,
            **head,
        }
    )
    torch.manual_seed(0)
    q = {"hidden": [32]} | ({} if own_target else {"norm": "batch"})
    networks = load_networks(with_values(spec, config), None, NETWORKS, rep={}, q=q, policy={"hidden": [32]})
    sac = Sac(spec, networks, config, device=CPU, seed=0)
    generator = torch.Generator().manual_seed(0)
    for update in range(updates):
        sac.scale_learning_rate(1.0 - update / updates)
        sac.update(walks(64, n, generator))
    states = torch.eye(2)
    with torch.no_grad():
        return sac.values.point(sac.model.q(states, torch.zeros(2, 0))).mean(0)


QUICK = [("quantile", 2, True), ("categorical", 1, True)]
GRID = [(head, n, target) for head in HEADS for n in (1, 2, 5) for target in (True, False)]


@pytest.mark.parametrize(
    "head, n, own_target",
    [*QUICK, *(pytest.param(*one, marks=pytest.mark.slow) for one in GRID if one not in QUICK)],
)
def test_the_soft_values_of_two_states_are_found(head, n, own_target):
    options = HEADS[head] | ({"quantile_drop": 0} if head == "quantile" else {})
    if "categorical_num" in options:
        options |= {"categorical_num": 101}
    found = learned(n, own_target=own_target, updates=1000 if own_target else 1500, **options)
    torch.testing.assert_close(found, soft_q(), atol=0.02 * float(soft_q().abs().max()), rtol=0)


def test_v_trace_has_the_spread_of_one_step():
    sac = small_sac(n_step=3, gamma=0.9, **HEADS["quantile"])
    batch = random_batch(8, 3)
    target = learning_targets(sac, batch)[0]
    assert target.spread.shape == (8, 8, 1)
    assert (target.spread[:, batch.terminated[:, 0]] == 0).all()


def test_a_critic_that_ignores_the_width_is_told_what_needs_it(tmp_path):
    file = tmp_path / "nn.py"
    file.write_text(
        "import algorithm.nn as m\nclass ModelQ(m.ModelQ):\n    forward = lambda self, s, a: s[:, :1]\n"
    )
    spec = with_values(SMALL, SacConfig(value_head="quantile", quantile_num=7))
    with pytest.raises(ModelError, match=r"(?s)wrong shape.*value_head has 7 outputs for each value"):
        load_networks(spec, file, NETWORKS)
