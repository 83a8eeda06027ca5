"""The environments that need memory: no policy without one gets more than ``chance``."""

from itertools import product

import numpy as np
import pytest

from tests.env.toys.test_toys import make, play

SMALL = {
    "ToyRecall": ({"cues": 3, "delay": 1}, 3, 5),
    "ToyQueue": ({"symbols": 2, "lag": 2, "length": 5}, 2**5, 2),
    "ToyHallway": ({"length": 2}, 2, 4),
}
"""Arguments, kinds of episodes and kinds of observations: few enough to go through all policies."""


@pytest.mark.parametrize("name", SMALL)
def test_no_policy_without_memory_gets_more_than_chance(name):
    """All of them, as a table from what is seen to what is done, over every episode there is.

    A random policy is a mixture of these, so it gets no more than the best of them either.
    """
    kwargs, kinds, looks = SMALL[name]
    env = make(name, **kwargs)

    def forward(seen, mask):  # through the hallway, or anything
        return np.int64(1 if name == "ToyHallway" and seen[-1][2] else 0)

    played = {seed: [tuple(obs) for obs in play(env, forward, seed)[1]] for seed in range(300)}
    seeds = {tuple(seen): seed for seed, seen in played.items()}.values()
    assert len(seeds) == kinds
    # The last observation is that of a terminal state, where nobody acts.
    known = sorted({obs for seed in seeds for obs in played[seed][:-1]})
    assert len(known) == looks
    means = []
    for actions in product(range(int(env.action_space.n)), repeat=looks):
        table = dict(zip(known, map(np.int64, actions), strict=True))
        policy = lambda seen, mask, table=table: table[tuple(seen[-1])]  # noqa: E731
        means.append(np.mean([play(env, policy, seed)[0] for seed in seeds]))
    assert max(means) == pytest.approx(env.unwrapped.chance)
