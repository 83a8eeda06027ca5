"""A sampler: only the newest transitions are learned from, each with the same probability."""

import numpy as np

import asac
from algorithm.replay import Sampler


class Recent(Sampler):
    def __init__(self, rows=2_000):
        self.rows = rows

    def sample(self, n, rng):
        """Return slots [n] of transitions, and their weights [n] in the loss of the critics."""
        newest, found = self.storage.next_id, np.empty(0, np.int64)
        while len(found) < n:  # the last row of an episode is no transition
            ids = rng.integers(max(self.storage.oldest, newest - self.rows), newest, size=n)
            slots = ids % self.storage.capacity
            found = np.append(found, slots[self.storage.is_transition(slots)])
        return found[:n], np.ones(n, np.float32)


if __name__ == "__main__":
    keys = {
        "replay_config.sampler": {"recent:Recent": {"rows": 1_000}},
        "sac_config.use_priority": False,
    }
    run = asac.train("Pendulum-v1", max_step=5_000, overrides=keys, quiet=True)
    print(f"mean return {run.evaluate(10).mean:.0f}")
