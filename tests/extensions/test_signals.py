"""Reward signals: what is rewarded, what learns from it, and at which step size."""

from dataclasses import replace
from functools import partial

import pytest
import torch

from algorithm.core import AgentSpec, SequenceBatch
from algorithm.extensions.curiosity import RND, RndBonus
from algorithm.extensions.gail import Gail
from algorithm.keys.signals import ExtrinsicSignal, GailSignal, RewardSignals, RndSignal
from algorithm.ops.imitation import airl_reward, gail_reward
from tests.lib.batches import SMALL, Sac, context, random_batch, saved, small_sac, small_windows

make_agent = partial(small_sac, rep_depth=1, n_step=2)


class Shown:
    """Random demonstrated windows, all of whose transitions are learned from."""

    def __init__(self, spec: AgentSpec = SMALL, window: int = 1) -> None:
        self.batch, self.learned = random_batch(64, window, spec=spec, seed=99), slice(0, window)
        self.drawn = 0

    def draw(self, n: int, generator: torch.Generator) -> SequenceBatch:
        self.drawn += n
        return self.batch.rows(torch.randint(64, (n,), generator=generator))


def gail(**keys) -> RewardSignals:
    return RewardSignals(gail=GailSignal(**{"strength": 1.0, "dense_n": 16, **keys}))


def only_gail(sac: Sac) -> Gail:
    (found,) = (one for one in sac.extensions if isinstance(one, Gail))
    return found


@pytest.mark.parametrize("strength", [0.0, 0.25, 3.0])
def test_the_environment_s_reward_is_multiplied_and_nothing_else(strength):
    """Rewards times s with the signal's strength 1 are rewards with strength s, to the last bit for 0."""
    signals = RewardSignals(extrinsic=ExtrinsicSignal(strength=strength))
    weighed, plain = make_agent(signals=signals), make_agent()
    batch = small_windows(plain)
    weighed.update(batch)
    plain.update(replace(batch, reward=batch.reward * strength))
    for name, value in plain.tensors()["model"].items():
        torch.testing.assert_close(weighed.tensors()["model"][name], value, atol=1e-6, rtol=1e-5, msg=name)
    bonus = weighed.extensions[0].reward_bonus(context(weighed, batch))
    assert strength or not (batch.reward + bonus).any()


@pytest.mark.parametrize("form", ["GAIL", "AIRL"])
def test_the_reward_is_that_of_the_discriminator_now(form):
    sac = make_agent(signals=gail(form=form, strength=0.5), demonstrations=Shown())
    one, batch = only_gail(sac), small_windows(sac)
    for _ in range(2):
        sac.update(batch)
        ctx = context(sac, batch)
        transitions = torch.cat([batch.obs["obs"][:, :-1], batch.action, batch.terminated.unsqueeze(-1)], -1)
        logit = one.own[0](transitions.flatten(0, 1), {}).view(batch.reward.shape)
        reward = 0.5 * {"GAIL": gail_reward, "AIRL": airl_reward}[form](logit)
        torch.testing.assert_close(one.reward_bonus(ctx), torch.where(batch.valid, reward, 0.0))
    assert one.reward_bonus(ctx)[~batch.valid].eq(0.0).all()


@pytest.mark.parametrize("seen", [True, False])
def test_actions_are_seen_only_if_they_shall_be(seen):
    sac = make_agent(signals=gail(use_actions=seen), demonstrations=Shown())
    batch = small_windows(sac)
    rewards = [
        only_gail(sac).reward_bonus(context(sac, replace(batch, action=action)))
        for action in (batch.action, -batch.action)
    ]
    assert torch.equal(*rewards) is not seen


def test_demonstrations_are_normalised_as_the_agent_s_own_observations():
    shown = Shown()
    sac = make_agent(signals=gail(), demonstrations=shown, use_normalization=True)
    sac.model.normaliser.observe({"obs": 5.0 + 3.0 * torch.randn(200, 3).numpy()})
    seen = []
    only_gail(sac).inputs.register_forward_hook(lambda _, args, result: seen.append(args[1]["obs"]))
    sac.update(small_windows(sac))
    _, demonstrated, _ = seen  # between the bonus and the agent's own
    rows = sac.model.normaliser(shown.batch.obs)["obs"]
    assert all((row == rows).flatten(1).all(1).any() for row in demonstrated)


