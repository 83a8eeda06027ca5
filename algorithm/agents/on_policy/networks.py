"""Default networks of on-policy families, and acting with a policy, here and in other processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Literal, cast

import torch
from pydantic import Field
from torch import Tensor, nn
from typing_extensions import override

from algorithm.actions.actor import Actor
from algorithm.actions.parts import make_parts
from algorithm.agents.behaviour_config import BehaviourConfig
from algorithm.agents.behaviour_policy import BehaviourPolicy
from algorithm.agents.networks import make_networks
from algorithm.agents.on_policy.family_config import own_block
from algorithm.agents.roles import Acting, ActingInputs, RemoteLimits
from algorithm.core.errors import ModelError
from algorithm.core.fields import AtLeastOne, Natural
from algorithm.core.seeding import stream, stream_seed
from algorithm.core.spec import AgentSpec
from algorithm.nn.acting.model import ActingModel
from algorithm.nn.distributions import HybridAction, TanhNormal
from algorithm.nn.dry_run import check_policy, check_v
from algorithm.nn.layers.initial import set_orthogonal
from algorithm.nn.layers.mlp import ACTIVATIONS, LOG_STD_RANGE, ActionHead, Activation, hidden_widths, mlp
from algorithm.nn.layers.norm import has_batch_norm
from algorithm.nn.loader import Network, Networks
from algorithm.nn.normalise import NoNormaliser, Normaliser
from algorithm.nn.protocols import Obs, Rep

CLIP = 10.0
"""Bound of normalised observations, in standard deviations (The 37 Implementation Details, 29)."""

SHORTEST = 16
"""Transitions of a remote actor's segments, at least, in rollouts that have as many."""

_LogStd = Annotated[float, Field(ge=LOG_STD_RANGE[0], le=LOG_STD_RANGE[1])]


class TanhPolicy(nn.Module):
    """Policy of 2 layers of 64 units with tanh, then the action head.

    dense_n, dense_depth: other numbers of units and layers
    hidden: the width of each layer instead
    std: ``parameter``: the standard deviation of each continuous action is a parameter; ``state``: it is an
         output, as the mean
    log_std_init: first value of the logarithm of that parameter
    activation: instead of tanh
    """

    def __init__(
        self,
        spec: AgentSpec,
        state_size: int,
        dense_n: AtLeastOne | None = None,
        dense_depth: Natural | None = None,
        std: Literal["parameter", "state"] = "parameter",
        log_std_init: _LogStd = 0.0,
        hidden: Sequence[AtLeastOne] | None = None,
        activation: Activation = "tanh",
    ) -> None:
        super().__init__()
        if std == "state" and log_std_init:
            raise ValueError("with std: state there is no parameter whose first value log_std_init could be")
        widths = hidden_widths(dense_n, dense_depth, hidden, 64)
        width = [state_size, *widths][-1]
        self.net = mlp(state_size, widths, activation=ACTIVATIONS[activation])
        self.head = ActionHead(width, spec.action)
        self.log_std: nn.Parameter | None = None
        if spec.action.continuous and std == "parameter":
            self.head.continuous = nn.Linear(width, spec.action.continuous)
            self.log_std = nn.Parameter(torch.full((spec.action.continuous,), float(log_std_init)))
        set_orthogonal(self.net)
        for layer in (self.head.continuous, self.head.discrete):
            set_orthogonal(layer, 0.01)

    @override
    def forward(self, state: Tensor, obs: Mapping[str, Tensor]) -> HybridAction:
        """Return the distribution over actions in state [..., S]."""
        features = self.net(state)
        if self.log_std is None or self.head.continuous is None:
            policy: HybridAction = self.head(features)
            return policy
        mean = self.head.continuous(features)
        part = TanhNormal(mean, self.log_std.clamp(*LOG_STD_RANGE).expand_as(mean))
        return HybridAction(part, None if self.head.discrete is None else self.head.discrete(features))


class TanhLayers(nn.Module):
    """2 layers of 64 units with tanh, and a linear one behind them.

    dense_n, dense_depth, hidden, activation: as of :class:`TanhPolicy`
    """

    def __init__(
        self,
        in_size: int,
        out_size: int,
        dense_n: int | None,
        dense_depth: int | None,
        hidden: Sequence[int] | None,
        activation: Activation,
    ) -> None:
        super().__init__()
        widths = hidden_widths(dense_n, dense_depth, hidden, 64)
        self.net = mlp(in_size, widths, activation=ACTIVATIONS[activation])
        self.last = nn.Linear([in_size, *widths][-1], out_size)
        set_orthogonal(self.net)
        set_orthogonal(self.last, 1.0)

    def outputs(self, x: Tensor) -> Tensor:
        """Return [..., out_size] of x [..., in_size]."""
        out: Tensor = self.last(self.net(x))
        return out


class TanhValue(TanhLayers):
    """Value function; arguments as of :class:`TanhLayers`."""

    def __init__(
        self,
        spec: AgentSpec,
        state_size: int,
        dense_n: AtLeastOne | None = None,
        dense_depth: Natural | None = None,
        hidden: Sequence[AtLeastOne] | None = None,
        activation: Activation = "tanh",
    ) -> None:
        super().__init__(state_size, 1, dense_n, dense_depth, hidden, activation)

    @override
    def forward(self, state: Tensor, obs: Mapping[str, Tensor]) -> Tensor:
        """Return V [...] of state [..., S] and obs of the same positions."""
        return self.outputs(state).squeeze(-1)


