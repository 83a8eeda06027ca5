"""Observations in, actions out. Knows nothing of optimisers or replay."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from algorithm.data import Array, Float
from algorithm.nn.distributions import TanhNormal
from algorithm.nn.protocols import Rep
from algorithm.sac.heads import ContinuousHead
from algorithm.spec import Z_LIMIT, AgentSpec


@dataclass(frozen=True, kw_only=True)
class ActorOutput:
    """What N agents do, as the replay stores it."""

    action: Float  # [N, A]
    z: Float  # [N, A_c]
    behaviour_logp: Float  # [N, H]
    carry: Float  # [N, *C] after the observation


def _sample(part: TanhNormal, generator: torch.Generator) -> torch.Tensor:
    """The z of ``part.rsample``, bit for bit, without the density that goes with it."""
    noise = torch.randn(part.mean.shape, generator=generator, device=part.mean.device)
    return part.mean + part.log_std.exp() * noise


class Actor:
    """Acts for any number of agents in one forward pass.

    rep, policy: the networks; shared with a learner in the same process, copies elsewhere
    seed:        of the sampled actions
    """

    def __init__(
        self, spec: AgentSpec, rep: Rep, policy: torch.nn.Module, *, device: torch.device, seed: int
    ) -> None:
        self._rep, self._policy, self._device = rep, policy, device
        self._head = ContinuousHead(spec.action)
        self._generator = torch.Generator(device).manual_seed(seed)
        self._stores_carry = rep.carry_shape != (0,)
        self._valid = torch.ones(1, 1, dtype=torch.bool, device=device)

    def initial_carry(self, n: int) -> Float:
        """The carry of ``n`` agents at the start of their episodes, [n, *C]."""
        return self._rep.initial_carry(n).cpu().numpy()

    @torch.inference_mode()
    def act(
        self, obs: Mapping[str, Array], prev_action: Float, carry: Float, *, greedy: bool = False
    ) -> ActorOutput:
        """Actions of N agents; ``greedy`` takes the mode instead of a sample.

        obs: name -> [N, ...]; prev_action [N, A], zeros at an episode's start; carry [N, *C].
        """
        seen = {name: self._tensor(value) for name, value in obs.items()}
        state, carry_after = self._rep(
            {name: value.unsqueeze(1) for name, value in seen.items()},
            self._tensor(prev_action).unsqueeze(1),
            self._tensor(carry),
            self._all_valid(len(prev_action)),
        )
        part = self._head.part(self._policy(state[:, 0], seen))
        z = part.mean if greedy else _sample(part, self._generator)
        z = z.clamp(-Z_LIMIT, Z_LIMIT)
        logp = part.logp(z)
        z_array = z.cpu().numpy()
        return ActorOutput(
            action=np.tanh(z_array),
            z=z_array,
            behaviour_logp=logp.unsqueeze(-1).cpu().numpy(),
            carry=carry_after[:, 0].cpu().numpy() if self._stores_carry else carry,
        )

    def random_state(self) -> NDArray[np.uint8]:
        """State of the generator, for a checkpoint."""
        return self._generator.get_state().numpy()

    def load_random_state(self, state: NDArray[np.uint8]) -> None:
        """Continue from what :meth:`random_state` gave."""
        self._generator.set_state(torch.from_numpy(state))

    def _all_valid(self, n: int) -> torch.Tensor:
        """True [n, 1], the same tensor as long as n stays the same."""
        if len(self._valid) != n:
            self._valid = torch.ones(n, 1, dtype=torch.bool, device=self._device)
        return self._valid

    def _tensor(self, array: Array) -> torch.Tensor:
        return torch.from_numpy(array).to(self._device)
