"""What is packed, sent and stored is what would have been stored on the spot."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from algorithm.agents.roles import Episode
from algorithm.core.data import StepBatch
from algorithm.replay.buffer import ReplayBuffer, UniformSampler
from algorithm.replay.storage import NEXT, TRUNCATED
from algorithm.run.experience.collector import LocalCollector
from ds.net.protocol import TrajectoryMessage
from ds.trajectory import TrajectoryWriter
from tests.oracles_replay import VECTOR, make_segment, step_batch
from tests.toys_agents import SPEC, Attentive, Both, Guests, random_script

K, T, N = 2, 2, 2  # burn-in, learned and bootstrapped steps of the windows


def make_replay(stored: tuple[int, ...]) -> ReplayBuffer:
    return ReplayBuffer(
        SPEC, capacity=2000, batch_size=2, burn_in=K, learn=T, n_step=N, carry_shape=stored,
        sampler=UniformSampler(),
    )  # fmt: skip


class Tee:
    """Tells all of them."""

    def __init__(self, *recorders) -> None:
        self._recorders = recorders

    def add_steps(self, steps: StepBatch) -> None:
        for recorder in self._recorders:
            recorder.add_steps(steps)

    def close(self, stream: int) -> None:
        for recorder in self._recorders:
            recorder.close(stream)


def deliver(
    packed: list[TrajectoryMessage], replays: dict[str, ReplayBuffer], rng: np.random.Generator
) -> None:
    """In the order of each channel, the channels mixed at random."""
    channels: dict[int, list[TrajectoryMessage]] = {}
    for one in packed:
        channels.setdefault(one.channel, []).append(one)
    while channels:
        channel = list(channels)[rng.integers(len(channels))]
        for chunk in channels[channel].pop(0).chunks:
            if chunk.transitions is None:
                replays[chunk.behaviour].close(chunk.agent)
            else:
                replays[chunk.behaviour].add(chunk.transitions.segment(chunk.agent))
        if not channels[channel]:
            del channels[channel]


def windows(replay: ReplayBuffer) -> dict[tuple[int, ...], dict[str, bytes]]:
    """By (agent, episode, step) of its anchor, all of its window but ids; and whether it was truncated."""
    first = replay.next_id - len(replay)
    ids = np.array(
        [i for i in range(first, replay.next_id) if replay._storage.is_transition(np.array([i]))[0]]
    )
    if not len(ids):
        return {}
    batch = replay.windows(ids)
    fields = {k: v.numpy() for k, v in vars(batch).items() if k not in ("obs", "ids", "weight")}
    fields |= {f"obs/{k}": v.numpy() for k, v in batch.obs.items()}
    fields["truncated"] = replay._storage.links[ids % replay.capacity, NEXT] & TRUNCATED
    anchors = [tuple(row) for row in fields["obs/obs"][:, K].astype(int).tolist()]
    found = {a: {k: v[i].tobytes() for k, v in fields.items()} for i, a in enumerate(anchors)}
    assert len(found) == len(ids), "no transition is stored twice"
    return found


@settings(max_examples=30)
@given(
    seed=st.integers(0, 2**16),
    agents=st.integers(1, 5),
    limit=st.sampled_from((-1, 3, 5)),
    stored=st.sampled_from(((2,), (0,))),
    max_length=st.integers(1, 7),
    channels=st.integers(1, 3),
    plan=st.lists(st.tuples(st.booleans(), st.booleans()), max_size=50),
)
def test_every_window_is_the_same_as_if_stored_on_the_spot(
    seed, agents, limit, stored, max_length, channels, plan
):
    """A rollout of two behaviours. plan: of each step, whether all is truncated and sent before it."""
    rng, names = np.random.default_rng(seed), ("walker", "runner")
    houses = {
        name: Guests(random_script(rng, 60, agents), set(range(agents)), rooms=name == "walker")
        for name in names
    }
    here, there = ({name: make_replay(stored) for name in names} for _ in range(2))
    writer = TrajectoryWriter(max_length=max_length, channels=channels)
    recorders = {name: Tee(here[name], writer.recorder(name)) for name in names}
    players = {name: Attentive(stored) for name in names}
    rollout = LocalCollector(Both(**houses), players, recorders, num_envs=agents, length_limit=limit)
    packed, ended = list[TrajectoryMessage](), Counter()
    for i, (truncate, whole) in enumerate(plan):
        rarely = i % 4 == 0
        if truncate and rarely:
            rollout.truncate()
        episodes = rollout.step()
        ended.update((one.behaviour, one.agent, one.total, one.length) for one in episodes)
        whole = whole and rarely and channels == 1
        packed += writer.flush(agents=rollout.agents, episodes=episodes, whole=whole)
    packed += writer.finish()
    for replay in here.values():
        for agent in range(agents):
            replay.close(agent)
    deliver(packed, there, rng)
    assert [windows(replay) for replay in there.values()] == [windows(replay) for replay in here.values()]
    assert not any(list(replay._writer.heads) for replay in there.values()), "nothing is left open"
    assert sum(one.steps for one in packed) == rollout.steps
    assert Counter(episode for one in packed for episode in one.episodes) == ended
    for one in packed:
        for chunk in one.chunks:
            assert chunk.agent % channels == one.channel
            assert chunk.transitions is None or chunk.transitions.length <= max_length


# Agent 1 in channel 1 of 2, pieces of 3: the numbers below are worked out by hand.


def add(writer: TrajectoryWriter, start: int, *, stream: int = 1, **end: bool) -> None:
    one = make_segment(VECTOR, stream=stream, episode=0, start=start, length=1, **end)
    writer.add("a", step_batch([one]))


def flush(writer: TrajectoryWriter, agents=frozenset(), **options) -> list[TrajectoryMessage]:
    return writer.flush(**({"agents": agents, "episodes": []} | options))


def told(packed: list[TrajectoryMessage]) -> list[list]:
    return [
        [
            (p.agent, (t := p.transitions) and (t.start_step, t.length, bool(t.truncated[-1])))
            for p in one.chunks
        ]
        for one in packed
    ]


def test_a_long_episode_goes_in_pieces_that_share_an_observation_and_are_as_old_as_their_first():
    writer, found = TrajectoryWriter(max_length=3, channels=2), []
    for t, version in enumerate((4, 4, 5, 6, 7)):
        writer.version = version
        add(writer, t, terminated=t == 4)
        found += flush(writer)
    assert told(found) == [[(1, (0, 3, False))], [(1, (3, 2, False))]]
    assert [one.steps for one in found] == [3, 2] and {one.channel for one in found} == {1}
    assert [one.version for one in found] == [4, 6]
    before, after = (one.chunks[0].transitions for one in found)
    for name in ("action_mask", "carry"):
        assert np.array_equal(getattr(before, name)[-1], getattr(after, name)[0])
    whole = make_segment(VECTOR, stream=1, episode=0, start=0, length=5, terminated=True)
    assert np.array_equal(np.concatenate([before.reward, after.reward]), whole.reward)
    assert np.array_equal(np.concatenate([before.obs["obs"], after.obs["obs"][1:]]), whole.obs["obs"])
    assert after.terminated.tolist() == [False, True]


def test_what_an_environment_writes_later_changes_nothing():
    writer = TrajectoryWriter(max_length=9, channels=1)
    one = make_segment(VECTOR, stream=1, episode=0, start=0, length=1)
    steps = step_batch([one])
    writer.add("a", steps)
    steps.next_obs["obs"][:] = steps.reward[:] = 7.0
    (found,) = writer.finish()
    assert np.array_equal(found.chunks[0].transitions.obs["obs"], one.obs["obs"])
    assert np.array_equal(found.chunks[0].transitions.reward, one.reward)


def test_a_message_is_as_old_as_the_oldest_weights_in_it():
    writer = TrajectoryWriter(max_length=9, channels=1)
    for stream, version in ((1, 4), (2, 6)):
        writer.version = version
        add(writer, 0, stream=stream)
    (one,) = flush(writer, whole=True)
    assert one.version == 4 and one.steps == 2


def test_closing_truncates_what_is_pending_or_says_so_alone():
    writer = TrajectoryWriter(max_length=3, channels=2)
    recorder = writer.recorder("a")
    recorder.close(1)
    assert flush(writer) == [], "nothing is known of it"
    add(writer, 0)
    recorder.close(1)
    for t in range(3):
        add(writer, t)
    recorder.close(1)
    recorder.close(1)
    assert told(flush(writer)) == [[(1, (0, 1, True))], [(1, (0, 3, False))], [(1, None)]]


def test_a_step_that_does_not_follow_begins_another_chain():
    writer = TrajectoryWriter(max_length=3, channels=1)
    for start in (0, 1, 5, 6, 7, 9):  # the piece of 5 to 7 is complete when 9 comes
        add(writer, start)
    found = flush(writer, whole=True)
    assert told(found) == [[(1, (0, 2, True)), (1, (5, 3, False)), (1, None), (1, (9, 1, False))]]


def test_episodes_without_transitions_go_at_the_end():
    writer = TrajectoryWriter(max_length=3, channels=2)
    assert flush(writer) == []
    assert writer.flush(agents=frozenset(), episodes=[Episode("a", 1, 0.5, 3)]) == []
    (last,) = writer.finish()
    assert (last.steps, last.chunks, last.episodes) == (0, (), (("a", 1, 0.5, 3),))
    assert writer.finish() == []
    (empty,) = flush(writer, whole=True)
    assert empty.chunks == () and empty.steps == 0, "in step with the learner there is one for every step"


def test_who_is_gone_is_named_once_behind_its_own_transitions():
    writer, three = TrajectoryWriter(max_length=3, channels=2), frozenset(("a", i) for i in (1, 2, 3))
    for agent in (1, 2, 3):
        add(writer, 0, stream=agent)
    assert flush(writer, three) == [] and flush(writer, frozenset({("a", 1)})) == []
    add(writer, 1, terminated=True)
    (one,) = flush(writer)
    assert one.gone == (("a", 2), ("a", 3), ("a", 1))
    assert [one.gone for one in flush(writer, whole=True)] == [()]
    writer = TrajectoryWriter(max_length=3, channels=2)
    for agent, start, end in ((1, 0, True), (3, 0, True), (1, 5, True), (2, 0, True)):
        add(writer, start, stream=agent, terminated=end)
    found = flush(writer, frozenset({("a", 2), ("a", 3)}))
    assert [(one.channel, one.gone) for one in found] == [(1, ()), (1, ()), (1, (("a", 1),)), (0, ())]


def test_an_id_that_is_another_agent_s_by_now_is_not_gone():
    writer, again = TrajectoryWriter(max_length=3, channels=1), frozenset({("a", 1)})
    add(writer, 0, terminated=True)
    assert flush(writer, again)[0].gone == () and flush(writer) == []
    add(writer, 0, terminated=True)
    assert flush(writer, again)[0].gone == ()
