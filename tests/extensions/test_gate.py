"""The gate on an extension's gradient: the encoder takes it only where it agrees with the critics'."""

import pytest
import torch

from algorithm.agents.off_policy.values.scalar import ScalarValues
from algorithm.extensions.base import Context, Extension
from algorithm.ops.sac import smallest
from tests.lib.batches import SMALL, Sac, random_batch, small_sac
from tests.lib.callbacks import watch


def gradients(sac: Sac) -> tuple[torch.Tensor, torch.Tensor]:
    """Views of the encoder's and the critics' part."""
    gradient = sac.critic_optimiser.gradient
    return gradient[sac.encoder], gradient[sac.encoder.stop :]


class Pull(Extension):
    """An auxiliary loss whose gradient on the encoder is ``sign`` times that of the critics, and more."""

    def __init__(self, sign: float, *, gated: bool) -> None:
        super().__init__()
        self.joint.append(torch.nn.Linear(1, 1))
        self.sign, self.gated = sign, gated

    def auxiliary_losses(self, ctx: Context) -> dict[str, torch.Tensor]:
        q = ctx.q(ctx.state[:, ctx.learned]).mean()
        return {"pull": self.sign * q + self.joint[0].weight.sum()}


class MeanQ(ScalarValues):
    """Values whose loss is their mean."""

    def loss(self, taken, target):
        return taken.mean()


def step(monkeypatch, *extensions: Extension) -> tuple[torch.Tensor, torch.Tensor]:
    """Gradients of encoder and critics that one update's step is taken with; the critics' loss is mean Q."""
    sac = small_sac(rep_depth=1, extensions=extensions)
    seen = []

    def see(adam, gradient):
        if adam is sac.critic_optimiser:
            seen.append([part.clone() for part in gradients(sac)])

    watch(monkeypatch, type(sac.critic_optimiser), "step_along", see)
    sac.values = MeanQ(SMALL.action, smallest)
    sac.update(random_batch())
    if extensions:
        assert sac.joint_optimiser.gradient.any()  # the joint parts are trained whatever the gate says
    return tuple(seen[0])


class Pauses(Extension):
    """A loss of its own, until it is told to rest."""

    def __init__(self, learning_rate: float | None) -> None:
        super().__init__()
        self.own.append(torch.nn.Linear(1, 1))
        self.learning_rate, self.rests = learning_rate, False

    def own_losses(self, ctx: Context) -> dict[str, torch.Tensor]:
        return {} if self.rests else {"pauses": self.own[0].weight.square().sum()}


@pytest.mark.parametrize("rate", [None, 0.1])
def test_an_extension_without_a_loss_takes_no_step(rate):
    """Not along the moments of losses before either."""
    extension = Pauses(rate)
    sac = small_sac(extensions=(extension,))
    (adam,) = sac.extension_steps.optimisers.values()
    states = []
    for rests in (False, True, False):
        extension.rests = rests
        sac.update(random_batch())
        states.append([x.detach().clone() for x in (extension.own[0].weight, adam.tensors()["step"])])
    (weight, count), (rested, count_then), (moved, count_later) = states
    assert torch.equal(weight, rested) and not torch.equal(rested, moved)
    assert [int(n) for n in (count, count_then, count_later)] == [1, 1, 2]


@pytest.mark.parametrize(
    ("pulls", "factor"),
    [
        ([(1.0, True)], 2.0),
        ([(-0.5, True)], 1.0),
        ([(-0.5, False)], 0.5),
        ([(1.0, False)], 2.0),
        # whatever an ungated loss does, a gated -1 works against the critics and a gated +1 does not
        ([(-1.0, True), (-2.0, False)], -1.0),
        ([(1.0, True), (-4.0, False)], -2.0),
        # several are judged as one: +3 and -2 make +1, which agrees; +1 and -2 make -1, which does not
        ([(3.0, True), (-2.0, True)], 2.0),
        ([(1.0, True), (-2.0, True)], 1.0),
    ],
)
def test_a_gated_loss_is_taken_or_left_by_the_critics_and_an_ungated_one_is_taken(monkeypatch, pulls, factor):
    """The encoder gets ``factor`` times the critics' gradient, and the critics that of every loss."""
    encoder, critics = step(monkeypatch)
    assert encoder.any()
    own, theirs = step(monkeypatch, *(Pull(sign, gated=gated) for sign, gated in pulls))
    torch.testing.assert_close(own, factor * encoder)
    torch.testing.assert_close(theirs, (1.0 + sum(sign for sign, _ in pulls)) * critics)


def test_an_encoder_without_parameters_has_nothing_to_gate(monkeypatch):
    sac = small_sac(rep_depth=0, extensions=(Pull(1.0, gated=True),))
    assert sac.update(random_batch()).metrics["loss/pull"].isfinite() and sac.skipped == 0


class Twice(Extension):
    """A bonus with two rounds, and nothing of its own to train."""

    rounds = 2

    def reward_bonus(self, ctx: Context) -> torch.Tensor:
        return ctx.batch.reward


def test_rounds_without_own_parts_are_none():
    sac = small_sac(extensions=(Twice(),))
    assert sac.extension_steps.rounds == 1 and sac.update(random_batch()).metrics["loss/q"].isfinite()
