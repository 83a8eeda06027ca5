"""A critic loss from outside: conservative Q-learning (arXiv 2006.04779, eq. 4) as an extension."""

import torch

from algorithm.extensions.base import Context, Extension
from tests.lib.batches import SMALL, context, small_sac, small_windows

SAMPLES, WEIGHT = 4, 5.0


class Conservative(Extension):
    """Values of random actions and of the policy's, pushed below those of the stored ones."""

    def draw(self, batch, learned, generator):
        size = len(batch.reward), learned.stop - learned.start, SMALL.action.continuous
        uniform = 2.0 * torch.rand(SAMPLES, *size, generator=generator) - 1.0
        return {"uniform": uniform, "normal": torch.randn(size, generator=generator)}

    def auxiliary_losses(self, ctx: Context):
        drawn, state, policy = ctx.drawn["Conservative"], ctx.states.learned, ctx.policy().continuous
        actions = [*drawn["uniform"], policy.rsample(drawn["normal"])[0].tanh()]
        q = torch.stack([ctx.q(state, action) for action in actions])  # [N, E, B, T]
        return {"conservative": WEIGHT * (q.logsumexp(0) - ctx.q(state)).mean()}


def test_values_of_any_action_train_the_critics():
    sac = small_sac(extensions=(Conservative(),), rep_depth=1)
    batch = small_windows(sac)
    ctx = context(sac, batch)
    loss = sac.extensions[0].auxiliary_losses(ctx)["conservative"]
    drawn, state = ctx.drawn["Conservative"], ctx.state[:, 0]
    with torch.no_grad():
        policy = sac.model.policy(state, {}).continuous
        u = (policy.mean + policy.log_std.exp() * drawn["normal"][:, 0]).tanh()
        q = torch.stack([sac.model.q(state, a)[..., 0] for a in (*drawn["uniform"][:, :, 0], u)])
        gap = q.logsumexp(0) - sac.model.q(state, batch.action[:, 0])[..., 0]
    torch.testing.assert_close(loss, WEIGHT * gap.mean())
    for optimiser in sac.optimisers().values():
        optimiser.gradient.zero_()
    loss.backward()
    assert sac.critic_optimiser.gradient[sac.encoder].any(), "the encoder"
    assert sac.critic_optimiser.gradient[sac.encoder.stop :].any(), "the critics"
    assert not sac.policy_optimiser.gradient.any(), "the policy is asked, not taught"


def test_without_gradient_no_value_has_one():
    sac = small_sac(rep_depth=1)
    ctx = sac.encode(small_windows(sac))
    assert ctx.q(ctx.states.learned).requires_grad and not ctx.target_q(ctx.states.learned).requires_grad
    assert not ctx.detached().q(ctx.states.learned).requires_grad
