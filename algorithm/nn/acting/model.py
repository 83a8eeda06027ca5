"""Networks for acting, and how they are switched to learning and back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
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


class TrainingMode:
    """Switch of networks to training and back, each of them in every mode that ``nn.Module.train`` gives it.

    ``nn.Module.train`` visits all modules with a setter that is slow, twice an update: an eighth of an update
    of A2C. Here the modules are listed once; one that has a ``train`` of its own is asked.

    never: kinds of modules that stay as they are
    """

    def __init__(self, networks: Iterable[nn.Module], *, never: tuple[type[nn.Module], ...] = ()) -> None:
        parts = [part for one in networks for part in _all_modules(one) if not isinstance(part, never)]
        plain = (nn.Module.train, Ensemble.train)  # what an ensemble asks besides is listed
        self._own = [part for part in parts if type(part).train not in plain]
        self._plain = [part for part in parts if type(part).train in plain]

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Enable dropout, batch statistics and the like inside the context."""
        self._set(True)
        try:
            yield
        finally:
            self._set(False)

    def _set(self, mode: bool) -> None:
        for part in self._plain:
            object.__setattr__(part, "training", mode)
        for part in self._own:
            part.train(mode)


def _all_modules(network: nn.Module) -> Iterator[nn.Module]:
    """Yield the modules of a network, and those that its ensembles run."""
    for part in network.modules():
        yield part
        if isinstance(part, Ensemble):
            yield from (inner for copy in part.copies for inner in copy.modules())
