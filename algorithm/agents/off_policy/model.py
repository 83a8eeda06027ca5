"""All networks of one agent, online and target, the encoding of batches, and passes of the critics."""

from __future__ import annotations

from functools import partial
from typing import cast

import torch
from torch import Tensor, nn
from typing_extensions import Unpack

from algorithm.agents.off_policy.config import OffPolicyConfig
from algorithm.agents.off_policy.rules import SMALLEST_BATCH
from algorithm.core.data import SequenceBatch
from algorithm.core.errors import ModelError
from algorithm.nn.acting.model import ActingModel, TrainingMode
from algorithm.nn.dry_run import check_policy, check_q
from algorithm.nn.encoding import States, make_encoding
from algorithm.nn.ensemble import Backend, Ensemble
from algorithm.nn.layers.norm import BatchStatistics, has_batch_norm
from algorithm.nn.learning.flat import FlatParameters, NoTarget, Target
from algorithm.nn.loader import Network, Networks
from algorithm.nn.models import defaults
from algorithm.nn.normalise import NoNormaliser, Normaliser
from algorithm.nn.protocols import Obs, Rep

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
    horizons:      ensembles, one for each horizon of rewards
    """

    next_policy: nn.Module  # of targets: the policy, or its slow copy
    bounds: nn.ModuleList  # of bootstrapped values, by horizon: CriticUpdate adds them

    def __init__(
        self,
        networks: Networks,
        normaliser: Normaliser | NoNormaliser,
        *,
        action_size: int,
        ensemble_size: int,
        horizons: int = 1,
        device: torch.device,
        backend: Backend | None = None,
    ) -> None:
        probe = (
            torch.zeros(1, networks.state_size, device=device),
            torch.zeros(1, action_size, device=device),
        )
        rep = networks.rep.to(device)
        make_q, policy = partial(networks.make, "ModelQ"), networks.built["ModelPolicy"]
        critics = [
            Ensemble(make_q, ensemble_size, device=device, backend=backend, probe=probe)
            for _ in range(horizons)
        ]
        super().__init__(normaliser.to(device), rep, policy.to(device), critics)
        self._encoding = make_encoding(self.rep)
        self.bounds = nn.ModuleList()
        self.training_mode = TrainingMode([self.rep, *self.critics, self.policy])

    def follow(self, online: FlatParameters | None) -> None:
        """Create the target networks; encoder and critics lie in their optimiser's storage ``online``.

        None: there are no target networks, and the online ones stand for them.
        """
        networks = [self.rep, *self.critics]
        self.target = NoTarget(networks) if online is None else Target(networks, online.data)
        rep, q, *more = cast(tuple[Rep, Ensemble, Unpack[tuple[Ensemble, ...]]], self.target.modules)
        vars(self)["next_policy"] = self.policy
        self.policy_target: Target | None = None
        if online is None:  # not registered a second time, so that a checkpoint holds them once
            vars(self).update(target_rep=rep, target_q=q)
        else:
            self.target_rep, self.target_q, self.target_signal_q = rep, q, nn.ModuleList(more)
        self.target_critics = (q, *more)

    def follow_policy(self, online: FlatParameters) -> None:
        """Create a slow copy of the policy, which acts in targets; the policy lies in ``online``."""
        self.policy_target = Target([self.policy], online.data)
        (self.target_policy,) = self.policy_target.modules
        vars(self)["next_policy"] = self.target_policy

    def move_targets(self, tau: float) -> None:
        """Let all targets follow; see :meth:`algorithm.nn.learning.flat.Target.polyak_`."""
        self.target.polyak_(tau)
        if self.policy_target is not None:
            self.policy_target.polyak_(tau)

    def encode(self, obs: Obs, batch: SequenceBatch, *, burn_in: int, learn: int) -> States:
        """Return online and target states of a batch's tokens, from one carry; ``obs`` are normalised."""
        return self._encoding(self.rep, self.target_rep, obs, batch, burn_in=burn_in, learn=learn)


def flatten_time(x: Tensor) -> Tensor:
    """Return [B, T, ...] as [B·T, ...], contiguous: the fastest layout for networks."""
    return x.flatten(0, 1)


StateActions = tuple[Tensor, Tensor]
"""States [P, S] and continuous actions [P, A_c]."""

RowMasks = tuple[Tensor, Tensor]
"""Rows that exist, [P] and [P'] bool."""


