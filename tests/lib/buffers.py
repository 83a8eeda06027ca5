"""Replays with something in them, scripts that fill several alike, and what is handed back to them."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import strategies as st

from algorithm.core import AgentSpec, SequenceBatch, UpdateResult
from algorithm.replay.buffer import ReplayBuffer
from tests.lib.oracles_replay import VECTOR, make_segment

Operation = tuple[int, int, str, str]

OPERATION = st.tuples(
    st.integers(0, 2),  # stream
    st.integers(1, 4),  # transitions
    st.sampled_from(["open", "open", "open", "terminated", "truncated", "both"]),
    st.sampled_from(["go on", "go on", "go on", "restart", "skip", "close"]),
)
OPERATIONS = st.lists(OPERATION, min_size=1, max_size=30)


class Script:
    """What hypothesis makes up, done to replays, writers or oracles that shall be the same.

    at: stream -> episode and step of its next segment
    """

    def __init__(self, spec: AgentSpec = VECTOR, carry_shape: tuple[int, ...] = (2,)) -> None:
        self._spec, self._carry_shape = spec, carry_shape
        self.at: dict[int, tuple[int, int]] = {}

    def do(self, operation: Operation, *replays: Any) -> list[Any]:
        """Add the stream's next transitions to each; return what each returned."""
        stream, length, end, then = operation
        episode, start = self.at.get(stream, (0, 0))
        segment = make_segment(
            self._spec,
            stream=stream,
            episode=episode,
            start=start,
            length=length,
            terminated=end in ("terminated", "both"),
            truncated=end in ("truncated", "both"),
            carry_shape=self._carry_shape,
        )
        over = end != "open" or then in ("restart", "close")
        self.at[stream] = (episode + 1, 0) if over else (episode, start + length + 2 * (then == "skip"))
        returned = [replay.add(segment) for replay in replays]
        if then == "close":
            for replay in replays:
                replay.close(stream)
        return returned


def filled(sampler, *, capacity=200, lengths=(30, 40, 50), spec=VECTOR, **kwargs) -> ReplayBuffer:
    buffer = ReplayBuffer(spec, capacity=capacity, sampler=sampler, **{"batch_size": 16, **kwargs})
    script = Script(spec, kwargs.get("carry_shape", (0,)))
    for length in lengths:
        script.do((0, length, "truncated", "go on"), buffer)
    return buffer


def result(ids, priority, *, anchor=0, carry=None) -> UpdateResult:
    ids = torch.as_tensor(ids)
    return UpdateResult(
        priority=torch.as_tensor(priority, dtype=torch.float32),
        ids=ids if ids.ndim == 2 else ids[:, None],
        anchor=torch.as_tensor(anchor).expand(len(ids)),
        carry=carry,
    )


def batches_equal(a: SequenceBatch, b: SequenceBatch) -> bool:
    plain = all(getattr(a, k).equal(getattr(b, k)) for k in vars(a) if k != "obs")
    return plain and all(a.obs[k].equal(b.obs[k]) for k in a.obs)
