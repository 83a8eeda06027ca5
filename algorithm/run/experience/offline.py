"""Steps of a training for which no environment is stepped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from algorithm.core.data import Episode, State
from algorithm.core.wording import Rows


class OfflineCollector:
    """Source of steps without transitions, for training on demonstrations alone.

    Each step counts once for every behaviour, so that ``replay_ratio`` relates updates to steps as usual.
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
        """Return the steps of each behaviour."""
        return State(meta={"steps": dict(self.behaviour_steps)})

    def load_state(self, state: State) -> list[str]:
        """Continue from a result of :meth:`state`, exactly."""
        self.behaviour_steps = {name: state.meta["steps"][name] for name in self.behaviour_steps}
        return []

    def must_pause(self) -> bool:
        """Return False: no environment waits for an action."""
        return False

    def metrics(self) -> dict[str, float]:
        """Return no metrics: no environment is stepped."""
        return {}

    def rows(self) -> Rows:
        """Return no rows for the panel."""
        return ()
