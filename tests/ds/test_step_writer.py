"""What is gathered, sent and stored is what would have been stored on the spot."""

from collections import Counter

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from algorithm.core.data import StepBatch
from algorithm.replay.buffer import ReplayBuffer, UniformSampler
from algorithm.replay.storage import NEXT, TRUNCATED
from algorithm.run.experience.collector import LocalCollector
from ds import checking
from ds.net.protocol import StepMessage
from ds.net.wire import decode, encode
from ds.step_writer import StepWriter
from tests.ds.samples import same
from tests.lib.oracles_replay import VECTOR, make_segment, step_batch
from tests.lib.toys_agents import SPEC, Attentive, Both, Guests, random_script

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


def deliver(messages: list[StepMessage], replays: dict[str, ReplayBuffer]) -> None:
    """Store them as a learner does, after a look at whose episodes go on."""
    for message in messages:
        for name, agents in message.closed.items():
            for agent in agents.tolist():
                replays[name].close(agent)
        for name, steps in message.steps.items():
            checking._check_chains(name, steps, message.agents.get(name))
            replays[name].add_steps(steps)


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
@example(seed=1447, agents=4, limit=-1, stored=(2,), max_length=2, more=0, plan=[(False, False)] * 5)
@given(
    seed=st.integers(0, 2**16),
    agents=st.integers(1, 5),
    limit=st.sampled_from((-1, 3, 5)),
    stored=st.sampled_from(((2,), (0,))),
    max_length=st.integers(1, 7),
    more=st.integers(0, 5),
    plan=st.lists(st.tuples(st.booleans(), st.booleans()), max_size=50),
)
def test_every_window_is_the_same_as_if_stored_on_the_spot(
    seed, agents, limit, stored, max_length, more, plan
):
    """A rollout of two behaviours. plan: of each step, whether all is truncated and sent before it."""
    rng, names = np.random.default_rng(seed), ("walker", "runner")
    houses = {
        name: Guests(random_script(rng, 60, agents), set(range(agents)), rooms=name == "walker")
        for name in names
    }
    here, there = ({name: make_replay(stored) for name in names} for _ in range(2))
    most = max_length + more
    writer = StepWriter(dict.fromkeys(names, most), max_length=max_length)
    recorders = {name: Tee(here[name], writer.recorders[name]) for name in names}
    players = {name: Attentive(stored) for name in names}
    rollout = LocalCollector(Both(**houses), players, recorders, num_envs=agents, length_limit=limit)
    messages, ended = list[StepMessage](), Counter()
    for i, (truncate, whole) in enumerate(plan):
        rarely = i % 4 == 0
        if truncate and rarely:
            rollout.truncate()
        episodes = rollout.step()
        ended.update((one.behaviour, one.agent, one.total, one.length) for one in episodes)
        found = writer.flush(agents=rollout.present, episodes=episodes, whole=whole and rarely)
        if whole and rarely:  # else the last one may have been complete before this step
            assert same(found[-1].agents, rollout.present)
        messages += found
    messages += writer.finish()
    for replay in here.values():
        for agent in range(agents):
            replay.close(agent)
    assert all(len(steps) <= most for message in messages for steps in message.steps.values())
    deliver([decode(StepMessage, encode(replace(message, number=1))) for message in messages], there)
    assert [windows(replay) for replay in there.values()] == [windows(replay) for replay in here.values()]
    assert not any(list(replay._writer.heads) for replay in there.values()), "nothing is left open"
    assert sum(one.num_steps for one in messages) == rollout.steps
    assert Counter(episode for one in messages for episode in told_episodes(one)) == ended


def told_episodes(message: StepMessage) -> list[tuple[str, int, float, int]]:
    return [
        (name, *one)
        for name, ended in message.episodes.items()
        for one in zip(*(getattr(ended, k).tolist() for k in ("agents", "returns", "lengths")), strict=True)
    ]


# Messages that are due with 3 transitions: the numbers below are worked out by hand.


def made(*, max_length=3, most=5) -> StepWriter:
    return StepWriter({"a": most}, max_length=max_length)


