"""All networks of one agent, online and target, and how a batch is encoded."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from algorithm.data import SequenceBatch
from algorithm.extensions.base import Context
from algorithm.nn.ensemble import Backend, Ensemble
from algorithm.nn.flat import FlatParameters
from algorithm.nn.loader import Networks
from algorithm.nn.protocols import Rep
from algorithm.nn.target import Target


class Model(nn.Module):
    """Owner of the networks.

    Encoder and critics are trained by one optimiser and followed by one target, so they share a storage.

    networks:      the single networks of the task
    action_size:   |A_c|, the critics' second input
    ensemble_size: E, critics
    """

    def __init__(
        self,
        networks: Networks,
        *,
        action_size: int,
        ensemble_size: int,
        device: torch.device,
        backend: Backend | None = None,
    ) -> None:
        super().__init__()
        probe = (
            torch.zeros(1, networks.state_size, device=device),
            torch.zeros(1, action_size, device=device),
        )
        self.rep = networks.rep.to(device)
        self.q = Ensemble(networks.make_q, ensemble_size, device=device, backend=backend, probe=probe)
        self.policy = networks.policy.to(device)
        # An encoder without state of its own has the same output as its target: it is evaluated once.
        self._target_encodes = any(True for _ in (*self.rep.parameters(), *self.rep.buffers()))

    def follow(self, online: FlatParameters) -> None:
        """Make the target networks, once encoder and critics lie in their optimiser's storage ``online``."""
        self.target = Target([self.rep, self.q], online)
        self.target_rep = cast(Rep, self.target.modules[0])
        self.target_q = cast(Ensemble, self.target.modules[1])

    def encode(self, batch: SequenceBatch, *, burn_in: int, learn: int) -> Context:
        """Online and target states of all W+1 tokens, once each, from one carry."""
        inputs = (batch.obs, batch.prev_action, batch.carry, batch.obs_valid)
        state, carry = self.rep(*inputs)
        if self._target_encodes:
            with torch.no_grad():
                target_state, _ = self.target_rep(*inputs)
        else:
            target_state = state.detach()
        return Context(
            batch=batch, state=state, target_state=target_state, carry=carry, burn_in=burn_in, learn=learn
        )

    def min_target_q(self, state: Tensor, c_action: Tensor, members: list[int] | None) -> Tensor:
        """Element-wise minimum over the target critics ``members`` (REDQ, arXiv 2101.05982): [..., N]."""
        return self.target_q.frozen(state, c_action, members=members).amin(0)
