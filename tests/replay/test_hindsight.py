"""Windows with other goals: those of their own episode, with the rewards and ends that follow."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from algorithm.core import ActionSpec, AgentSpec, ObsSpec, Segment
from algorithm.replay import PrioritizedSampler, ReplayBuffer, UniformSampler
from algorithm.replay.relabel import Hindsight, Relabels
from tests.lib.buffers import OPERATIONS, Script, batches_equal
from tests.lib.oracles_replay import NaiveReplay, taken


class Told:
    """A task whose rewards tell which pair they are of; it may leave ends to the environment."""

    def __init__(self, *, ends: bool) -> None:
        self._ends = ends

    def rewards(self, achieved, desired):
        return (achieved @ np.float32([1, 7, 3, 2]) - desired @ np.float32([4, 9, 2, 6])).astype(np.float32)

    def terminated(self, achieved, desired):
        return (achieved[:, 2] >= desired[:, 2]) if self._ends else None


class Line:
    """A place on a line that is to be reached: −1 on the way, 0 there, which is the end."""

    def rewards(self, achieved, desired):
        return -(achieved != desired).any(-1).astype(np.float32)

    def terminated(self, achieved, desired):
        return (achieved == desired).all(-1)


GOALS = AgentSpec(
    ObsSpec(("achieved_goal", "desired_goal", "observation"), ((4,),) * 3, ("float32",) * 3),
    ActionSpec((2,), 1),
)
ON_A_LINE = AgentSpec(
    ObsSpec(
        ("achieved_goal", "desired_goal", "observation"), ((1,), (1,), (2,)), ("int8", "int8", "float32")
    ),
    ActionSpec((2,)),
)


def walked(places: list[int], goal: int, **sizes) -> ReplayBuffer:
    """A replay of one episode, −1 for each of its steps, cut off behind the last place."""
    n = len(places) - 1
    buffer = ReplayBuffer(ON_A_LINE, capacity=50, batch_size=1, sampler=UniformSampler(), **sizes)
    obs = {
        "achieved_goal": np.array(places, np.int8)[:, None],
        "desired_goal": np.full((n + 1, 1), goal, np.int8),
        "observation": np.zeros((n + 1, 2), np.float32),
    }
    buffer.add(
        Segment(
            stream=0,
            start_step=0,
            obs=obs,
            action_mask=np.ones((n + 1, 2), np.bool_),
            carry=np.zeros((n + 1, 0), np.float32),
            action=np.tile(np.float32([0, 1]), (n, 1)),
            z=np.zeros((n, 0), np.float32),
            behaviour_logp=np.zeros((n, 1), np.float32),
            reward=np.full(n, -1, np.float32),
            terminated=np.zeros(n, np.bool_),
            truncated=np.arange(n) == n - 1,
        )
    )
    return buffer


def hindsight(task, ratio=1.0, scale=1.0) -> Hindsight:
    return Hindsight(task, ratio=ratio, scale=scale)


def test_a_window_by_hand():
    """The places 0 1 2 3 2, towards 9; three steps from place 1 on, as if 3 had been the goal all along.

    The first step leads to 2: −1. The second leads to 3: 0, and the task has ended. The third leads away
    again: −1. Twice as much with reward_scale: 2. The other window stays as it is.
    """
    relabel = hindsight(Line(), scale=2.0)
    plain = walked([0, 1, 2, 3, 2], 9, n_step=3, relabel=relabel).windows(np.array([0, 1]))
    batch = relabel.apply(plain, Relabels(np.array([1]), np.array([3])))
    assert batch.obs["desired_goal"][:, :, 0].tolist() == [[9, 9, 9, 9], [3, 3, 3, 3]]
    assert batch.reward.tolist() == [[-1, -1, -1], [-2, 0, -2]]
    assert batch.terminated.tolist() == [[False, False, False], [False, True, False]]
    assert batch.obs["achieved_goal"][1, :, 0].tolist() == [1, 2, 3, 2]
    assert plain.obs["desired_goal"].eq(9).all() and plain.reward.eq(-1).all()


@pytest.mark.parametrize(
    ("learn", "place", "goals"),
    [
        (1, 0, [30, 40, 50]),  # behind the anchor, which leads from 20 to 30
        (2, 0, [40, 50]),  # 30 → 40 is learned as well
        (2, 1, [30, 40, 50]),
        (9, 2, [50]),  # up to the end of the episode
    ],
)
def test_where_goals_come_from(learn, place, goals):
    """Each row that may be drawn is drawn alike; the binomial's deviation is at most 23."""
    relabel = hindsight(Line())
    walked([0, 10, 20, 30, 40, 50], 9, learn=learn, relabel=relabel)
    n = 1000 * len(goals)
    anchors, places = np.full(n, 2), np.full(n, place)
    relabels = relabel.draw(anchors, places, np.random.default_rng(0))
    found, counts = np.unique(10 * relabels.rows, return_counts=True)
    assert found.tolist() == goals and len(relabels.windows) == n
    assert abs(counts - 1000).max() < 150


