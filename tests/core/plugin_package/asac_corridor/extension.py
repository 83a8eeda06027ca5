"""A bonus for rewards that a model does not foresee."""

import torch
from torch import nn

from algorithm.extensions.base import Extension


class Surprise(Extension):
    """A bonus of ``strength`` times the error of a model that foresees rewards."""

    def __init__(self, inputs, width, strength):
        super().__init__()
        self.model = nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, 1))
        self.own.append(self.model)  # for `own_losses`; `joint` is for `auxiliary_losses`
        self.strength = strength

    def errors(self, ctx):
        """Return the errors [B, W] of all transitions of a window, zero where there is none."""
        state = ctx.state[:, :-1].detach()
        foreseen = self.model(torch.cat([state, ctx.batch.action], -1)).squeeze(-1)
        return torch.where(ctx.batch.valid, foreseen - ctx.batch.reward, 0.0)

    @torch.no_grad()
    def reward_bonus(self, ctx):
        return self.strength * self.errors(ctx).abs()

    def own_losses(self, ctx):
        return {"surprise": self.errors(ctx)[:, ctx.learned].square().mean()}


def make_surprise(build, width=32, strength=0.1):
    return Surprise(build.state_size + build.spec.action.size, width, strength)
