"""The global generators of Python, NumPy and torch, for code that draws from them.

The project itself draws from separate streams (``seeding.py``). A task's networks (dropout, augmentation)
and its environment in the main process may use the global generators.
"""

from __future__ import annotations

import random

import numpy as np
import torch

from algorithm.core.data import State
from algorithm.core.seeding import stream_seed


def seed_globally(seed: int) -> None:
    """Seed all three from the run's seed."""
    random.seed(stream_seed(seed, "global", "python"))
    np.random.seed(stream_seed(seed, "global", "numpy") >> 32)  # it takes 32 bits
    torch.manual_seed(stream_seed(seed, "global", "torch"))  # of every device


class GlobalRandom:
    """State of the three. On a machine with another number of GPUs only the CPU's is restored."""

    def state(self) -> State:
        """Return the state of each."""
        version, words, gauss = random.getstate()
        legacy = np.random.get_state(legacy=False)
        twister = legacy["state"]
        arrays = {
            "python": np.array(words, np.int64),
            "numpy": twister["key"].astype(np.int64),
            "torch": torch.get_rng_state().numpy(),
        }
        for index, cuda in enumerate(torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []):
            arrays[f"cuda:{index}"] = cuda.numpy()
        return State(
            arrays,
            {
                "python": {"version": version, "gauss": gauss},
                "numpy": {
                    "pos": int(twister["pos"]),
                    "has_gauss": int(legacy["has_gauss"]),
                    "gauss": float(legacy["gauss"]),
                },
            },
        )

    def load_state(self, state: State) -> None:
        """Continue from what :meth:`state` returned."""
        arrays, python, numpy = state.arrays, state.meta["python"], state.meta["numpy"]
        random.setstate((python["version"], tuple(arrays["python"].tolist()), python["gauss"]))
        np.random.set_state(
            {
                "bit_generator": "MT19937",
                "state": {"key": arrays["numpy"].astype(np.uint32), "pos": numpy["pos"]},
                "has_gauss": numpy["has_gauss"],
                "gauss": numpy["gauss"],
            }
        )
        torch.set_rng_state(torch.from_numpy(arrays["torch"].astype(np.uint8)))
        cuda = sorted(name for name in arrays if name.startswith("cuda:"))
        if cuda and len(cuda) == torch.cuda.device_count():
            for name in cuda:
                torch.cuda.set_rng_state(torch.from_numpy(arrays[name].astype(np.uint8)), name)
