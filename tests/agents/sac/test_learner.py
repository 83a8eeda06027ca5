"""The learner against the paper's algorithm box, and what must hold whatever the options."""

import copy

import pytest
import torch

from algorithm.agents.off_policy.records import CriticTarget
from algorithm.agents.off_policy.values.scalar import ClippedValues
from algorithm.core.spec import ActionSpec, AgentSpec
from algorithm.extensions.base import Context, Extension
from algorithm.nn.layers.noisy import LayerNoise, NoisyLinear
from algorithm.nn.learning.optimiser import BETA_2
from algorithm.ops.sac import smallest
from tests.agents.oracles import PlainSac
from tests.lib.batches import (
    SMALL,
    Sac,
    random_batch,
    small_sac,
    update_policy,
    weights,
)


def test_update_is_the_algorithm_of_the_paper():
    """Ten updates of the flat, fused learner equal those of plain modules with an Adam each."""
    sac = small_sac(seed=5, learning_rate=0.01, tau=0.1, gamma=0.9, init_log_alpha=-1.0)
    critics = [copy.deepcopy(member) for member in sac.model.q._members[0]]
    plain = PlainSac(
        critics,
        sac.model.policy,
        gamma=0.9,
        tau=0.1,
        learning_rate=0.01,
        log_alpha=-1.0,
        target_entropy=-2.0,
    )
    noise = torch.Generator().manual_seed(5)
    for step in range(10):
        batch = random_batch(16, seed=step)
        result = sac.update(batch)
        td_error = plain.update(batch, lambda: torch.randn(16, 2, generator=noise))
        torch.testing.assert_close(result.priority, td_error.abs().mean(0), atol=1e-5, rtol=1e-4)
    for index, critic in enumerate(plain.critics):
        for name, value in critic.named_parameters():
            stacked = sac.model.q.get_parameter(name.replace(".", "/"))[index]
            torch.testing.assert_close(stacked, value, atol=1e-5, rtol=1e-4)
    for own, value in zip(sac.model.policy.parameters(), plain.policy.parameters(), strict=True):
        torch.testing.assert_close(own, value, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(sac.objective.continuous.log_alpha, plain.log_alpha)


@pytest.mark.parametrize("rate, moved", [(0.05, 0.05), (None, 0.01)])
def test_temperatures_have_a_step_size_of_their_own(rate, moved):
    """Adam's first step is as long as its learning rate, whatever the gradient."""
    sac = small_sac(
        spec=AgentSpec(SMALL.obs, ActionSpec((3,), 2)), learning_rate=0.01, alpha_learning_rate=rate
    )
    before = weights(sac)
    sac.update(random_batch(spec=AgentSpec(SMALL.obs, ActionSpec((3,), 2))))
    for name, value in weights(sac).items():
        longest = (value - before[name]).abs().max().item()
        if "log_alpha" in name:
            assert longest == pytest.approx(moved, rel=1e-3)
        elif name.startswith("model.policy"):
            assert longest == pytest.approx(0.01, rel=1e-3)


def test_a_subset_of_one_critic_gives_that_critics_value():
    """With M = 1 of 3 the target takes each critic in turn, never a minimum over others."""
    sac = small_sac(ensemble_q_num=3, ensemble_q_sample=1)
    assert {tuple(sac.draw_subset().tolist()) for _ in range(50)} == {(0,), (1,), (2,)}
    state, action = torch.randn(4, 3), torch.rand(4, 2)
    for index in range(3):
        value = sac.model.target_q.frozen(state, action, members=[index]).squeeze(0)
        torch.testing.assert_close(value, sac.model.target_q.frozen(state, action)[index])


def test_an_encoder_with_parameters_is_trained_by_the_critics_alone():
    sac = small_sac(rep_depth=1)
    encoder = copy.deepcopy(sac.model.rep)
    update_policy(sac, random_batch())
    for own, before in zip(sac.model.rep.parameters(), encoder.parameters(), strict=True):
        assert torch.equal(own, before)


def test_online_networks_train_inside_an_update_only_and_targets_never():
    sac = small_sac(rep_depth=1, clip_epsilon=0.2)
    model = sac.model
    seen: dict[str, set[bool]] = {}
    parts = {
        "rep": [model.rep],
        "policy": [model.policy],
        "q": [*model.q._members[0], *model.q._members[1]],
        "target_rep": [model.target_rep],
        "target_q": [*model.target_q._members[0], *model.target_q._members[1]],
    }
    for name, modules in parts.items():
        for module in modules:
            module.register_forward_pre_hook(
                lambda m, _, name=name: seen.setdefault(name, set()).add(m.net.training)
            )
    sac.update(random_batch())
    assert seen == {"rep": {True}, "policy": {True}, "q": {True}, "target_rep": {False}, "target_q": {False}}
    seen.clear()
    sac.td_error(random_batch())
    assert set.union(*seen.values()) == {False}


def test_noise_in_layers_is_drawn_anew_for_every_update():
    sac = small_sac()
    layer = NoisyLinear(3, 3)
    sac.model.policy.net.insert(0, layer)
    sac.layer_noise = LayerNoise([sac.model.policy], on=True)
    drawn = []
    for _ in range(2):
        sac.update(random_batch())
        drawn.append(layer.noise_in.clone())
    assert not torch.equal(*drawn) and drawn[0].abs().min() > 0


HYBRID = AgentSpec(SMALL.obs, ActionSpec(branches=(2, 3), continuous=2))


def counts(sac: Sac) -> tuple[float, float, float]:
    """Steps that critics, policy and temperature have taken."""
    return tuple(float(adam.tensors()["step"]) for adam in list(sac.optimisers().values())[:3])


def test_the_policy_takes_every_third_step():
    sac = small_sac(policy_update_per_step=3)
    named = []
    for step in range(10):
        before = sac._generator.get_state()
        metrics = sac.update(random_batch(seed=step)).metrics
        named.append("loss/policy" in metrics and "policy/entropy_c" in metrics)
        assert not torch.equal(sac._generator.get_state(), before)  # the targets' actions
    assert counts(sac) == (10, 3, 3)
    assert named == [(step + 1) % 3 == 0 for step in range(10)]


@pytest.mark.parametrize("drawn", [2, 3])
@pytest.mark.parametrize("reduce", ["min", "mean"])
def test_targets_and_policy_take_the_minimum_or_the_mean(reduce, drawn):
    sac = small_sac(ensemble_q_num=3, ensemble_q_sample=drawn, ensemble_q_reduce=reduce)
    q = torch.tensor([[1.0, 5.0], [2.0, 3.0], [6.0, 4.0]])
    least = [1.0, 3.0] if reduce == "min" else [3.0, 4.0]
    assert sac.values.reduce(q).tolist() == least
    # REDQ: the policy climbs the mean of all where targets have a subset
    assert sac.policy_reduce(q).tolist() == (least if drawn == 3 else [3.0, 4.0])


def test_matrices_decay_and_nothing_else():
    sac = small_sac(spec=HYBRID, rep_depth=1, weight_decay=0.5, learning_rate=0.1)
    plain = small_sac(spec=HYBRID, rep_depth=1, learning_rate=0.1)
    for one in (sac, plain):  # without a gradient Adam leaves everything
        for adam in (one.critic_optimiser, one.policy_optimiser):
            adam.gradient.zero_()
            adam.step_along(adam.gradient)
    for name, value in weights(plain).items():
        if name.startswith(("model.rep", "model.q.", "model.policy")) and name.endswith("weight"):
            value = value * (1 - 0.1 * 0.5)
        torch.testing.assert_close(weights(sac)[name], value, msg=name)


def test_every_optimiser_has_the_same_mean_of_gradients():
    sac = small_sac(adam_beta_1=0.5)
    sac.update(random_batch())
    for adam in sac.optimisers().values():
        mean, square = (adam.tensors()[name] for name in ("exp_avg", "exp_avg_sq"))
        torch.testing.assert_close(mean.square() / 0.25, square / (1.0 - BETA_2), rtol=1e-4, atol=1e-12)


def gradients(sac: Sac) -> tuple[torch.Tensor, list[float]]:
    """Return the gradients of the policy's network and of each log α."""
    return sac.policy_optimiser.gradient.clone(), sac.alpha_optimiser.gradient.tolist()


@pytest.mark.parametrize("limit", [0.01, 1e-6])
def test_the_gradient_of_a_temperature_is_neither_clipped_nor_clips_that_of_the_policy(limit):
    """However far the entropy is from its target."""
    spec = AgentSpec(SMALL.obs, ActionSpec((3,), 2))
    found = []
    for target in (1.0, 1000.0):
        sac = small_sac(spec=spec, max_grad_norm=limit, target_c_alpha=target)
        sac.update(random_batch(spec=spec))
        policy, temperatures = gradients(sac)
        assert policy.norm().item() == pytest.approx(limit, rel=1e-4)
        found.append((policy, temperatures))
        free = small_sac(spec=spec, target_c_alpha=target)
        free.update(random_batch(spec=spec))
        assert gradients(free)[1] == temperatures and gradients(free)[0].norm() > limit
    assert torch.equal(found[0][0], found[1][0])
    assert abs(found[1][1][1]) > 1000, "the second is that of the continuous part"


def flat_hash(sac: Sac) -> torch.Tensor:
    return torch.cat([value.double().flatten() for value in weights(sac).values()])


def test_td_error_is_the_priority_of_the_next_update_and_changes_no_weight():
    sac = small_sac(n_step=2)
    batch, before, state = random_batch(8, 2), flat_hash(sac), sac._generator.get_state()
    error = sac.td_error(batch)
    assert torch.equal(flat_hash(sac), before)
    sac._generator.set_state(state)
    torch.testing.assert_close(error, sac.update(batch).priority)


class Bonus(Extension):
    """A constant reward; remembers the rewards before."""

    def __init__(self, bonus: float) -> None:
        super().__init__()
        self.bonus, self.seen = bonus, []

    def reward_bonus(self, ctx: Context) -> torch.Tensor:
        self.seen.append(ctx.batch.reward.clone())
        return torch.full_like(ctx.batch.reward, self.bonus)


def test_a_bonus_is_added_once_to_a_new_tensor():
    batch = random_batch()
    plain, curious = small_sac(), small_sac(extensions=(Bonus(2.0), Bonus(3.0)))
    difference = curious.update(batch).metrics["value/target"] - plain.update(batch).metrics["value/target"]
    torch.testing.assert_close(difference, torch.full_like(difference, 5.0))
    assert torch.equal(curious.extensions[1].seen[0], batch.reward)


def test_networks_of_another_size_are_refused():
    with pytest.raises(ValueError, match="do not fit"):
        small_sac(rep_depth=1).load_model(small_sac().tensors()["model"])


def test_the_share_that_is_clipped_counts_what_exists():
    """Of two critics at three positions, the last is padding: one of four lies beyond the clip."""
    q = torch.tensor([[[1.0, 0.0, 1.0]], [[0.0, 0.0, 1.0]]])
    y, target, valid = torch.full((1, 3), 2.0), torch.zeros(2, 1, 3), torch.tensor([[True, True, False]])
    learned = CriticTarget(y=y, spread=None, slow_q=target, weight=torch.ones(1), valid=valid, unit=1.0)
    assert ClippedValues(SMALL.action, smallest, 0.2).metrics(q, learned) == {"value/clipped": 0.25}
