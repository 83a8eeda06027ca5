"""Rewards with horizons of their own: what their critics learn, and that their sum is what acts."""

import pytest
import torch

from algorithm.extensions.base import Extension, Horizon
from algorithm.keys.signals import CuriositySignal, GailSignal, RewardSignals, RndSignal
from tests.extensions.test_signals import Shown
from tests.lib.batches import (
    CPU,
    SPECS,
    draw_ahead,
    learning_targets,
    random_batch,
    sac_actor,
    saved,
    small_sac,
    small_windows,
)
from tests.lib.oracles import n_step_target

SHORT = Horizon(0.6, ends=False)


class Part(Extension):
    """A share of the environment's reward as a bonus."""

    def __init__(self, share, horizon=None):
        super().__init__()
        self.horizon, self._share = horizon, share

    def reward_bonus(self, ctx):
        return self._share * ctx.batch.reward


def with_part(horizon=SHORT, **options):
    """A learner whose whole reward is that of the further horizon as well."""
    return small_sac(extensions=(Part(1.0, horizon),), **options)


def test_the_horizon_of_the_agent_changes_nothing_to_the_last_bit():
    def signals(gamma):
        own = {"strength": 1.0, "gamma": gamma}
        gail = GailSignal(dense_n=8, **own)
        return RewardSignals(curiosity=CuriositySignal(gamma=gamma), rnd=RndSignal(**own), gail=gail)

    found = []
    for gamma in (None, 0.95):
        sac = small_sac(signals=signals(gamma), curiosity="FORWARD", demonstrations=Shown(), gamma=0.95)
        for seed in range(3):
            sac.update(small_windows(sac, seed=seed))
        found.append(saved(sac))
    assert found[0].keys() == found[1].keys() and not any("signal_q" in name for name in found[0])
    assert all(torch.equal(found[1][name], value) for name, value in found[0].items())


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("ends", [True, False])
def test_its_target_has_its_discount_and_goes_on_behind_an_end_or_not(n, ends):
    """By the loop, from its own target critics at the episode's final observation, without a bonus."""
    sac = with_part(Horizon(0.6, ends), n_step=n, use_n_step_is=False, clip_epsilon=0.2)
    batch = small_windows(sac)
    noise, ctx = draw_ahead(sac, batch), sac.encode(batch)
    _, further = sac.predict_and_target(ctx, sac.next_actions(ctx, noise), None, in_batch=True)[1]
    following = batch.obs["obs"][:, 1:].flatten(0, 1)
    with torch.no_grad():
        u, _ = sac.objective.next_action(sac.model.policy(following, {}), noise)
        value = sac.model.target_critics[1](following, u)[..., 0].amin(0).view(batch.reward.shape)
    ended = batch.terminated if ends else torch.zeros_like(batch.terminated)
    there = (batch.reward, ended, batch.valid, value, torch.zeros_like(value))
    expected = n_step_target(*(x.numpy() for x in there), gamma=0.6, n=n)
    torch.testing.assert_close(further.y, torch.tensor(expected, dtype=torch.float32))
    assert batch.terminated.any()
    slow = sac.model.target_critics[1](batch.obs["obs"][:, 0], batch.action[:, 0])
    torch.testing.assert_close(further.slow_q, slow, msg="what a clip holds its critics near")


def test_priorities_and_the_policy_take_the_sum():
    sac = with_part(use_auto_alpha=False)
    batch = small_windows(sac)
    state, action = batch.obs["obs"][:, 0], batch.action[:, 0]
    saw = sac._generator.get_state()
    y = [target.y for target in learning_targets(sac, batch)]
    sac._generator.set_state(saw)
    with torch.no_grad():
        q = [critics(state, action) for critics in sac.model.critics]
        noise = torch.randn(8, 2)
        loss, _ = sac.policy_losses(batch, {}, state.unsqueeze(1), noise)
        u, logp = sac.objective.next_action(sac.model.policy(state, {}), noise)
        best = sum(critics(state, u)[..., 0].amin(0) for critics in sac.model.critics)
        alpha = sac.objective.continuous.alpha
    torch.testing.assert_close(loss.value, (alpha * logp - best).mean())
    error = sum(one - target for one, target in zip(q, y, strict=True))
    sac._generator.set_state(saw)
    torch.testing.assert_close(sac.td_error(batch), error.abs().mean((0, 2)))
    sac._generator.set_state(saw)
    result = sac.update(batch)
    torch.testing.assert_close(result.priority, error.abs().mean((0, 2)))
    assert {"value/q_mean", "value/q_signal", "loss/q", "loss/q_signal"} <= result.metrics.keys()


