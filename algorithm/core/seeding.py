"""Random numbers of a run: generators by name from one seed, so that none depends on another's use."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch
    from torch import Tensor


def stream_seed(seed: int, *names: str | int) -> int:
    """Return a 63-bit seed derived from the run's ``seed`` and ``names``, the same on every machine."""
    words = [zlib.crc32(name.encode()) if isinstance(name, str) else int(name) for name in names]
    return int(np.random.SeedSequence([seed, *words]).generate_state(1, np.uint64)[0] >> np.uint64(1))


def stream(seed: int, *names: str | int) -> np.random.Generator:
    """Return a numpy generator of random numbers, seeded from the run's ``seed`` and ``names``."""
    return np.random.default_rng(stream_seed(seed, *names))


def episode_seeds(seed: int, purpose: str) -> Callable[[int, int], int]:
    """Return a function (environment index, episode number) -> seed of the reset, for one purpose.

    A seed has 31 bits, which every simulator accepts.
    """
    return lambda index, episode: stream_seed(seed, purpose, index, episode) >> 32


def restore_generator(generator: torch.Generator, state: Tensor) -> bool:
    """Set a generator to ``state``, which ``get_state`` of another generator returned.

    Return False, with nothing changed, if that generator was of another kind of device: each kind has its
    own algorithm and size of state.
    """
    if state.shape != generator.get_state().shape:
        return False
    generator.set_state(state)
    return True
