"""Steps of a training for which no environment is stepped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from algorithm.core.data import Episode, State
from algorithm.core.wording import Rows


class OfflineCollector:
    """Source of steps without transitions: each step counts once for every behaviour.

    So updates, of which ``replay_ratio`` belong to a step, are counted in the steps that they stand for.
    """

    agents: frozenset[tuple[str, int]] = frozenset()

    def __init__(self, behaviours: Iterable[str]) -> None:
        self.behaviour_steps = dict.fromkeys(behaviours, 0)

    @property
    def steps(self) -> int:
        """Steps of all behaviours."""
        return sum(self.behaviour_steps.values())

    def step(self) -> list[Episode]:
        """Count a step; no episode ends."""
        for name in self.behaviour_steps:
            self.behaviour_steps[name] += 1
        return []

    def truncate(self) -> None:
        """Do nothing: there is no episode."""

    def renew_parameters(self, lessons: Mapping[str, str], *, reset: bool = False) -> bool:
        """Do nothing: there is no environment, and no episode."""
        return True

    def state(self) -> State:
        """Return the counts."""
        return State(meta={"steps": dict(self.behaviour_steps)})

    def load_state(self, state: State) -> list[str]:
        """Continue from what :meth:`state` returned, exactly."""
        self.behaviour_steps = {name: state.meta["steps"][name] for name in self.behaviour_steps}
        return []

    def metrics(self) -> dict[str, float]:
        """Return nothing: nothing is stepped."""
        return {}

    def rows(self) -> Rows:
        """Return nothing."""
        return ()
