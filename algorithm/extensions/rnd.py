"""Choice of the most novel of several sampled actions, by random network distillation (arXiv 1810.12894)."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from typing_extensions import override

from algorithm.extensions.base import Context, Extension
from algorithm.extensions.options import Build
from algorithm.nn.dynamics import check_dynamic
from algorithm.ops.intrinsic import distillation_error
from algorithm.ops.shapes import window_mean


class RND(Extension):
    """Network trained to reproduce a fixed random one on stored (state, action).

    Its error is small on frequent inputs and large on new ones. The paper adds that error to the reward;
    here the reward stays as it is. An exploring actor takes the one with the largest error of
    ``num_candidates`` actions of its policy.

    network: trained
    fixed:   random, and so for ever; part of every checkpoint
    num_candidates: actions to choose from
    """

    def __init__(self, network: nn.Module, fixed: nn.Module, num_candidates: int) -> None:
        super().__init__()
        self.own.append(network)
        self.fixed = fixed.requires_grad_(False)
        self.num_candidates = num_candidates
        self.eval()

    @override
    def own_losses(self, ctx: Context) -> Mapping[str, Tensor]:
        """Return the mean error of the learned transitions."""
        valid = ctx.batch.valid[:, ctx.learned]
        error = self._error(ctx.state[:, ctx.learned].detach(), ctx.batch.action[:, ctx.learned])
        return {"rnd": window_mean(torch.where(valid, error, 0.0), valid)}

    @override
    def score_actions(self, state: Tensor, action: Tensor) -> Tensor:
        """Return the errors [N, M] of M actions [N, M, A] in states [N, S]."""
        return self._error(state.unsqueeze(1).expand(-1, action.shape[1], -1), action)

    def _error(self, state: Tensor, action: Tensor) -> Tensor:
        return distillation_error(self.own[0](state, action), self.fixed(state, action))


def make_novelty(build: Build) -> RND | None:
    """Return the novelty score, if configured. Raises ModelError for a network that returns a wrong shape."""
    if not build.options.use_rnd:
        return None
    network, fixed = (build.make_network("ModelRND", build.spec, build.state_size) for _ in range(2))
    check_dynamic(network, (build.state_size, build.spec.action.size), "F")
    return RND(network, fixed, build.options.rnd_n_sample)
