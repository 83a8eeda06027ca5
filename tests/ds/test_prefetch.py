"""Batches that threads draw ahead are those of a plain replay, whole, and end with it."""

from __future__ import annotations

import inspect
import itertools
import threading
from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch

from algorithm.core.data import Segment, SequenceBatch
from algorithm.core.spec import ActionSpec, AgentSpec, ObsSpec
from algorithm.replay.buffer import FifoSampler, PrioritizedSampler, ReplayBuffer, UniformSampler
from ds.prefetch import PrefetchedReplay, Prefetching
from tests.oracles_replay import VECTOR, digest, make_segment, taken
from tests.replay.buffers import batches_equal, result

CARRY = 16
NUMBERED = AgentSpec(
    ObsSpec(("vector", "camera"), ((6,), (8, 8, 1)), ("float32", "uint8")), ActionSpec((3,), 2)
)


def numbered(stream: int, start: int, length: int, *, last: bool = False) -> Segment:
    """A segment in which every column of a row says its step, and every stream has steps of its own."""
    number = np.arange(start, start + length + 1) + 1.0
    z = np.repeat(number[:-1, None] * 1e-5, 2, 1).astype(np.float32)
    choice = np.eye(3, dtype=np.float32)[number[:-1].astype(int) % 3]
    ends = np.arange(length) == length - 1
    return Segment(
        stream=stream,
        start_step=start,
        obs={
            "vector": np.repeat(number[:, None], 6, 1).astype(np.float32),
            "camera": np.broadcast_to(number[:, None, None, None] % 251, (length + 1, 8, 8, 1)).astype(
                np.uint8
            ),
        },
        action_mask=np.ones((length + 1, 3), np.bool_),
        carry=np.repeat(number[:, None], CARRY, 1).astype(np.float32),
        action=np.concatenate([choice, np.tanh(z)], 1),
        z=z,
        behaviour_logp=np.repeat(number[:-1, None], 2, 1).astype(np.float32),
        reward=number[:-1].astype(np.float32),
        terminated=np.zeros(length, np.bool_),
        truncated=ends & last,
    )


def assert_whole(batch: SequenceBatch) -> None:
    """Every column of each token says the same step, and the carry is one that was stored or refreshed."""
    seen, acted = batch.obs_valid, batch.valid
    number = batch.step + 1.0
    assert torch.equal(batch.obs["vector"], (number * seen)[..., None].expand(-1, -1, 6))
    camera = (number % 251 * seen).to(torch.uint8)[..., None, None, None]
    assert torch.equal(batch.obs["camera"], camera.expand_as(batch.obs["camera"]))
    expected = number[:, :-1] * acted
    assert torch.equal(batch.reward, expected)
    assert torch.equal(batch.behaviour_logp, expected[..., None].expand(-1, -1, 2))
    assert torch.equal(batch.z, (expected.double() * 1e-5).float()[..., None].expand(-1, -1, 2))
    choice = torch.nn.functional.one_hot((number[:, :-1] % 3).long(), 3) * acted[..., None]
    assert torch.equal(batch.action[..., :3], choice.float())
    assert torch.equal(seen[:, :-1] & seen[:, 1:], acted)
    first = seen.float().argmax(1)
    assert torch.equal(batch.carry, batch.carry[:, :1].expand(-1, CARRY)), "a carry of two halves"
    assert torch.equal(batch.carry[:, 0].abs(), number[torch.arange(len(first)), first])


@pytest.fixture
def make() -> Iterator[Callable[..., PrefetchedReplay]]:
    """Makes replays and ends their threads."""
    made = []

    def one(sampler=UniformSampler, *, threads=2, ahead=3, spec=VECTOR, lengths=(40,), **sizes):
        sizes = {"capacity": 100, "batch_size": 8, "seed": 1, **sizes}
        replay = PrefetchedReplay(spec, threads=threads, ahead=ahead, sampler=sampler(), **sizes)
        made.append(replay)
        return fill(replay, lengths)

    yield one
    for replay in made:
        replay.stop()


def fill(replay: ReplayBuffer, lengths: tuple[int, ...]) -> ReplayBuffer:
    for episode, length in enumerate(lengths):
        replay.add(make_segment(VECTOR, stream=0, episode=episode, start=0, length=length, truncated=True))
    return replay


def plain(sampler=UniformSampler, *, lengths=(40,), **sizes) -> ReplayBuffer:
    sizes = {"capacity": 100, "batch_size": 8, "seed": 1, **sizes}
    return fill(ReplayBuffer(VECTOR, sampler=sampler(), **sizes), lengths)


