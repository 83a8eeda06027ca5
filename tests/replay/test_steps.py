"""A step of several agents, stored at once as if they had come one after the other."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from algorithm.core.data import Segment
from algorithm.replay import FifoSampler, PrioritizedSampler, ReplayBuffer, UniformSampler
from tests.lib.oracles_replay import DISCRETE, MIXED, STACKED, VECTOR, digest, make_segment, step_batch, whole

SAMPLERS = [PrioritizedSampler, UniformSampler, FifoSampler]

EVENT = st.sampled_from([*["go on"] * 5, "terminated", "truncated", "both", "away", "skip", "close"])


def of(spec, stream: int, moment: list[int], event: str) -> Segment:
    """The stream's next transition; ``moment``, its episode and step, goes on."""
    (agent, carry_shape), (episode, start) = spec, moment
    moment[:] = [episode, start + 1] if event == "go on" else [episode + 1, 0]
    return make_segment(
        agent,
        stream=stream,
        episode=episode,
        start=start,
        length=1,
        terminated=event in ("terminated", "both"),
        truncated=event in ("truncated", "both"),
        carry_shape=carry_shape,
    )


@given(
    spec=st.sampled_from([(VECTOR, (0,)), (MIXED, (2, 3)), (DISCRETE, (3,)), (STACKED, (2,))]),
    capacity=st.integers(2, 40),
    sampler=st.sampled_from(SAMPLERS),
    script=st.lists(st.lists(EVENT, min_size=5, max_size=5), min_size=1, max_size=12),
    steps=st.integers(1, 4),
)
@example(  # the row behind an end has the number that would follow
    spec=(VECTOR, (0,)),
    capacity=40,
    sampler=UniformSampler,
    script=[["terminated"] * 5, ["skip"] * 5, ["go on"] * 5],
    steps=3,
)
def test_the_replay_is_the_same_to_the_last_bit(spec, capacity, sampler, script, steps):
    """steps: of the environments, that come at once; fewer where an episode is closed between them"""
    agent, carry_shape = spec
    sizes = {"capacity": capacity, "batch_size": 1, "carry_shape": carry_shape}
    at_once, one_by_one = replays = [ReplayBuffer(agent, sampler=sampler(), **sizes) for _ in range(2)]
    moment, segments = [[0, 0] for _ in range(5)], list[Segment]()
    for number, events in enumerate(script, 1):
        closed = [stream for stream, event in enumerate(events) if event == "close"]
        if closed:
            store(segments, at_once, one_by_one)
        for stream in closed:
            at_once.close(stream), one_by_one.close(stream)
            moment[stream] = [moment[stream][0] + 1, 0]
        for stream, event in enumerate(events):
            moment[stream][1] += event == "skip"
            if event not in ("close", "skip", "away"):
                segments.append(of(spec, stream, moment[stream], event))
        if number % steps == 0:
            store(segments, at_once, one_by_one)
            for replay in replays[: 2 * (number % 3 == 0)]:
                replay.mark_saved(())
    store(segments, at_once, one_by_one)


def store(segments: list[Segment], at_once: ReplayBuffer, one_by_one: ReplayBuffer) -> None:
    """Store what there is both ways, and compare."""
    if segments:
        ids = at_once.add_steps(step_batch(segments)).tolist()
        assert ids == [one_by_one.add(segment).item() for segment in segments]
        segments.clear()
    assert digest(at_once) == digest(one_by_one)
    assert np.array_equal(whole(at_once.unsaved()), whole(one_by_one.unsaved()))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda s: {"start_steps": s.start_steps - 2}, "start_steps -2 … -1 are out of range"),
        (lambda s: {"start_steps": s.start_steps + 2**31 - 2}, "out of range"),
        (lambda s: {"reward": s.reward[:, None]}, "steps, reward"),
        (lambda s: {"next_carry": s.next_carry[:1]}, "steps, next_carry"),
        (lambda s: {"next_obs": {}}, "steps, next_obs/vector is missing"),
        (lambda s: {"obs": s.obs | {"map": s.obs["map"][:, :1]}}, "obs/map: expected shape"),
        (lambda s: {"next_obs": s.next_obs | {"camera": s.next_obs["camera"] * 0.5}}, "uint8"),
        (lambda s: {"z": s.z + 1.0}, "not tanh"),
        (lambda s: {"z": s.z * np.nan}, "not tanh"),
        (lambda s: {"behaviour_logp": s.behaviour_logp[:, 0]}, "steps, behaviour_logp"),
        (lambda s: {"action_mask": s.action_mask[:, :1]}, "steps, action_mask"),
    ],
    ids=lambda value: value if isinstance(value, str) else "change",
)
def test_what_does_not_fit_changes_nothing(change, named):
    sizes = {"capacity": 40, "batch_size": 1, "carry_shape": (2,)}
    buffer = ReplayBuffer(MIXED, sampler=UniformSampler(), **sizes)
    batch = step_batch([of((MIXED, (2,)), stream, [0, stream], "go on") for stream in range(2)])
    before = digest(buffer)
    with pytest.raises(ValueError, match=named):
        buffer.add_steps(replace(batch, **change(batch)))
    assert digest(buffer) == before
