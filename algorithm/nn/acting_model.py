"""Networks for acting."""

from __future__ import annotations

from torch import nn

from algorithm.nn.ensemble import Ensemble
from algorithm.nn.normalise import NoNormaliser, Normaliser
from algorithm.nn.protocols import Rep


class ActingModel(nn.Module):
    """Normaliser, encoder and policy, with critics only where an action is chosen by them.

    All stand in evaluation mode.
    """

    def __init__(
        self,
        normaliser: Normaliser | NoNormaliser,
        rep: Rep,
        policy: nn.Module,
        q: Ensemble | None = None,
    ) -> None:
        super().__init__()
        self.normaliser, self.rep = normaliser, rep
        if q is not None:
            self.q = q
        self.policy = policy
        self.eval()
