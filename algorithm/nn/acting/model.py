"""Networks for acting."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

from torch import nn

from algorithm.nn.ensemble import Ensemble
from algorithm.nn.normalise import NoNormaliser, Normaliser
from algorithm.nn.protocols import Rep


class ActingModel(nn.Module):
    """Normaliser, encoder and policy, with critics only where an action is chosen by them.

    All stand in evaluation mode.

    critics: an ensemble for each horizon of rewards, whose values are summed; none without them
    """

    def __init__(
        self,
        normaliser: Normaliser | NoNormaliser,
        rep: Rep,
        policy: nn.Module,
        critics: Sequence[Ensemble] = (),
    ) -> None:
        super().__init__()
        self.normaliser, self.rep = normaliser, rep
        if critics:
            self.q = critics[0]
        self.signal_q = nn.ModuleList(critics[1:])
        self.policy = policy
        self.eval()

    @property
    def critics(self) -> tuple[Ensemble, ...]:
        """All ensembles, that of the environment's reward first."""
        return (self.q, *cast(Iterable[Ensemble], self.signal_q)) if hasattr(self, "q") else ()