class Separate:
    """Two passes: by the critics of what was done, and by the drawn target critics of what follows."""

    def __init__(self, q: Ensemble, target_q: Ensemble) -> None:
        self._q, self._target_q = q, target_q

    def __call__(
        self, now: StateActions, then: StateActions, exist: RowMasks, members: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return the outputs [E, P, N·K] of ``now``, with gradient, and [M, P', N·K] of ``then``, without.

        exist:   rows of both that exist
        members: the drawn target critics; None: all
        """
        with torch.no_grad():
            following = self._target_q.frozen(*then, members=members)
        return self._q(*now), following

    def look(self) -> bool:
        """Return whether a norm may be past its warm-up: there is none."""
        return False

    def settle(self, usable: Tensor) -> dict[str, Tensor]:
        """Take over what the passes noted, if the step was ``usable`` [] bool; return values to log: none."""
        return {}


class Joint:
    """One pass of all rows, normalised by the statistics of them all (CrossQ, arXiv 1902.05605).

    What was done and what follows are two distributions of actions. A batch norm that saw one of them alone
    would fit the other badly. The second half gives a gradient through the statistics alone. With target
    networks it is theirs, on the same rows and by statistics of their own (XQC, arXiv 2509.25174).
    """

    def __init__(self, q: Ensemble, target_q: Ensemble, *, own_target: bool, all_rows_exist: bool) -> None:
        self._q, self._target_q, self._all_rows_exist = q, target_q, all_rows_exist
        self._statistics = BatchStatistics(q.members, q.copies)
        self._target = BatchStatistics((), target_q.copies) if own_target else None

    def __call__(
        self, now: StateActions, then: StateActions, exist: RowMasks, members: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return both, as :class:`Separate` does."""
        state, action = (torch.cat(pair) for pair in zip(now, then, strict=True))
        share = None if self._all_rows_exist else halves(*exist)
        size = len(now[0])
        with self._statistics.of_batch(share):
            out = self._q(state, action)
        if self._target is None:
            following = out[:, size:].detach()
            return out[:, :size], following if members is None else following[members]
        with torch.no_grad(), self._target.of_batch(share):
            following = self._target_q.frozen(state.detach(), action, members=members)[:, size:]
        return out[:, :size], following

    def look(self) -> bool:
        """Return whether a norm may be past its warm-up."""
        corrects = self._statistics.look()
        if self._target is not None:  # its warm-up is a copy of theirs
            self._target.corrects = corrects
        return corrects

    def settle(self, usable: Tensor) -> dict[str, Tensor]:
        """Move the running statistics."""
        return {"norm/shift": self._statistics.settle(usable)}


Passes = Separate | Joint
"""Outputs of the critics for what was done, and of their targets for what follows."""


def make_passes(q: Ensemble, target_q: Ensemble, keys: OffPolicyConfig) -> Passes:
    """Return one pass for critics with a batch norm, else two."""
    if not has_batch_norm(q.members[0]):
        return Separate(q, target_q)
    alike = keys.seq_encoder is None and (keys.n_step == 1 or not keys.use_n_step_is)
    return Joint(q, target_q, own_target=keys.use_target_network, all_rows_exist=alike)


def halves(now_valid: Tensor, then_valid: Tensor) -> Tensor:
    """Return the share of each row in the statistics [P + P']: half for each part, none for missing rows."""
    parts = [valid.float() / valid.sum().clamp(min=1.0) for valid in (now_valid, then_valid)]
    return torch.cat(parts) / 2.0


def check_norms(model: Model, config: OffPolicyConfig) -> None:
    """Raise ModelError for batch norm where it cannot be, and for what needs it where it is not."""
    critics = has_batch_norm(model.q.members[0])
    if has_batch_norm(model.rep):
        raise ModelError(
            "ModelRep has a batch norm",
            why="its states are made one token at a time while acting, from windows with padding in updates",
            fix="take layer norm there, or batch norm in ModelQ and ModelPolicy",
        )
    if not config.use_target_network and not critics:
        raise ModelError(
            "sac_config.use_target_network is false, and the critics have no batch norm",
            why="one pass of what was done and what follows, normalised together, is what makes target "
            "networks dispensable (CrossQ)",
            fix="set nn_config.q: {norm: batch}, or use_target_network: true",
        )
    if (critics or has_batch_norm(model.policy)) and config.batch_size * config.learn_step < SMALLEST_BATCH:
        raise ModelError(
            f"sac_config.batch_size is {config.batch_size}, and there is a batch norm",
            why=f"the mean and the variance of {config.batch_size * config.learn_step} rows say too little",
            fix=f"set it to {SMALLEST_BATCH} or more, or norm to layer",
        )