def add(writer: StepWriter, start: int, *, stream: int = 1, **end: bool) -> None:
    one = make_segment(VECTOR, stream=stream, episode=0, start=start, length=1, **end)
    writer.recorders["a"].add_steps(step_batch([one]))


def flush(writer: StepWriter, *agents: int, **options) -> list[StepMessage]:
    return writer.flush(**({"agents": {"a": np.array(agents, np.int64)}, "episodes": []} | options))


def told(messages: list[StepMessage]) -> list[list]:
    """Of each: agents closed before, and (agent, step, whether truncated) of its transitions."""
    found = []
    for one in messages:
        steps = one.steps.get("a")
        rows = () if steps is None else (steps.streams, steps.start_steps, steps.truncated)
        found.append(
            [
                *one.closed.get("a", np.zeros(0, np.int64)).tolist(),
                *zip(*map(np.ndarray.tolist, rows), strict=True),
            ]
        )
    return found


def test_a_long_episode_goes_in_pieces_that_are_as_old_as_their_first():
    writer, found = made(), []
    for t, version in enumerate((4, 4, 5, 6, 7)):
        writer.version = version
        add(writer, t, terminated=t == 4)
        found += flush(writer, 1)
    assert told(found) == [[(1, 0, False), (1, 1, False), (1, 2, False)], [(1, 3, False), (1, 4, False)]]
    assert [one.version for one in found] == [4, 6]


def test_what_an_environment_writes_later_changes_nothing():
    writer = made()
    steps = step_batch([make_segment(VECTOR, stream=1, episode=0, start=0, length=1)])
    writer.recorders["a"].add_steps(steps)
    steps.next_obs["obs"][:] = steps.reward[:] = 7.0
    (found,) = writer.finish()
    assert (found.steps["a"].next_obs["obs"] != 7.0).all() and found.steps["a"].reward != 7.0


def test_closing_truncates_what_is_pending_or_says_so_alone():
    writer = made()
    recorder = writer.recorders["a"]
    recorder.close(1)
    assert flush(writer) == [], "nothing is known of it"
    add(writer, 0)
    recorder.close(1)
    for t in range(3):
        add(writer, t)
    found = flush(writer, 1)
    recorder.close(1)
    recorder.close(1)
    add(writer, 0)
    found += flush(writer, 1)
    first = [(1, 0, True), (1, 0, False), (1, 1, False), (1, 2, False)]
    assert told(found) == [first, [1, (1, 0, False)]]


def test_a_message_grows_with_episodes_while_another_one_is_on_its_way():
    writer = made(max_length=5, most=9)
    add(writer, 0, terminated=True)
    assert flush(writer, 1, hold=True) == []
    add(writer, 0, stream=2)
    add(writer, 0)
    writer.recorders["a"].close(1)
    assert flush(writer, 1, 2, hold=True) == []
    assert told(flush(writer, 1, 2)) == [[(1, 0, False), (2, 0, False), (1, 0, True)]]
    for t in range(5):
        add(writer, t)
    assert told(flush(writer, 1, hold=True)) == [[(1, t, False) for t in range(5)]], "as many as it may"


def test_a_step_that_does_not_follow_begins_another_chain():
    writer = made(max_length=9, most=9)
    for start in (0, 1, 5, 6):
        add(writer, start)
    found = flush(writer, 1, whole=True)
    add(writer, 9)
    found += flush(writer, 1, whole=True)
    first = [(1, 0, False), (1, 1, True), (1, 5, False), (1, 6, False)]
    assert told(found) == [first, [1, (1, 9, False)]]


def test_a_step_that_has_no_room_begins_another_message_and_one_too_many_for_any_is_divided():
    writer, names = made(max_length=9), range(12)
    segments = [make_segment(VECTOR, stream=i, episode=0, start=0, length=1) for i in names]
    add(writer, 0, stream=11)
    for step in (segments[:3], segments[3:6], segments[:0:-1]):
        writer.recorders["a"].add_steps(step_batch(step))
    found = flush(writer, *names, whole=True)
    assert [one.num_steps for one in found] == [4, 3, 5, 5, 1]
    assert [one.agents["a"].tolist() for one in found[:2]] == [[0, 1, 2, 11], [3, 4, 5]]
