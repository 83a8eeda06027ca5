"""All networks of one agent, online and target, the encoding of batches, and critics by horizon."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import cast

import torch
from torch import nn
from typing_extensions import Unpack

from algorithm.agents.off_policy.config import OffPolicyConfig
from algorithm.agents.off_policy.returns import HorizonCritics, Return, make_return
from algorithm.agents.off_policy.rules import SMALLEST_BATCH
from algorithm.core.errors import ModelError
from algorithm.extensions.base import Extension, Horizon, by_horizon
from algorithm.nn.acting import ActingModel
from algorithm.nn.dry_run import check_policy, check_q
from algorithm.nn.encoding import make_encoding
from algorithm.nn.ensemble import Ensemble, NormPass
from algorithm.nn.layers.norm import has_batch_norm
from algorithm.nn.learning.flat import FlatParameters, NoTarget, Target
from algorithm.nn.learning.gradients import TrainingMode
from algorithm.nn.loader import Network, Networks
from algorithm.nn.models import defaults
from algorithm.nn.normalise import NoNormaliser, Normaliser
from algorithm.nn.protocols import Rep
from algorithm.nn.return_scale import NoReturnScale, ReturnScale
from algorithm.nn.value_range import ValueRange

NETWORKS = {
    "ModelQ": Network("q", check_q, defaults.ModelQ),
    "ModelPolicy": Network("policy", check_policy, defaults.ModelPolicy),
}
"""Class names in an ``nn.py`` -> check and default of that network."""


class Model(ActingModel):
    """All networks of an agent, online and target.

    Encoder and critics share an optimiser and a target, so their parameters lie in one storage.
    All are in evaluation mode except inside ``training_mode()``; targets always are.

    networks:      the task's networks, one of each kind
    normaliser:    the first layer of every observation
    action_size:   |A_c|, the critics' second input
    ensemble_size: E, number of critics for a horizon of rewards
    horizons:      number of horizons, each of which has an ensemble of critics
    """

    next_policy: nn.Module  # chooses the actions of targets: the policy, or its slow copy
    bounds: nn.ModuleList  # of bootstrapped values, by horizon: make_horizons adds them

    def __init__(
        self,
        networks: Networks,
        normaliser: Normaliser | NoNormaliser,
        *,
        action_size: int,
        ensemble_size: int,
        horizons: int = 1,
        device: torch.device,
    ) -> None:
        probe = torch.zeros(1, networks.state_size, device=device), torch.zeros(1, action_size, device=device)
        rep = networks.rep.to(device)
        make_q, policy = partial(networks.make, "ModelQ"), networks.built["ModelPolicy"]
        critics = [Ensemble(make_q, ensemble_size, device=device, probe=probe) for _ in range(horizons)]
        super().__init__(normaliser.to(device), rep, policy.to(device), critics)
        self.encoding = make_encoding(self.rep)
        self.bounds = nn.ModuleList()
        self.training_mode = TrainingMode([self.rep, *self.critics, self.policy])

    def make_targets(self, online: FlatParameters | None) -> None:
        """Create the target networks of encoder and critics.

        online: storage of their parameters; None: there are no target networks, and the online networks are
            used in their place
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

    def make_policy_target(self, online: FlatParameters) -> None:
        """Create a slow copy of the policy, which acts in targets; online: storage of its parameters."""
        self.policy_target = Target([self.policy], online.data)
        (self.target_policy,) = self.policy_target.modules
        vars(self)["next_policy"] = self.target_policy

    def num_parameters(self) -> dict[str, int]:
        """Return the numbers of trained parameters: encoder, all critics, policy."""
        networks = {"encoder": [self.rep], "critics": self.critics, "policy": [self.policy]}
        return {
            name: sum(p.numel() for module in modules for p in module.parameters())
            for name, modules in networks.items()
        }


def check_norms(model: Model, config: OffPolicyConfig) -> None:
    """Raise ModelError for a batch norm in the encoder, CrossQ's critics without one, or a small batch."""
    critics = has_batch_norm(model.q.members[0])
    if has_batch_norm(model.rep):
        raise ModelError(
            "ModelRep has a batch norm",
            why="acting computes its states one token at a time, updates from padded windows",
            fix="use layer norm there, or batch norm in ModelQ and ModelPolicy",
        )
    if not config.use_target_network and not critics:
        raise ModelError(
            "sac_config.use_target_network is false, and the critics have no batch norm",
            why="without target networks, current and next actions must be batch-normalised together "
            "(CrossQ)",
            fix="set nn_config.q: {norm: batch}, or use_target_network: true",
        )
    if (critics or has_batch_norm(model.policy)) and config.batch_size * config.learn_step < SMALLEST_BATCH:
        raise ModelError(
            f"sac_config.batch_size is {config.batch_size}, and there is a batch norm",
            why=f"{config.batch_size * config.learn_step} rows are too few for a mean and a variance",
            fix=f"set it to {SMALLEST_BATCH} or more, or norm to layer",
        )


def make_horizons(
    model: Model, keys: OffPolicyConfig, extensions: Sequence[Extension], scale: ReturnScale | NoReturnScale
) -> tuple[HorizonCritics, ...]:
    """Return the critics of each horizon, those of the environment's reward first.

    Bounds of values are added to ``model.bounds`` for every horizon, so that the names in a checkpoint do
    not depend on the keys. They are applied only without target networks, and if γ is below 1.
    """
    environment = Horizon(keys.gamma)
    groups = by_horizon(extensions, environment).items()
    made = []
    for q, target_q, (horizon, rewarding) in zip(model.critics, model.target_critics, groups, strict=True):
        returns = make_return(keys, horizon.gamma)
        bounds = ValueRange(horizon.gamma, scale if horizon == environment else NoReturnScale())
        model.bounds.append(bounds.to(next(model.parameters()).device))
        binds = not keys.use_target_network and horizon.gamma < 1.0
        made.append(
            HorizonCritics(
                q,
                target_q,
                make_norm_pass(q, target_q, keys, returns),
                returns,
                horizon,
                rewarding,
                main=horizon == environment,
                bounds=bounds if binds else None,
            )
        )
    return tuple(made)


def make_norm_pass(
    q: Ensemble, target_q: Ensemble, keys: OffPolicyConfig, returns: Return
) -> NormPass | None:
    """Return the joint pass of critics with a batch norm; None for critics without."""
    if not has_batch_norm(q.members[0]):
        return None
    alike = keys.seq_encoder is None and not returns.needs_padding
    return NormPass(q, target_q, own_target=keys.use_target_network, all_rows_exist=alike)