def until_full(replay: PrefetchedReplay) -> None:
    """Wait until as many batches wait as may."""
    with replay._lock:
        assert replay._made.wait_for(lambda: len(replay._batches) == replay._ahead, timeout=60)


# ---- the same batches


@pytest.mark.parametrize("sampler", [UniformSampler, PrioritizedSampler])
@pytest.mark.parametrize("ahead", [1, 4])
def test_one_thread_draws_what_a_plain_replay_draws(sampler, ahead, make):
    """In the same order, as long as nothing changes in between."""
    sizes = {"burn_in": 1, "learn": 4}
    ours, theirs = make(sampler, threads=1, ahead=ahead, **sizes), plain(sampler, **sizes)
    assert all(batches_equal(ours.sample(), theirs.sample()) for _ in range(20))


def test_many_threads_draw_the_same_batches_in_any_order(make):
    ours, theirs = make(threads=5, ahead=3), plain()
    expected = [theirs.sample().ids.tolist() for _ in range(40 + 3)]
    found = [ours.sample().ids.tolist() for _ in range(40)]
    left = [ids for ids in expected if ids not in found]
    assert len(left) == 3 and all(ids in expected for ids in found)


def test_priorities_steer_what_is_drawn_ahead(make):
    """Priorities 1, 2, 3, 4 by id mod 4: of 8,000 anchors a tenth to four tenths, within five deviations."""
    sampler = lambda: PrioritizedSampler(alpha=1.0, td_error_max=4.0)  # noqa: E731
    replay = make(sampler, threads=3, ahead=4, batch_size=16)
    ids = np.arange(40)
    replay.feedback(result(ids, ids % 4 + 1.0))
    counts: Counter[int] = Counter()
    for _ in range(500):
        batch = replay.sample()
        counts.update((batch.ids[:, 0] % 4).tolist())
        replay.feedback(result(batch.ids, batch.ids[:, 0] % 4 + 1.0))
    for kind in range(4):
        share = (kind + 1) / 10
        assert abs(counts[kind] - 8_000 * share) < 5 * (8_000 * share * (1 - share)) ** 0.5


def test_beta_reaches_later_batches(make):
    """Of priorities 1 and 4 weights of a quarter with beta 1: after the batches that were drawn before."""
    sampler = lambda: PrioritizedSampler(alpha=1.0, beta=0.0, td_error_max=4.0)  # noqa: E731
    replay = make(sampler, ahead=3)
    replay.feedback(result(np.arange(40), np.arange(40) % 2 * 3 + 1.0))
    replay.sample()
    until_full(replay)
    replay.anneal(1.0)
    assert [replay.sample().weight.min().item() for _ in range(4)] == [1.0, 1.0, 1.0, 0.25]


def test_feedback_reaches_later_batches(make):
    """One row has all the mass: after the ``ahead`` batches that were drawn before, nothing else comes."""
    replay = make(lambda: PrioritizedSampler(alpha=1.0, td_error_min=0.0), ahead=3)
    replay.sample()
    until_full(replay)
    replay.feedback(result(np.arange(40), np.arange(40) == 7))
    for _ in range(3):
        assert len(set(replay.sample().ids[:, 0].tolist())) > 1
    assert replay.sample().ids[:, 0].tolist() == [7] * 8


# ---- when there is none


def test_none_is_given_just_when_a_plain_replay_gives_none(make):
    """7 transitions are too few for 8; 8 are enough; episodes of one step then push transitions out."""
    ours, theirs = make(lengths=(), capacity=12), plain(lengths=(), capacity=12)
    seen = []
    for episode in range(12):
        length = 1 if episode > 1 else 7 - 5 * episode
        for replay in (ours, theirs):
            replay.add(
                make_segment(VECTOR, stream=0, episode=episode, start=0, length=length, truncated=True)
            )
        found, expected = ours.sample(), theirs.sample()
        assert (found is None) == (expected is None)
        seen.append(found is not None)
    assert seen == [False, True, True, True, *[False] * 8]


def test_nothing_is_drawn_before_somebody_asks(make):
    """The batches of a long warm-up would hold its first rows only."""
    before = threading.active_count()
    replay = make(lengths=(40, 30))
    assert threading.active_count() == before
    state = replay.state().meta["rng"]
    assert state == plain(lengths=(40, 30)).state().meta["rng"]
    assert replay.sample() is not None
    assert threading.active_count() == before + 2


def test_whoever_waits_is_told_when_there_is_too_little_now(make):
    """Others push transitions out before a thread gets to draw."""
    replay = make(capacity=12, lengths=(10,))
    waits, got = threading.Event(), []
    replay._start = waits.set  # no thread ever draws
    waiting = threading.Thread(target=lambda: got.append(replay.sample()))
    waiting.start()
    assert waits.wait(60)
    fill(replay, (1, 1, 1, 1))
    waiting.join(60)
    assert got == [None]