def test_the_share_of_windows():
    relabel = hindsight(Line(), ratio=0.8)
    walked([0, 1, 2], 9, relabel=relabel)
    relabels = relabel.draw(np.zeros(5000, np.int64), np.zeros(5000, np.int64), np.random.default_rng(0))
    assert abs(len(relabels.windows) / 5000 - 0.8) < 0.03 and (np.diff(relabels.windows) > 0).all()


@given(
    operations=OPERATIONS,
    capacity=st.integers(6, 60),
    sizes=st.sampled_from([(0, 1, 1), (0, 1, 3), (2, 3, 2), (1, 4, 1)]),
    ends=st.booleans(),
)
def test_every_window_is_that_of_a_plain_loop(operations, capacity, sizes, ends):
    """Streams side by side, the ring overwritten, cut and endless episodes; some windows stay as they are."""
    (burn_in, learn, n_step), task = sizes, Told(ends=ends)
    plain = NaiveReplay(GOALS, capacity, burn_in, learn, n_step)
    buffer = ReplayBuffer(
        GOALS,
        capacity=capacity,
        batch_size=4,
        burn_in=burn_in,
        learn=learn,
        n_step=n_step,
        carry_shape=(2,),
        sampler=PrioritizedSampler(),
        relabel=hindsight(task, ratio=0.7),
    )
    script = Script(GOALS)
    for operation in operations:
        script.do(operation, plain, buffer)
        batch = buffer.sample()
        for i in range(4 if batch is not None else 0):
            _assert_is_one_of(batch, i, plain, task)


def goals_of(replay: NaiveReplay, anchor: int, place: int) -> list[int]:
    """The rows whose achieved goals a window may get."""
    episode = next(e for e in replay.episodes if anchor in e)
    last_learned = min(episode.index(anchor) - place + replay.learn - 1, len(episode) - 2)
    return episode[last_learned + 1 :]


def relabelled(replay: NaiveReplay, anchor: int, place: int, goal: int, task: Told) -> dict[str, np.ndarray]:
    """The window with what row ``goal`` has achieved as its goal, one transition after the other."""
    out, wanted = replay.window(anchor, place), replay.rows[goal].obs["achieved_goal"]
    for token in np.flatnonzero(out["obs_valid"]):
        out["desired_goal"][token] = wanted
    for t in np.flatnonzero(out["valid"]):
        pair = out["achieved_goal"][t + 1][None], wanted[None]
        out["reward"][t] = task.rewards(*pair)[0]
        ends = task.terminated(*pair)
        if ends is not None:
            out["terminated"][t] = ends[0]
    return out


def _assert_is_one_of(batch, i, plain: NaiveReplay, task: Told) -> None:
    """The window is as stored, or as the plain loop makes it with one of the goals that it may have."""
    column = int(batch.anchor[i])
    anchor, place = int(batch.ids[i, column]), column - plain.burn_in
    expected = plain.window(anchor, place)
    wanted = batch.obs["desired_goal"][i].numpy()
    if not np.array_equal(wanted, expected["desired_goal"]):
        rows = goals_of(plain, anchor, place)
        goal = next(g for g in rows if np.array_equal(plain.rows[g].obs["achieved_goal"], wanted[column]))
        expected = relabelled(plain, anchor, place, goal, task)
    for name in ("reward", "terminated", "valid", "ids", "z"):
        np.testing.assert_allclose(
            getattr(batch, name)[i].numpy(), expected[name], rtol=1e-4, atol=1e-4, err_msg=name
        )
    for name, value in batch.obs.items():
        np.testing.assert_array_equal(value[i].numpy(), expected[name], err_msg=name)


@given(operations=OPERATIONS, capacity=st.integers(6, 60))
def test_a_replay_goes_on_with_the_goals_that_it_would_have_drawn(operations, capacity):
    sizes = {"capacity": capacity, "batch_size": 4, "carry_shape": (2,), "sampler": UniformSampler()}
    one, other = (
        ReplayBuffer(GOALS, relabel=hindsight(Told(ends=True)), seed=seed, **sizes) for seed in (1, 2)
    )
    script = Script(GOALS)
    half = len(operations) // 2
    for operation in operations[:half]:
        script.do(operation, one)
    other.load_state(taken(one))
    for operation in operations[half:]:
        script.do(operation, one, other)
        first, second = one.sample(), other.sample()
        assert (first is None) == (second is None)
        assert first is None or batches_equal(first, second)
