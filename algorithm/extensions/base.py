"""The seam through which curiosity, representation learning and prediction attach to SAC.

SAC knows only this class; an extension never imports ``algorithm.sac``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from algorithm.data import SequenceBatch
from algorithm.nn.encoding import Obs, States


@dataclass(frozen=True, kw_only=True)
class Context:
    """One batch as every part of an update sees it: encoded once, shared, never modified.

    ``learned`` positions are K … K+T−1.
    """

    batch: SequenceBatch  # with rewards as values are made of them: scaled where that is on
    obs: Obs  # name -> [B, W+1, ...] as networks see them: normalised where that is on
    states: States  # of these observations
    burn_in: int  # K
    learn: int  # T
    recode: Callable[[Obs], States]  # of other observations of the same shapes, such as augmented ones
    q: Callable[[Tensor], Tensor]  # states [B, T, S] -> values of the stored actions there, [E, B, T]
    target_q: Callable[[Tensor], Tensor]  # the same by the target critics, without gradient
    generator: torch.Generator  # of all random numbers in an update

    @property
    def learned(self) -> slice:
        """The learned positions as a slice of the time dimension."""
        return slice(self.burn_in, self.burn_in + self.learn)

    @property
    def state(self) -> Tensor:
        """[B, W+1, S] by the online encoder, with gradient at the learned positions."""
        return self.states.online

    @property
    def carry(self) -> Tensor:
        """[B, W+1, *C] online, after each token; [B, 0] where nothing is stored."""
        return self.states.carry

    @property
    def target_following(self) -> Tensor:
        """[B, W−K, S] by the target encoder, of tokens K+1 … W."""
        return self.states.target_following

    @property
    def target_learned(self) -> Tensor:
        """[B, T, S] by the target encoder."""
        return self.states.target_learned


class Extension(nn.Module):
    """Does nothing; an extension overrides what it needs. The order of extensions must not matter.

    joint: parts trained by ``auxiliary_losses``, together with encoder and critics
    own:   parts trained by ``own_losses``
    gated: of the gradient of ``auxiliary_losses`` the encoder gets only what does not work against the
        critics': all of it, or nothing where the cosine of the two is not positive
    num_candidates: actions that an exploring actor draws, of which ``score_actions`` chooses one
    """

    gated = False
    num_candidates = 1

    def __init__(self) -> None:
        super().__init__()
        self.joint = nn.ModuleList()
        self.own = nn.ModuleList()

    def reward_bonus(self, ctx: Context) -> Tensor | float:
        """An intrinsic reward [B, W], without gradient; added once to a new tensor."""
        return 0.0

    def auxiliary_losses(self, ctx: Context) -> Mapping[str, Tensor]:
        """Scalar losses by name that train the encoder and ``joint`` together with the critics."""
        return {}

    def own_losses(self, ctx: Context) -> Mapping[str, Tensor]:
        """Scalar losses by name that train ``own`` only."""
        return {}

    def metrics(self) -> Mapping[str, Tensor]:
        """More to log of the last update, by name: scalars that stay on the device."""
        return {}

    def pictures(self) -> Mapping[str, Tensor]:
        """What there is to see of the last update, by name: uint8 [H, W, C], C 1 or 3."""
        return {}

    def updated(self, tau: float) -> None:
        """Online networks have moved and targets follow by ``tau``; so do targets of its own."""

    def score_actions(self, state: Tensor, action: Tensor) -> Tensor | float:
        """How much each of M flat actions [N, M, A] in states [N, S] is worth trying: [N, M]."""
        return 0.0