NETWORKS = {
    "ModelPolicy": Network("policy", check_policy, TanhPolicy),
    "ModelV": Network("v", check_v, TanhValue),
}
"""Classes of an ``nn.py``."""


class SharedEncoder(nn.Module):
    """One encoder, whose states both policy and values get. Arguments of both are those of :class:`Rep`."""

    def __init__(self, rep: Rep) -> None:
        super().__init__()
        self.rep = rep

    @override
    def forward(self, obs: Obs, prev_action: Tensor, carry: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
        """Return the states [B, T, S] for the policy and for values."""
        state, _ = self.rep(obs, prev_action, carry, valid)
        return state, state

    def for_values(self, obs: Obs, prev_action: Tensor, carry: Tensor, valid: Tensor) -> Tensor:
        """Return the states [B, T, S] for values alone."""
        state: Tensor = self.rep(obs, prev_action, carry, valid)[0]
        return state

    def own(self) -> dict[str, nn.Module]:
        """Return what is no part of the policy, by name."""
        return {}


class SeparateEncoders(SharedEncoder):
    """An encoder for the policy and one of the same kind for values, each learned by its own loss."""

    def __init__(self, rep: Rep, value_rep: Rep) -> None:
        super().__init__(rep)
        self.value_rep = value_rep

    @override
    def forward(self, obs: Obs, prev_action: Tensor, carry: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
        state, _ = self.rep(obs, prev_action, carry, valid)
        return state, self.for_values(obs, prev_action, carry, valid)

    @override
    def for_values(self, obs: Obs, prev_action: Tensor, carry: Tensor, valid: Tensor) -> Tensor:
        state: Tensor = self.value_rep(obs, prev_action, carry, valid)[0]
        return state

    @override
    def own(self) -> dict[str, nn.Module]:
        return {"value_encoder": self.value_rep}


def check_norms(networks: Networks) -> None:
    """Raise ModelError for a batch norm: a ratio of 1 needs the networks to act as they are trained."""
    for name, network in {"ModelRep": networks.rep, **networks.built}.items():
        if has_batch_norm(network):
            raise ModelError(
                f"{name} has a batch norm",
                why="while learning it would give other actions and values than while acting",
                fix="take layer norm there, or SAC",
            )


def make_encoders(networks: Networks, *, shared: bool, device: torch.device) -> SharedEncoder:
    """Return the encoder or encoders of a learner; default ones begin orthogonal."""
    reps = [networks.rep] if shared else [networks.rep, cast(Rep, networks.make("ModelRep"))]
    if networks.sources["ModelRep"] == "default":
        for rep in reps:
            set_orthogonal(rep)
    return (SharedEncoder if shared else SeparateEncoders)(*reps).to(device).eval()


def clipping(spec: AgentSpec) -> AgentSpec:
    """Return the spec with continuous actions that are clipped, not squashed."""
    return replace(spec, action=replace(spec.action, squash="clip"))


def make_acting_model(
    spec: AgentSpec, networks: Networks, *, normalised: bool, device: torch.device
) -> ActingModel:
    """Return the networks that act; normalised: observations by their statistics."""
    return ActingModel(
        (Normaliser(spec.obs, CLIP) if normalised else NoNormaliser()).to(device),
        networks.rep.to(device),
        networks.built["ModelPolicy"].to(device),
    )


def acting_parts(model: ActingModel) -> dict[str, nn.Module]:
    """Return the modules that act, by name."""
    return {"normaliser": model.normaliser, "rep": model.rep, "policy": model.policy}


def new_actor(spec: AgentSpec, model: ActingModel, *, device: torch.device, seed: int) -> Actor:
    """Return a policy that draws from the distribution itself."""
    return Actor(model, make_parts(spec.action), device=device, exploring=False, seed=seed)


def make_acting(
    inputs: ActingInputs,
    *,
    spec_of: Callable[[AgentSpec], AgentSpec] = clipping,
    networks_of: Callable[[AgentSpec], Mapping[str, Network]] = lambda _: NETWORKS,
) -> Acting:
    """Build the policy of a remote actor, and the modules that its weights are loaded into.

    spec_of, networks_of: the family's own spec of an environment's, and its classes of an ``nn.py``
    """
    inputs = replace(inputs, spec=spec_of(inputs.spec))
    spec, device, behaviour = inputs.spec, inputs.device, inputs.behaviour
    networks = make_networks(inputs, networks_of(spec))
    normalised = inputs.config.run.use_normalization
    model = make_acting_model(spec, networks, normalised=normalised, device=device)
    actor = new_actor(spec, model, device=device, seed=stream_seed(inputs.own_seed, "acting", behaviour))
    warm_up = stream(inputs.own_seed, "warm-up", behaviour)
    return Acting(BehaviourPolicy(spec, actor, warm_up, warming_up=False), acting_parts(model))


def remote_limits(config: BehaviourConfig) -> RemoteLimits:
    """Return limits on what remote actors send: short segments, of which several actors share a rollout."""
    own = own_block(config)
    return RemoteLimits(segments_of(own.rollout_step), max_lag=None if own.use_vtrace else 1)


def segments_of(rollout_step: int) -> int:
    """Return the length of segments of which several actors share a rollout."""
    return min(rollout_step, max(SHORTEST, rollout_step // 8))
