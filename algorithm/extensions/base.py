"""Interface between families and extensions: reward signals, representation learning and prediction.

A family imports nothing else of extensions; an extension never imports a family.
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
from algorithm.nn.encoding import States
from algorithm.nn.protocols import HybridAction, Obs


@dataclass(frozen=True)
class Horizon:
    """Discounting of rewards, ``Q = r + γ d V(s')``.

    gamma: γ
    ends:  d is 0 if the task terminated; false: d is always 1, and the value goes on at the final observation
    """

    gamma: float
    ends: bool = True


class LearnerNetworks(Protocol):
    """Networks of a learner, as extensions use them."""

    def normalise(self, obs: Obs) -> Obs:
        """Return raw observations, of any shape [..., *obs], normalised as the networks' inputs."""

    def states(self, obs: Obs, batch: SequenceBatch) -> States:
        """Return the states of a batch; obs: [B, W+1, ...] inputs in place of its observations."""

    def q(self, state: Tensor, action: Tensor) -> Tensor:
        """Return the critics' values [E, B, T] of flat actions [B, T, A] in states [B, T, S]."""

    def target_q(self, state: Tensor, action: Tensor) -> Tensor:
        """Return the target critics' values, as :meth:`q`, without gradient."""

    def policy(self, state: Tensor, obs: Obs) -> HybridAction:
        """Return the policy's distribution [B, T, ...] in states [B, T, S], without gradient."""


@dataclass(frozen=True, kw_only=True)
class Context:
    """Batch of an update with its encoded states, shared by all losses: encoded once, never modified.

    ``learned`` positions are K … K+T−1.
    """

    batch: SequenceBatch  # rewards are scaled, with ``reward_scaling``
    obs: Obs  # name -> [B, W+1, ...], the networks' inputs: normalised, with ``use_normalization``
    states: States  # of these observations
    burn_in: int  # K
    learn: int  # T
    networks: LearnerNetworks
    drawn: Mapping[str, Any] = field(default_factory=dict)  # extensions' random numbers, by class name
    with_gradient: bool = True  # states and values have a gradient

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
        """Online carry after each token [B, W+1, *C]; [B, 0] if no carry is stored."""
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
        """Return raw observations of another batch, normalised like ``obs``."""
        return self.networks.normalise(obs)

    def recode(self, obs: Obs) -> States:
        """Return the states of this batch for other inputs of the same shapes, such as augmented ones."""
        return self.networks.states(obs, self.batch)

    def q(self, state: Tensor, action: Tensor | None = None) -> Tensor:
        """Return the critics' values of actions [B, T, A] in states [B, T, S]: [E, B, T].

        They have a gradient, except in a context by :meth:`detached`.
        action: flat, at the learned positions; None: the stored actions
        """
        stored = self.batch.action[:, self.learned]
        value = self.networks.q(state, stored if action is None else action)
        return value if self.with_gradient else value.detach()

    def target_q(self, state: Tensor, action: Tensor | None = None) -> Tensor:
        """Return the target critics' values, as :meth:`q`, without gradient."""
        stored = self.batch.action[:, self.learned]
        return self.networks.target_q(state, stored if action is None else action)

    def policy(self) -> HybridAction:
        """Return the present policy's distribution at the learned tokens, [B, T, ...] without gradient."""
        obs = {name: value[:, self.learned] for name, value in self.obs.items()}
        return self.networks.policy(self.states.learned.detach(), obs)

    def detached(self) -> Context:
        """Return a copy whose states and values have no gradient."""
        return replace(self, states=cast(States, _Detached(self.states)), with_gradient=False)


class _Detached:
    """View of a batch's states whose tensors have no gradient."""

    def __init__(self, states: States) -> None:
        self._states = states

    def __getattr__(self, name: str) -> Tensor:
        state: Tensor = getattr(self._states, name)
        return state.detach()


class Shown(nn.Module):
    """Metrics of the last update, [] each, in buffers that a compiled update can write; not saved."""

    def __init__(self, *names: str) -> None:
        super().__init__()
        for name in names:
            self.register_buffer(name, torch.zeros(()), persistent=False)

    @torch.no_grad()
    def show(self, numbers: Mapping[str, Tensor]) -> None:
        """Set the metrics ``numbers``, name -> []."""
        for name, number in numbers.items():
            self.get_buffer(name).copy_(number)


class Extension(nn.Module):
    """Base of extensions; by itself it has no effect. The order of extensions must not matter.

    Updates may be compiled, as one graph that is made once. Then losses may only change buffers, in place;
    a changed attribute, or a random number that ``draw`` did not draw, is refused.

    joint:  modules trained by ``auxiliary_losses``, together with encoder and critics
    own:    modules trained by ``own_losses``
    rounds: steps of ``own`` per update, each with random numbers of its own; all extensions use the largest
    learning_rate: of ``own``; None: that of the agent
    horizon: of ``reward_bonus``; None: that of the agent. Any other horizon has its own critics, or values
    signal: name of the reward in the metrics of that horizon
    gated:  the encoder gets the gradient of ``auxiliary_losses`` only if its cosine with the critics' is
        positive
    prefix: prefix of its losses and metrics; empty for built-in extensions
    num_candidates: actions that an exploring actor samples, of which ``score_actions`` chooses one
    shown:  names of the metrics that :meth:`metrics` returns
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
        """Draw the random numbers of an update, as nested tuples and dictionaries of tensors; None for none.

        learned: learned positions of a window. Losses find them in ``ctx.drawn``, by the name of the class.
        """
        return None

    def reward_bonus(self, ctx: Context) -> Tensor | float:
        """Return an intrinsic reward [B, W], without gradient; it is added to the other rewards."""
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

    def updated(self, tau: float) -> None:
        """Update the extension's own targets by ``tau``, after the online networks."""

    def score_actions(self, state: Tensor, action: Tensor) -> Tensor | float:
        """Return scores [N, M] of M flat actions [N, M, A] in states [N, S]; the actor takes the largest."""
        return 0.0


def by_horizon(extensions: Sequence[Extension], agents: Horizon) -> dict[Horizon, list[Extension]]:
    """Return the extensions by their horizons, in order; the agent's horizon, ``agents``, is the first."""
    groups: dict[Horizon, list[Extension]] = {agents: []}
    for extension in extensions:
        groups.setdefault(extension.horizon or agents, []).append(extension)
    return groups


def signal_metric(name: str, extensions: Sequence[Extension]) -> str:
    """Return the name of a metric for a further horizon: ``name`` with the suffix of its first signal."""
    return f"{extensions[0].prefix}{name}_{extensions[0].signal}"


class Demonstrated(Protocol):
    """Source of demonstrated windows; learned: their learned positions."""

    learned: slice

    def draw(self, n: int, generator: torch.Generator) -> SequenceBatch:
        """Draw n windows, on the CPU."""


@dataclass(frozen=True, kw_only=True)
class Build:
    """Inputs of an extension's constructor.

    options:        shared keys of the configuration
    make_network:   builds an optional class of an ``nn.py``, by its name and arguments
    demonstrations: None without any, and for agents that do not learn, as in remote actors
    """

    spec: AgentSpec
    state_size: int  # S
    options: RunConfig
    signals: RewardSignals
    demonstrations: Demonstrated | None = None
    make_network: Callable[..., nn.Module]

    def horizon(self, keys: CuriositySignal | RndSignal | GailSignal) -> Horizon:
        """Return the horizon of a reward signal, with the agent's γ if ``gamma`` is null."""
        return Horizon(self.options.gamma if keys.gamma is None else keys.gamma, keys.ends)


def draw_all(
    extensions: Sequence[Extension], batch: SequenceBatch, learned: slice, generator: torch.Generator
) -> dict[str, object]:
    """Draw the random numbers of extensions for an update, by the names of their classes."""
    drawn = {type(x).__name__: x.draw(batch, learned, generator) for x in extensions}
    return {name: numbers for name, numbers in drawn.items() if numbers is not None}