def test_greedy_choices_are_those_of_the_sum():
    """1 + 0 of the first choice, 0 + 3 of the second; with one horizon the first is taken."""
    spec = SPECS["discrete"]
    for extensions, best in (((), 0), ((Part(1.0, SHORT),), 1)):
        sac = small_sac(spec=spec, extensions=extensions, discrete_dqn_like=True)
        with torch.no_grad():
            for critics, bias in zip(sac.model.critics, ((1, 0, 0, 0), (0, 3, 0, 0)), strict=False):
                for value in critics.parameters():
                    value.zero_()
                last = [p for p in critics.parameters() if p.shape[-1] == 4][-1]
                last.copy_(torch.tensor(bias).expand_as(last))
        actor = sac_actor(spec, sac.model, sac.config, device=CPU, exploring=False, seed=0)
        out = actor.act(
            {"obs": torch.randn(5, 3).numpy()},
            spec.action.padding(5),
            actor.initial_carry(5),
            spec.action.all_allowed(5),
        )
        assert out.action.argmax(1).tolist() == [best] * 5
        batch = random_batch(8, spec=spec)
        chosen = sac.next_actions(sac.encode(batch), draw_ahead(sac, batch)).probs
        allowed = batch.action_mask[:, 1, best]
        assert chosen[allowed].argmax(1).eq(best).all() and allowed.any()


def test_signals_of_one_horizon_share_their_critics_and_begin_with_takes_all_along():
    signals = RewardSignals(
        curiosity=CuriositySignal(gamma=0.6, ends=False), rnd=RndSignal(strength=1.0, gamma=0.6, ends=False)
    )
    sac = small_sac(signals=signals, curiosity="FORWARD")
    assert [len(one.extensions) for one in sac.horizons] == [0, 2]
    metrics = sac.update(small_windows(sac)).metrics
    assert "value/q_curiosity" in metrics and "value/q_rnd" not in metrics
    other = small_sac(signals=signals, curiosity="FORWARD", seed=3)
    other.begin_with(sac.tensors()["model"], None)
    for online, target in zip(sac.model.critics, other.model.target_critics, strict=True):
        for one, two in zip(online.parameters(), target.parameters(), strict=True):
            torch.testing.assert_close(one, two)


def test_networks_of_signals_take_their_steps_on_demonstrations_of_their_own():
    shown = Shown()
    gail = GailSignal(strength=1.0, dense_n=8)
    sac = small_sac(signals=RewardSignals(updates=3, gail=gail), demonstrations=shown)
    seen = []
    draw = shown.draw
    shown.draw = lambda n, generator: seen.append(draw(n, generator)) or seen[-1]
    sac.update(small_windows(sac))
    steps = {name: float(one.tensors()["step"]) for name, one in sac.optimisers().items()}
    assert steps["gail"] == 3.0 and steps["critic"] == 1.0 and len(seen) == 3
    assert not torch.equal(seen[0].ids, seen[1].ids)


def test_bounds_of_values_are_saved_whether_they_bind_or_not():
    """So a run goes on with γ = 1, and another one begins with its networks."""
    norms = {"q": {"norm": "batch"}, "policy": {"norm": "batch"}}
    learners = [
        with_part(**norms, use_target_network=False),
        with_part(**norms, use_target_network=False, gamma=1.0),
        with_part(),
    ]
    limits = [{n for n in sac.tensors()["model"] if ".bounds." in n} for sac in learners]
    assert limits[0] == limits[1] == limits[2] and len(limits[0]) == 2
    binding = [[critics.bounds is not None for critics in sac.horizons] for sac in learners]
    assert binding == [[True, True], [False, True], [False, False]]
