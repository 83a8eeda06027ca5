"""The replay: transitions go in, windows come out, chosen by a sampler."""

from __future__ import annotations

from typing import TYPE_CHECKING

from algorithm.core.lazy import lazy, of_modules

if TYPE_CHECKING:
    from algorithm.replay.buffer import ReplayBuffer
    from algorithm.replay.samplers import FifoSampler, PrioritizedSampler, Sampler, UniformSampler
    from algorithm.replay.storage import Storage
    from algorithm.replay.sumtree import SumTree
else:
    __getattr__, __dir__ = lazy(
        __name__,
        of_modules(
            {
                "algorithm.replay.buffer": "ReplayBuffer",
                "algorithm.replay.samplers": "FifoSampler PrioritizedSampler Sampler UniformSampler",
                "algorithm.replay.storage": "Storage",
                "algorithm.replay.sumtree": "SumTree",
            },
        ),
    )

__all__ = [
    "FifoSampler",
    "PrioritizedSampler",
    "ReplayBuffer",
    "Sampler",
    "Storage",
    "SumTree",
    "UniformSampler",
]
