"""An on-policy agent that several processes train at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from statistics import fmean

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from algorithm.agents.on_policy.agent import OnPolicyAgent
from algorithm.agents.roles import AgentInputs, Contribution, Contributor
from algorithm.core.data import Array, Int, Segment, StepBatch
from algorithm.nn.learning.optimiser import FlatRms

_KEPT = 1000
"""Updates whose staleness is kept."""


class AsyncAgent(OnPolicyAgent, Contributor):
    """Asynchronous advantage actor-critic (arXiv 1602.01783, algorithm S3, with shared RMSprop of section 4).

    A copy acts in a rollout with the weights that it has read at its beginning, and takes the gradient at
    them. It adds the step to what the shared weights are by then. In one process alone it is A2C's agent.
    """

    def __init__(self, inputs: AgentInputs) -> None:
        super().__init__(inputs)
        self._shared: Sequence[Tensor] = ()
        self._seen: list[StepBatch] = []
        self._staleness: deque[int] = deque(maxlen=_KEPT)
        self._told_updates = self._told_skipped = 0

    @property
    def _optimiser(self) -> FlatRms:
        (only,) = self.learner.optimisers().values()
        assert isinstance(only, FlatRms)
        return only

    @override
    def weights(self) -> Sequence[Tensor]:
        return self._optimiser.flat.data, *self._optimiser.tensors().values()

    @override
    def join(self, shared: Sequence[Tensor]) -> None:
        self._shared = shared
        self._optimiser.share(*shared)

    @override
    def added(self, ids: Int, new: Segment | StepBatch) -> None:
        """Keep what the owner's statistics need of new transitions."""
        super().added(ids, new)
        if self._shared:
            assert isinstance(new, StepBatch), "a copy acts in its own environment"
            self._seen.append(new)

    @override
    def statistics(self) -> Mapping[str, Array]:
        normaliser, scale = self.learner.model.normaliser, self.learner.return_scale
        found = {f"obs.{name}": value for name, value in normaliser.state_dict().items()}
        found |= {name: value for name, value in scale.tensors().items() if name == "statistics"}
        return {name: value.numpy().copy() for name, value in found.items()}

    @override
    def renew(self, statistics: Mapping[str, Array]) -> None:
        self._optimiser.flat.data.copy_(self._shared[0])
        given = {name: torch.from_numpy(value) for name, value in statistics.items()}
        self.learner.return_scale.roll_back(given)
        self.learner.model.normaliser.load_state_dict(
            {name.removeprefix("obs."): value for name, value in given.items() if name.startswith("obs.")}
        )

    @override
    def contribution(self, stream: Callable[[int], int], staleness: Sequence[int]) -> Contribution:
        names, seen = self.learner.model.normaliser.names, self._seen
        got = chain.from_iterable(one.rewards() for one in seen)
        work = Contribution(
            rows={name: np.concatenate([one.obs[name] for one in seen]) for name in names if seen},
            returns=[(stream(own), at, rewards, ended) for own, at, rewards, ended in got],
            updates=self.updates - self._told_updates,
            skipped=self._guard.skipped - self._told_skipped,
            staleness=staleness,
            metrics=self._metrics,
        )
        self._seen = []
        self._told_updates = self.updates
        self._told_skipped = self._guard.skipped
        return work

    @override
    def take_in(self, work: Contribution) -> None:
        self.learner.return_scale.observe(work)
        if work.rows:
            self.learner.model.normaliser.observe(work.rows)
        self.learner.updates += work.updates
        self._guard.skipped += work.skipped
        self._staleness.extend(work.staleness)
        self._metrics = dict(work.metrics) or self._metrics
        self._rollouts += work.updates
        self._ring.clear()  # what this process had begun by itself is too old by now

    @override
    def own_metrics(self, step: int) -> dict[str, float]:
        """Return values of the last rollout, and the mean staleness."""
        if not self._staleness:
            return self._metrics
        return {**self._metrics, "a3c/staleness": fmean(self._staleness)}
