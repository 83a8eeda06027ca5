"""All networks of one agent, online and target, and the encoding of batches."""

from __future__ import annotations

from functools import partial
from typing import cast

import torch
from torch import Tensor

from algorithm.data import SequenceBatch
from algorithm.nn import defaults
from algorithm.nn.acting_model import ActingModel, TrainingMode
from algorithm.nn.dry_run import check_policy, check_q
from algorithm.nn.encoding import States, make_encoding
from algorithm.nn.ensemble import Backend, Ensemble
from algorithm.nn.flat import FlatParameters
from algorithm.nn.loader import Network, Networks
from algorithm.nn.normalise import NoNormaliser, Normaliser
from algorithm.nn.protocols import Obs, Rep
from algorithm.nn.target import Target

NETWORKS = {
    "ModelQ": Network("q", check_q, defaults.ModelQ),
    "ModelPolicy": Network("policy", check_policy, defaults.ModelPolicy),
}
"""Classes of an ``nn.py``."""


class Model(ActingModel):
    """Owner of the networks.

    Encoder and critics are trained by one optimiser and followed by one target, so they share a storage.
    All are in evaluation mode except inside ``training_mode()``; targets always are.

    networks:      the single networks of the task
    normaliser:    the first layer of every observation
    action_size:   |A_c|, the critics' second input
    ensemble_size: E, critics
    """

    def __init__(
        self,
        networks: Networks,
        normaliser: Normaliser | NoNormaliser,
        *,
        action_size: int,
        ensemble_size: int,
        device: torch.device,
        backend: Backend | None = None,
    ) -> None:
        probe = (
            torch.zeros(1, networks.state_size, device=device),
            torch.zeros(1, action_size, device=device),
        )
        rep = networks.rep.to(device)
        make_q, policy = partial(networks.make, "ModelQ"), networks.built["ModelPolicy"]
        q = Ensemble(make_q, ensemble_size, device=device, backend=backend, probe=probe)
        super().__init__(normaliser.to(device), rep, policy.to(device), q)
        self._encoding = make_encoding(self.rep)
        self.training_mode = TrainingMode([self.rep, self.q, self.policy])

    def follow(self, online: FlatParameters) -> None:
        """Create the target networks; encoder and critics lie in their optimiser's storage ``online``."""
        self.target = Target([self.rep, self.q], online)
        self.target_rep = cast(Rep, self.target.modules[0])
        self.target_q = cast(Ensemble, self.target.modules[1])

    def encode(self, obs: Obs, batch: SequenceBatch, *, burn_in: int, learn: int) -> States:
        """Return online and target states of a batch's tokens, from one carry; ``obs`` are normalised."""
        return self._encoding(self.rep, self.target_rep, obs, batch, burn_in=burn_in, learn=learn)


def flatten_time(x: Tensor) -> Tensor:
    """Return [B, T, ...] as [B·T, ...], contiguous: the fastest layout for networks."""
    return x.flatten(0, 1)
