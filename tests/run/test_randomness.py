"""The global generators go on where they stood."""

import json
import random

import numpy as np
import torch

from algorithm.core.data import State
from algorithm.core.seeding import stream_seed
from algorithm.run.state import GlobalRandom, seed_globally


def drawn():
    return (
        [random.random() for _ in range(3)],
        random.gauss(0, 1),
        np.random.standard_normal(3).tolist(),
        np.random.randint(1000),
        torch.randn(3).tolist(),
    )


def test_they_go_on_where_they_stood_after_a_detour_through_json():
    seed_globally(0)
    drawn()  # an odd number of normal draws: half a pair is kept back
    state = GlobalRandom().state()
    kept = State({k: v.copy() for k, v in state.arrays.items()}, json.loads(json.dumps(state.meta)))
    expected = drawn()
    seed_globally(1)
    GlobalRandom().load_state(kept)
    assert drawn() == expected


def test_whole_numbers_of_numpy_are_numbers():
    assert stream_seed(np.int64(1), "train", np.uint8(2)) == stream_seed(1, "train", 2)
