"""Interface of reward signals, representation learning and prediction to the families.

A family imports only what stands here; an extension never imports a family.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn

from algorithm.core.data import SequenceBatch
from algorithm.core.spec import AgentSpec
from algorithm.keys.run import RunConfig
from algorithm.keys.signals import CuriositySignal, GailSignal, RewardSignals, RndSignal
from algorithm.nn.distributions import HybridAction
from algorithm.nn.encoding import States
from algorithm.nn.protocols import Obs


@dataclass(frozen=True)
class Horizon:
    """Discounting of rewards, ``Q = r + γ d V(s')``.

    ends: d is 0 where the task terminated. Otherwise it is 1, and V is that of the final observation.
    """

    gamma: float
    ends: bool = True


class LearnerNetworks(Protocol):
    """Networks of a learner, as extensions use them."""

    def normalise(self, obs: Obs) -> Obs:
        """Return raw observations of any batch as the networks' inputs."""

    def states(self, obs: Obs, batch: SequenceBatch) -> States:
        """Return the states of a batch whose observations are these inputs."""

    def q(self, state: Tensor, action: Tensor) -> Tensor:
        """Return the critics' values [E, B, T] of flat actions [B, T, A] in states [B, T, S]."""

    def target_q(self, state: Tensor, action: Tensor) -> Tensor:
        """Return the same by the target critics, without gradient."""

    def policy(self, state: Tensor, obs: Obs) -> HybridAction:
        """Return the policy's distribution [B, T, ...] in states [B, T, S], without gradient."""


@dataclass(frozen=True, kw_only=True)
class Context:
    """Batch of an update, shared by all of its parts: encoded once, never modified.

    ``learned`` positions are K … K+T−1.
    """

    batch: SequenceBatch  # with the rewards of the targets: scaled where that is on
    obs: Obs  # name -> [B, W+1, ...], the networks' inputs: normalised where that is on
    states: States  # of these observations
    burn_in: int  # K
    learn: int  # T
    networks: LearnerNetworks
    drawn: Mapping[str, Any] = field(default_factory=dict)  # what extensions drew, by names of their classes
    with_gradient: bool = True  # of states and values

    @property
    def learned(self) -> slice:
        """Learned positions as a slice of the time dimension."""
        return slice(self.burn_in, self.burn_in + self.learn)

    @property
    def state(self) -> Tensor:
        """States by the online encoder [B, W+1, S], with gradient at the learned positions."""
        return self.states.online

    @property
    def carry(self) -> Tensor:
        """Online carry after each token [B, W+1, *C]; [B, 0] where nothing is stored."""
        return self.states.carry

    def carry_before(self) -> Tensor:
        """Return the online carry before each token, [B, W+1, *C], as the replay stores it."""
        return torch.cat([self.batch.carry.unsqueeze(1), self.carry[:, :-1]], 1)

    @property
    def target_following(self) -> Tensor:
        """States by the target encoder of tokens K+1 … W, [B, W−K, S]."""
        return self.states.target_following

    @property
    def target_learned(self) -> Tensor:
        """States by the target encoder of the learned tokens, [B, T, S]."""
        return self.states.target_learned

    def normalise(self, obs: Obs) -> Obs:
        """Return raw observations of any other batch as the networks' inputs, as it was done to these."""
        return self.networks.normalise(obs)

    def recode(self, obs: Obs) -> States:
        """Return the states of other inputs of the same shapes, such as augmented ones."""
        return self.networks.states(obs, self.batch)

    def q(self, state: Tensor, action: Tensor | None = None) -> Tensor:
        """Return the critics' values of actions [B, T, A] in states [B, T, S]: [E, B, T], with gradient.

        action: flat, of the learned positions; None: the stored ones
        """
        stored = self.batch.action[:, self.learned]
        value = self.networks.q(state, stored if action is None else action)
        return value if self.with_gradient else value.detach()

    def target_q(self, state: Tensor, action: Tensor | None = None) -> Tensor:
        """Return the same by the target critics, without gradient."""
        stored = self.batch.action[:, self.learned]
        return self.networks.target_q(state, stored if action is None else action)

    def policy(self) -> HybridAction:
        """Return the present policy's distribution at the learned tokens, [B, T, ...] without gradient."""
        obs = {name: value[:, self.learned] for name, value in self.obs.items()}
        return self.networks.policy(self.states.learned.detach(), obs)

    def detached(self) -> Context:
        """Return the same with states and values of actions that have no gradient."""
        return replace(self, states=cast(States, _Detached(self.states)), with_gradient=False)


class _Detached:
    """States without gradient."""

    def __init__(self, states: States) -> None:
        self._states = states

    def __getattr__(self, name: str) -> Tensor:
        state: Tensor = getattr(self._states, name)
        return state.detach()


class Shown(nn.Module):
    """Numbers of the last update, [] each, in buffers that a compiled update can write; not saved."""

    def __init__(self, *names: str) -> None:
        super().__init__()
        for name in names:
            self.register_buffer(name, torch.zeros(()), persistent=False)

    @torch.no_grad()
    def show(self, numbers: Mapping[str, Tensor]) -> None:
        """Take these in."""
        for name, number in numbers.items():
            self.get_buffer(name).copy_(number)


class Extension(nn.Module):
    """Base of extensions, without effect by itself. The order of extensions must not matter.

    Updates may be compiled, as one graph that is made once. What losses change has to be a buffer then,
    written in place; an attribute that changes, or a random number that ``draw`` did not draw, is refused.

    joint: parts trained by ``auxiliary_losses``, together with encoder and critics
    own:   parts trained by ``own_losses``
    rounds: steps of these for an update, each with numbers drawn anew; the most of all extensions counts
    learning_rate: of these; None: that of the agent
    horizon: of ``reward_bonus``; None: that of the agent. Each other one has critics, or values, of its own
    signal: name of the reward in the metrics of these
    gated: the encoder gets the gradient of ``auxiliary_losses`` only if its cosine with the critics' is
        positive
    prefix: in front of the names of its losses, metrics and pictures; empty for those of this project
    num_candidates: actions that an exploring actor draws, of which ``score_actions`` chooses one
    shown:  names of the metrics of ``metrics``
    """

    gated = False
    prefix = ""
    num_candidates = 1
    rounds = 1
    learning_rate: float | None = None
    horizon: Horizon | None = None
    signal = "signal"

    def __init__(self, *shown: str) -> None:
        super().__init__()
        self.joint = nn.ModuleList()
        self.own = nn.ModuleList()
        self.shown = Shown(*shown)

    def draw(self, batch: SequenceBatch, learned: slice, generator: torch.Generator) -> object:
        """Return the random numbers of an update, nested tuples and dictionaries of tensors, before it.

        The losses find them in ``ctx.drawn`` by the name of the class.
        """
        return None

    def reward_bonus(self, ctx: Context) -> Tensor | float:
        """Return an intrinsic reward [B, W], without gradient; added once to a new tensor."""
        return 0.0

    def auxiliary_losses(self, ctx: Context) -> Mapping[str, Tensor]:
        """Return scalar losses by name that train the encoder and ``joint`` together with the critics."""
        return {}

    def own_losses(self, ctx: Context) -> Mapping[str, Tensor]:
        """Return scalar losses by name that train ``own`` only."""
        return {}

    def metrics(self) -> Mapping[str, Tensor]:
        """Return metrics of the last update by name: scalars that stay on the device."""
        return {name: number.clone() for name, number in self.shown.named_buffers()}

    def pictures(self) -> Mapping[str, Tensor]:
        """Return pictures of the last update by name: uint8 [H, W, C], C 1 or 3."""
        return {}

    def updated(self, tau: float) -> None:
        """Update the extension's own targets by ``tau``, after the online networks."""

    def score_actions(self, state: Tensor, action: Tensor) -> Tensor | float:
        """Return scores [N, M] of M flat actions [N, M, A] in states [N, S]; the largest is taken."""
        return 0.0


def by_horizon(extensions: Sequence[Extension], own: Horizon) -> dict[Horizon, list[Extension]]:
    """Return the extensions by their horizons, in their order; ``own``, the agent's, is the first."""
    found: dict[Horizon, list[Extension]] = {own: []}
    for one in extensions:
        found.setdefault(one.horizon or own, []).append(one)
    return found


def signal_metric(name: str, extensions: Sequence[Extension]) -> str:
    """Return the name of a metric of a further horizon, which has that of its first signal."""
    return f"{extensions[0].prefix}{name}_{extensions[0].signal}"


class Demonstrated(Protocol):
    """Source of demonstrated windows, whose learned part is ``learned``."""

    learned: slice

    def draw(self, n: int, generator: torch.Generator) -> SequenceBatch:
        """Return n windows on the CPU."""


@dataclass(frozen=True, kw_only=True)
class Build:
    """Inputs of an extension's maker.

    make_network: one of the optional classes of an ``nn.py``, by its name and arguments
    demonstrations: None where nothing is learned: agents that only play, remote actors
    """

    spec: AgentSpec
    state_size: int  # S
    options: RunConfig
    signals: RewardSignals
    demonstrations: Demonstrated | None = None
    make_network: Callable[..., nn.Module]

    def horizon(self, keys: CuriositySignal | RndSignal | GailSignal) -> Horizon:
        """Return the horizon of a reward signal."""
        return Horizon(self.options.gamma if keys.gamma is None else keys.gamma, keys.ends)


def draw_all(
    extensions: Sequence[Extension], batch: SequenceBatch, learned: slice, generator: torch.Generator
) -> dict[str, object]:
    """Return what the extensions draw for an update, by the names of their classes."""
    drawn = {type(one).__name__: one.draw(batch, learned, generator) for one in extensions}
    return {name: numbers for name, numbers in drawn.items() if numbers is not None}
