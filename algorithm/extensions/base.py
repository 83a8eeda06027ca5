"""The seam through which curiosity, representation learning and prediction attach to SAC.

SAC knows only this class; an extension never imports ``algorithm.sac``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch import Tensor, nn

from algorithm.data import SequenceBatch


@dataclass(frozen=True, kw_only=True)
class Context:
    """One batch as every part of an update sees it: encoded once, shared, never modified.

    ``learned`` positions are K … K+T−1.
    """

    batch: SequenceBatch
    obs: Mapping[str, Tensor]  # name -> [B, W+1, ...] as networks see them: normalised where that is on
    state: Tensor  # [B, W+1, S] by the online encoder, with gradient at the learned positions
    target_following: Tensor  # [B, W−K, S] by the target encoder, of tokens K+1 … W
    target_learned: Callable[[], Tensor]  # [B, T, S] by the target encoder; evaluated if needed
    carry: Tensor  # [B, W+1, *C] online, after each token; [B, 0] where nothing is stored
    burn_in: int  # K
    learn: int  # T

    @property
    def learned(self) -> slice:
        """The learned positions as a slice of the time dimension."""
        return slice(self.burn_in, self.burn_in + self.learn)


class Extension(nn.Module):
    """Does nothing; an extension overrides what it needs. The order of extensions must not matter."""

    def reward_bonus(self, ctx: Context) -> Tensor | float:
        """An intrinsic reward [B, W], without gradient; added once to a new tensor."""
        return 0.0

    def auxiliary_losses(self, ctx: Context) -> Mapping[str, Tensor]:
        """Scalar losses by name that train the encoder together with the critics."""
        return {}

    def own_losses(self, ctx: Context) -> Mapping[str, Tensor]:
        """Scalar losses by name that train this extension's own parameters only."""
        return {}
