"""The part of an off-policy algorithm that is its own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from algorithm.actions.parts import ActionParts, DiscretePolicy
from algorithm.agents.off_policy.config import OffPolicyConfig
from algorithm.core.spec import ActionSpec
from algorithm.keys.behaviour import BehaviourConfig
from algorithm.nn.distributions import HybridAction

SATURATED = 0.99
"""Size of a component of u from which it counts as saturated: the gradient of tanh is below 0.02."""


class Objective(nn.Module, ABC):
    """Losses of a policy by the values of critics, and its part in their targets.

    Positions P are flattened batches of states. One u per state is drawn and shared by all terms. Parameters
    are what is learned besides the networks, such as temperatures.

    parts:          ways to draw actions, without exploration
    learning_rate:  of the parameters; None: as of the networks
    learns:         there is a policy to learn
    slow_policy:    targets come from a slow copy of the policy, which sees the states of target networks
    policy_critics: critics that the policy climbs; None: all
    words, notices: on the algorithm and on its keys without effect, for the start screen
    """

    learning_rate: float | None = None
    learns = True
    slow_policy = False
    policy_critics: list[int] | None = None
    words: Sequence[str] = ()
    notices: Sequence[str] = ()

    def __init__(self, parts: ActionParts) -> None:
        super().__init__()
        self.parts = parts

    @abstractmethod
    def next_action(self, policy: HybridAction, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Return the continuous action u [P, A_c] of targets and its log-density [P], of noise [P, A_c]."""

    @abstractmethod
    def entropy_bonus(self, logp: Tensor, choice: DiscretePolicy | None) -> Tensor:
        """Return h(s) [P], which a target adds to the value of a state.

        logp:   [P] of the continuous action
        choice: discrete part of the policy; None without
        """

    @abstractmethod
    def losses(
        self, logp: Tensor, choice: DiscretePolicy | None, q: Tensor, value: Tensor, share: Tensor
    ) -> dict[str, Tensor]:
        """Return scalar losses by name, which share no parameter.

        logp:  [P] of the fresh u, with gradient
        q:     [P, N] with gradient to u only
        value: [P] of q under the discrete part
        share: [P] of each position in the mean, with the sum 1
        """

    @abstractmethod
    def metrics(self, u: Tensor, logp: Tensor, choice: DiscretePolicy | None) -> dict[str, Tensor]:
        """Return values to log: scalars or [..., P], without gradient."""


@dataclass(frozen=True, kw_only=True)
class AlgorithmSpec:
    """One off-policy algorithm.

    keys:           shared keys of a configuration, as the algorithm means them
    make_objective: of an action space
    make_parts:     ways to draw actions; the last argument: with exploration
    """

    keys: Callable[[BehaviourConfig], OffPolicyConfig]
    make_objective: Callable[[ActionSpec, BehaviourConfig], Objective]
    make_parts: Callable[[ActionSpec, BehaviourConfig, bool], ActionParts]