# ---- under load


def repeat(
    act: Callable[[int], None], over: threading.Event, failures: list[BaseException]
) -> threading.Thread:
    """A thread that calls ``act`` with the number of the call until it is over or fails."""

    def run() -> None:
        try:
            for turn in itertools.takewhile(lambda _: not over.is_set(), itertools.count()):
                act(turn)
        except BaseException as error:
            failures.append(error)
            over.set()

    return threading.Thread(target=run)


@pytest.mark.parametrize("sampler", [UniformSampler, PrioritizedSampler])
def test_no_batch_is_torn(sampler, make):
    """Four threads add around a small ring, two hand back, refresh and read while batches are drawn."""
    sizes = {
        "capacity": 400,
        "batch_size": 32,
        "burn_in": 3,
        "learn": 4,
        "n_step": 2,
        "carry_shape": (CARRY,),
    }
    replay = make(sampler, threads=3, ahead=4, spec=NUMBERED, lengths=(), **sizes)
    over, failures, seen = threading.Event(), [], Counter[str]()

    def adder(stream: int) -> Callable[[int], None]:
        def add(turn: int) -> None:
            at, ends = 3 * (turn % 40), turn % 40 == 39
            if turn % 97 == 50:
                replay.close(stream)
            replay.add(numbered(stream, at, 3, last=ends))

        return add

    def consume(turn: int) -> None:
        batch = replay.sample()
        if batch is None:
            return
        assert_whole(batch)
        seen["batches"] += 1
        number = (batch.step + 1.0) * batch.obs_valid * (-1) ** turn
        carry = number[..., None].expand(-1, -1, CARRY)
        given = result(batch.ids, torch.rand(32), anchor=batch.anchor, carry=carry)
        replay.feedback(given)
        replay.refresh_carry(given)
        assert replay.ready >= 0 and len(replay) <= 400

    def read(_: int) -> None:
        ids = replay.spread(5)
        assert len(ids) <= 5 and replay.carries(ids).shape == (len(ids), CARRY)
        replay.state()
        if seen["batches"] >= 200 and replay.next_id >= 4000:
            over.set()

    acts = [*(adder(stream) for stream in range(4)), consume, consume, read]
    threads = [repeat(act, over, failures) for act in acts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not any(thread.is_alive() for thread in threads)
    assert not failures, failures[0]
    assert_whole(replay.windows(replay.spread(50)))


def test_rows_wait_until_windows_have_been_read(make):
    """And nobody begins to read while somebody waits for that; what changes no row does not wait."""
    replay = make(threads=2, ahead=5)
    reading, go_on = threading.Semaphore(0), threading.Semaphore(0)
    inner = replay._windows.read

    def slow(*drawn):
        reading.release()
        assert go_on.acquire(timeout=60)
        return inner(*drawn)

    replay._windows.read = slow
    consumer = threading.Thread(target=replay.sample)
    consumer.start()
    assert all(reading.acquire(timeout=60) for _ in range(2)), "both threads read"
    done = threading.Event()
    segment = make_segment(VECTOR, stream=1, episode=0, start=0, length=2)
    adding = threading.Thread(target=lambda: (replay.add(segment), done.set()))
    adding.start()
    while not replay._changing:
        assert adding.is_alive()
    replay.feedback(result(np.arange(4), np.ones(4)))
    assert replay.state().meta["next_id"] == 41, "neither waits for the readers"
    go_on.release()
    consumer.join(60)
    assert replay._missing == 0 and not done.is_set(), "one has read, one reads on, and nothing is begun"
    go_on.release(100)
    adding.join(60)
    assert done.is_set() and replay.next_id == 44


# ---- saving


def test_a_replay_is_saved_and_loaded_while_it_runs(make):
    sizes = {"spec": VECTOR, "ahead": 4, "lengths": (40, 30)}
    original = make(lambda: PrioritizedSampler(beta_increment=0.01), **sizes)
    other = make(lambda: PrioritizedSampler(beta_increment=0.01), **{**sizes, "lengths": (20,)})
    for _ in range(5):
        batch = original.sample()
        original.feedback(result(batch.ids, torch.rand(8)))
        other.sample()
    until_full(original)
    until_full(other)
    state = taken(original)
    ahead = state.meta["sampler"]["beta"] - (0.4 + 0.01 * 5)
    assert ahead == pytest.approx(0.04), "no further than the batches that wait"
    other.load_state(state)
    newest = other.sample().ids.max()
    assert other.next_id == 72 and newest > 21, "what waited was drawn from other rows"
    other.stop()
    original.stop()
    for replay in (original, other):  # both have drawn on; all but that is the same
        replay._rng = np.random.default_rng(0)
        replay._sampler.beta = 1.0
    assert digest(original) == digest(other)


def test_with_one_thread_the_loaded_replay_draws_on_from_what_waited(make):
    """The saved one and the loaded one draw the same from there on; of the first, two are waiting."""
    original, other = make(threads=1, ahead=2), make(threads=1, ahead=2, lengths=())
    original.sample()
    until_full(original)
    other.load_state(taken(original))
    waiting = [original.sample() for _ in range(2)]
    for _ in range(5):
        ours, theirs = original.sample(), other.sample()
        assert batches_equal(ours, theirs)
        assert not any(batches_equal(theirs, one) for one in waiting)


def test_what_is_on_disk_is_told_while_it_runs(make):
    replay = make()
    replay.sample()
    assert replay.unsaved().shape == (41,)
    replay.mark_saved(())
    assert replay.unsaved().shape == (0,) and replay.saved_files == ()
    replay.forget_saved()
    assert replay.unsaved().shape == (41,)


# ---- ends


@pytest.mark.parametrize("chunk", ["_sampler", "_windows"])
def test_what_a_thread_raises_comes_out_of_sample(chunk, make):
    replay = make(threads=3)
    replay.sample()

    def fail(*_):
        raise FloatingPointError("broken")

    setattr(getattr(replay, chunk), "sample" if chunk == "_sampler" else "read", fail)
    with pytest.raises(FloatingPointError, match="broken"):
        for _ in range(20):
            replay.sample()
    with pytest.raises(FloatingPointError, match="broken"):
        replay.sample()
    for thread in replay._threads:
        thread.join(60)
        assert not thread.is_alive()
    replay.add(make_segment(VECTOR, stream=2, episode=0, start=0, length=3))
    assert taken(replay).meta["next_id"] == 45, "it can be saved all the same"


def test_no_thread_is_left(make):
    before = set(threading.enumerate())
    replay = make(threads=4)
    replay.sample()
    assert len(set(threading.enumerate()) - before) == 4
    replay.stop()
    assert set(threading.enumerate()) == before
    replay.stop()
    with pytest.raises(RuntimeError, match="stopped"):
        replay.sample()
    assert taken(replay).meta["next_id"] == 41


def test_whoever_waits_for_a_batch_hears_of_the_end(make):
    replay = make(threads=1)
    reading, go_on, heard = threading.Event(), threading.Event(), []

    def slow(*_):
        reading.set()
        assert go_on.wait(60)
        raise AssertionError("its batch is given up")

    replay._windows.read = slow

    def wait() -> None:
        try:
            replay.sample()
        except RuntimeError as error:
            heard.append(str(error))

    waiting, stopping = threading.Thread(target=wait), threading.Thread(target=replay.stop)
    waiting.start()
    assert reading.wait(60)
    stopping.start()
    waiting.join(60)
    assert len(heard) == 1 and "stopped" in heard[0]
    go_on.set()
    stopping.join(60)
    assert not stopping.is_alive()


def test_a_maker_ends_the_threads_of_all_it_made():
    before = set(threading.enumerate())
    sizes = {"capacity": 100, "batch_size": 8}
    with Prefetching(threads=2, ahead=2) as make_replay:
        replays = [make_replay(VECTOR, sampler=UniformSampler(), **sizes) for _ in range(2)]
        for replay in replays:
            assert isinstance(replay, PrefetchedReplay)
            fill(replay, (40,)).sample()
        assert len(set(threading.enumerate()) - before) == 4
        fresh = make_replay(VECTOR, sampler=FifoSampler(), **sizes)
        assert type(fresh) is ReplayBuffer, "each window once and in order: nothing may wait"
    assert set(threading.enumerate()) == before


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"threads": 0}, "at least 1, got 0 and 3"),
        ({"ahead": 0}, "at least 1, got 2 and 0"),
        ({"sampler": FifoSampler}, "could be lost"),
        ({"batch_size": 0}, "batch_size must be at least 1"),
    ],
)
def test_what_makes_no_sense_is_refused(changes, message, make):
    with pytest.raises(ValueError, match=message):
        make(**changes)


def test_every_method_is_guarded():
    """A method that a replay gets later must say here whether it may be called beside the threads."""
    constant = {"capacity", "nbytes", "bytes_per_row", "record_type", "batch_size"}
    names = {name for name, _ in inspect.getmembers(ReplayBuffer) if not name.startswith("_")} | {"__len__"}
    assert {name for name in names if name not in vars(PrefetchedReplay)} == constant - {"batch_size"}
