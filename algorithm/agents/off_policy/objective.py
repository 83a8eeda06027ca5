"""The interface of an off-policy algorithm: its losses, its keys, and how it draws actions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from algorithm.actions.parts import ActionParts, DiscretePolicy
from algorithm.agents.off_policy.config import OffPolicyConfig
from algorithm.core.spec import ActionSpec
from algorithm.keys.behaviour import BehaviourConfig
from algorithm.nn.protocols import HybridAction

SATURATED = 0.99
"""Size of a component of u from which it counts as saturated: the gradient of tanh is below 0.02."""


class Objective(nn.Module, ABC):
    """Losses of an algorithm's policy, and the policy's part in the critics' targets.

    Positions P are flattened batches of states. One u per state is drawn and shared by all terms. The
    module's parameters are learned beside the networks, such as temperatures.

    parts:          action parts, which draw actions without exploration
    learning_rate:  of the parameters; None: that of the networks
    learns:         there is a policy to learn
    slow_policy:    targets use a slow copy of the policy, on the states of the target encoder
    policy_critics: indices of the critics that the policy maximises; None: all
    words:          descriptions of the algorithm for the start screen
    notices:        lines on its keys without effect, for the start screen
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
        """Return the continuous actions u [P, A_c] in targets, and their log-densities [P].

        policy: output in the next states; noise: [P, A_c] standard normal
        """

    @abstractmethod
    def entropy_bonus(self, logp: Tensor, choice: DiscretePolicy | None) -> Tensor:
        """Return the bonus h(s) [P], which a target adds to the value of a state.

        logp:   [P] log-density of the continuous action
        choice: discrete part of the policy; None without discrete actions
        """

    @abstractmethod
    def losses(
        self, logp: Tensor, choice: DiscretePolicy | None, q: Tensor, value: Tensor, share: Tensor
    ) -> dict[str, Tensor]:
        """Return scalar losses by name, such as ``policy`` and ``alpha``; no two share a parameter.

        logp:   [P] log-density of the fresh u, with gradient
        choice: discrete part of the policy; None without discrete actions
        q:      [P, N] reduced Q of u, with gradient to u only
        value:  [P] expectation of q under the discrete part
        share:  [P] of each position in the mean, with the sum 1
        """

    @abstractmethod
    def metrics(self, u: Tensor, logp: Tensor, choice: DiscretePolicy | None) -> dict[str, Tensor]:
        """Return values to log: scalars or [..., P], without gradient."""


@dataclass(frozen=True, kw_only=True)
class AlgorithmSpec:
    """Definition of an off-policy algorithm.

    keys:           returns the shared keys of a configuration, with the values that the algorithm prescribes
    make_objective: constructor of the objective for an action space
    make_parts:     constructor of the action parts; its last argument: with exploration
    """

    keys: Callable[[BehaviourConfig], OffPolicyConfig]
    make_objective: Callable[[ActionSpec, BehaviourConfig], Objective]
    make_parts: Callable[[ActionSpec, BehaviourConfig, bool], ActionParts]
