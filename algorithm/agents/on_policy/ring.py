"""The ring of rows that holds rollouts, and the transitions of the unfinished one."""

from __future__ import annotations

import sys

import numpy as np

from algorithm.agents.demonstrations import DemoStore
from algorithm.agents.on_policy.family_config import RolloutConfig
from algorithm.agents.roles import AgentInputs
from algorithm.core.data import Int, SequenceBatch, State
from algorithm.core.errors import UsageError
from algorithm.core.seeding import stream_seed
from algorithm.replay.budget import largest_capacity, replay_bytes
from algorithm.replay.buffer import ReplayBuffer
from algorithm.replay.samplers import UniformSampler

_MANY_AGENTS = 64  # expected at most in an environment, for the reserved rows: their number is not known


class Ring:
    """Ring of rows for the last rollouts, or for a replay. Raises UsageError if the memory is too small.

    keys:     the family's block of keys; block: its name
    sequence: T, learned steps of a window
    kept:     number of rows, the key ``capacity``; None: as many as two rollouts need
    size:     transitions of a rollout, ``rollout_step · n_envs``
    burn_in:  K, tokens before the learned ones
    lag:      age of the oldest weights that acted in the rollout, in versions
    """

    def __init__(
        self,
        inputs: AgentInputs,
        carry_shape: tuple[int, ...],
        keys: RolloutConfig,
        block: str,
        *,
        sequence: int,
        kept: int | None = None,
    ) -> None:
        run, self._keys, self._inputs = inputs.config.run, keys, inputs
        self._carry_shape = carry_shape
        self._copies = inputs.config.base_config.n_envs
        self._block, self._kept = block, kept
        self._recurrent = run.seq_encoder == "RNN"
        self.size = keys.rollout_step * self._copies
        self.burn_in = run.burn_in_step if run.seq_encoder == "ATTN" else 0
        self.sequence = sequence
        # Rows for the tokens before the first transitions of a rollout, in episodes that were open already.
        self._open = (2 + self.burn_in) * max(self._copies, _MANY_AGENTS)
        self.rows = self._make_rows()
        self.lag = 0
        self.clear()

    def _make_rows(self) -> ReplayBuffer:
        """Return a buffer of ``kept`` rows, or large enough for two rollouts of one-step episodes."""
        inputs, spec, carry_shape = self._inputs, self._inputs.spec, self._carry_shape
        capacity = self._kept or 4 * self.size + self._open

        def longest(size: int) -> int:
            rows = largest_capacity(spec, size, carry_shape, prioritised=False)
            return rows if self._kept else max(0, rows - self._open) // (4 * self._copies)

        inputs.memory.reserve(
            inputs.behaviour,
            capacity=capacity,
            needed=replay_bytes(spec, capacity, carry_shape, prioritised=False),
            largest_capacity=longest,
            key=f"{self._block}.{'capacity' if self._kept else 'rollout_step'}",
        )
        return ReplayBuffer(
            spec,
            capacity=capacity,
            batch_size=self._copies,  # as many windows as a rollout has
            burn_in=self.burn_in,
            learn=self.sequence,
            n_step=1,
            carry_shape=carry_shape,
            sampler=UniformSampler(),
            seed=stream_seed(inputs.seed, "replay", inputs.behaviour),
        )

    def demonstrations(self) -> DemoStore | None:
        """Return the store of demonstrations, in windows of a rollout's size; None without demonstrations."""
        inputs = self._inputs
        if inputs.demonstrations is None:
            return None
        return DemoStore(
            inputs.demonstrations,
            inputs.spec,
            # A recurrent state is not recorded: it is computed from a whole sequence before the learned one.
            burn_in=self.sequence if self._recurrent else self.burn_in,
            learn=self.sequence,
            carry_shape=self._carry_shape,
            memory=inputs.memory,
            behaviour=inputs.behaviour,
        )

    @property
    def full(self) -> bool:
        """True if the rollout is complete."""
        return self._num_new >= self.size

    def clear(self) -> None:
        """Begin a new rollout, and drop an unfinished one."""
        self._new: list[Int] = []  # ids of its transitions
        self._num_new = 0
        self._first = sys.maxsize  # the smallest of them

    def added(self, ids: Int) -> None:
        """Add transitions, stored in the rows ``ids``, to the rollout."""
        self._new.append(ids)
        self._num_new += len(ids)
        self._first = min(self._first, int(ids.min(initial=sys.maxsize)))

    def check(self) -> None:
        """Raise UsageError if there are so many agents that a step overwrote rows of the rollout."""
        if self._first >= self._oldest:
            return
        agents = max(map(len, self._new))
        # Two rows each for a rollout and for a step of all agents, and the tokens before open episodes.
        rows = 2 * agents + (2 + self.burn_in) * agents - self._open
        enough = max(-(-rows // (2 * self._copies)), 2 * self._keys.rollout_step)
        raise UsageError(
            "a rollout was overwritten before it was learned from",
            where=f"{self._block}.rollout_step",
            why=f"{agents:,} agents of {self._inputs.behaviour!r} act at once, and there are "
            f"{self.rows.capacity:,} rows for rollout_step · n_envs steps",
            fix=f"raise capacity to {4 * agents * self._keys.rollout_step:,} or more"
            if self._kept
            else f"raise rollout_step to {enough:,} or more",
        )

    @property
    def _oldest(self) -> int:
        return self.rows.next_id - len(self.rows)

    def take(self) -> tuple[SequenceBatch, int]:
        """Return the rollout's windows and its lag, and begin the next rollout."""
        ids = np.sort(np.concatenate(self._new))
        batch, lag = self.rows.chains(ids[ids >= self._oldest]), self.lag
        self.clear()
        self.lag = 0
        return batch, lag

    def state(self) -> State:
        """Return the ids of the unfinished rollout, relative to the next id, and its lag."""
        # Relative, because a larger ring may number its rows anew.
        ids = np.concatenate(self._new) - self.rows.next_id if self._new else np.empty(0, np.int64)
        return State({"ids": ids}, {"lag": self.lag})

    def load_state(self, state: State) -> None:
        """Continue from what :meth:`state` returned; if its rows are lost, a rollout begins anew."""
        ids = state.arrays["ids"].astype(np.int64)
        self.clear()
        self.added(ids[ids >= -len(self.rows)] + self.rows.next_id)
        self.lag = int(state.meta["lag"])