def test_a_signal_with_a_rate_of_its_own_has_an_optimiser_of_its_own():
    signals = RewardSignals(
        gail=GailSignal(strength=1.0, learning_rate=0.02), rnd=RndSignal(strength=1.0, learning_rate=0.01)
    )
    sac = make_agent(signals=signals, curiosity="FORWARD", demonstrations=Shown(), learning_rate=0.004)
    rates = {name: step.learning_rate for name, step in sac.extension_steps.optimisers.items()}
    assert rates == {"own": 0.004, "rndbonus": 0.01, "gail": 0.02}
    before = {name: value.clone() for name, value in sac.tensors()["model"].items()}
    sac.update(small_windows(sac))
    for i, one in enumerate(sac.extensions):  # Adam's first step is the learning rate
        rate = one.learning_rate or 0.004
        own = [n for n, _ in sac.modules().named_parameters() if n.startswith(f"extensions.{i}.own.")]
        moved = max(float((sac.tensors()["model"][n] - before[n]).abs().max()) for n in own)
        assert moved == pytest.approx(rate, rel=0.02), type(one)


def test_the_bonus_of_novelty_is_its_error_over_the_deviation_of_all_errors():
    sac = make_agent(signals=RewardSignals(rnd=RndSignal(strength=2.0)), learning_rate=0.003)
    (bonus,) = sac.extensions
    assert isinstance(bonus, RndBonus) and bonus.num_candidates == 1
    batch, errors = small_windows(sac), []
    for _ in range(3):
        ctx = context(sac, batch)
        state, action = ctx.state[:, :2].detach(), batch.action
        error = (bonus.own[0](state, action) - bonus.fixed(state, action)).square().mean(-1).detach()
        errors.append(error[:, :1][batch.valid[:, :1]])
        expected = torch.where(batch.valid, 2.0 * error / bonus.deviation(), 0.0)
        torch.testing.assert_close(bonus.reward_bonus(ctx), expected)
        assert sac.update(batch).metrics["rnd/bonus_mean"] > 0
    torch.testing.assert_close(bonus.deviation(), torch.cat(errors).std(unbiased=False), rtol=1e-4, atol=0)
    assert errors[-1].mean() < errors[0].mean(), "what is seen again is less new"


@pytest.mark.parametrize(
    "options", [{"curiosity": "FORWARD"}, {"curiosity": "INVERSE"}, {"use_rnd": True}], ids=str
)
def test_encoder_critics_and_policy_get_nothing_from_a_model_of_its_own(options):
    """With a bonus of 0 everything else is what it is without."""
    plain, other = make_agent(), make_agent(curiosity_strength=0, **options)
    for seed in range(3):
        batch = small_windows(plain, seed=seed)
        plain.update(batch)
        other.update(batch)
    expected, found = saved(plain), saved(other)
    assert all(torch.equal(found[name], value) for name, value in expected.items())


def test_choice_and_bonus_share_their_networks():
    plain = make_agent(use_rnd=True)
    both = make_agent(use_rnd=True, signals=RewardSignals(rnd=RndSignal(strength=1.0)))
    (one,), (shared,) = plain.extensions, both.extensions
    assert type(one) is RND and isinstance(shared, RndBonus)
    assert shared.num_candidates == one.num_candidates > 1
    state, action = torch.randn(2, 8), torch.randn(2, 5, 2)
    torch.testing.assert_close(shared.score_actions(state, action), one.score_actions(state, action))
    assert shared.state_dict().keys() - one.state_dict().keys() == {
        "deviation.count",
        "deviation.mean",
        "deviation.square",
    }


def test_an_agent_that_only_plays_needs_no_demonstrations():
    """A checkpoint's networks fit; only learning asks for episodes."""
    learner, player = make_agent(signals=gail(), demonstrations=Shown()), make_agent(signals=gail())
    player.load_model(learner.tensors()["model"])
    with pytest.raises(AssertionError, match="a learner has demonstrations"):
        player.update(small_windows(player))
