"""The contract of environments that step as tensors: the methods of a simulator of a thousand copies."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import gymnasium as gym

if TYPE_CHECKING:  # the contract is read where torch is not loaded
    import torch
    from torch import Tensor

TensorObs: TypeAlias = "Tensor | Mapping[str, Tensor]"
"""Observations of all lanes: [N, …], or by the names of a Dict space."""


class TensorStep(NamedTuple):
    """Result of a step of N lanes.

    Where an episode has ended, the next one has begun. ``obs`` is its first observation, ``final`` the last
    one of the episode that ended. Rows of ``final`` that belong to other lanes are not read, so it is
    usually the observation before the lanes were reset, whole: ``torch.where`` needs no count.

    ``final`` is None in every step of a simulator that resets its lanes and keeps no last observation. Then
    the last transition of a truncated episode is unknown and is not stored. One that terminated is stored,
    because nothing is bootstrapped from its end.
    """

    obs: TensorObs
    reward: Tensor  # [N] float
    terminated: Tensor  # [N] bool: the task ended, no value follows
    truncated: Tensor  # [N] bool: cut off, for example by a time limit; the value of ``final`` follows
    final: TensorObs | None = None


class TensorEnv(ABC):
    """N copies of an environment, the lanes, which step together; lane i is row i of every tensor.

    All tensors are on ``device``. A tensor that a method returns belongs to the caller: it is never written
    again. A step does not wait for the device: no ``item()``, no ``if`` on a tensor, no shape that depends on
    values.

    To use a class, name it: ``env_type: TENSOR``, ``env_name: "file.py:Class"``. It is made by
    ``Class(num_envs, device=device, **env_args)``. In Python, pass an instance.

    num_envs:          N
    device:            of all tensors
    observation_space: of one lane: a Box, a Discrete, or a Dict of them, in which ``action_mask`` is the mask
                       of allowed actions
    action_space:      of one lane, with finite bounds
    time_limit:        steps after which an episode is truncated, where it is known
    """

    num_envs: int
    device: torch.device
    observation_space: gym.Space[Any]
    action_space: gym.Space[Any]
    time_limit: int | None = None

    @abstractmethod
    def reset(self, seed: int | None = None, lanes: Tensor | None = None) -> TensorObs:
        """Begin new episodes; return the observations of all lanes, unchanged for lanes that go on.

        seed:  of all random numbers from now on; None: they continue
        lanes: [N] bool, those that begin anew; None for all
        """

    @abstractmethod
    def step(self, actions: Tensor) -> TensorStep:
        """Step all lanes.

        actions: [N, *shape] in the bounds and the dtype of ``action_space``
        """

    def state(self) -> Mapping[str, Tensor] | None:
        """Return all that later steps depend on, random numbers included, so that a resumed run is exact.

        None, the default, if the simulator has no such state: a resumed run begins new episodes.
        """
        return None

    def load_state(self, state: Mapping[str, Tensor]) -> None:  # noqa: B027 - only of those with a state
        """Continue from a result of :meth:`state`, whose tensors are on the CPU."""

    def close(self) -> None:
        """Release the simulator."""
        return
