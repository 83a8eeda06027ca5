"""Agents appear, leave and vanish; each keeps what is its own, and begins with nothing of anybody's."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from algorithm.core.data import Episode, Segment, StepBatch
from algorithm.core.errors import EnvError
from algorithm.core.spec import DEFAULT_BEHAVIOUR
from algorithm.replay.buffer import ReplayBuffer
from algorithm.replay.samplers import UniformSampler
from algorithm.run.experience import collector
from algorithm.run.experience.collector import Iteration, LocalCollector
from tests.lib.toys_agents import SPEC, Attentive, Guests, carried, chosen, random_script, tale

K, T, N = 3, 2, 2  # burn-in, learned and bootstrapped steps of the windows


class Remembering(Attentive):
    """Keeps it all in a replay."""

    def __init__(self, stored: tuple[int, ...] = (2,)) -> None:
        super().__init__(stored)
        self.replay = ReplayBuffer(
            SPEC, capacity=4000, batch_size=2, burn_in=K, learn=T, n_step=N, carry_shape=stored,
            sampler=UniformSampler(),
        )  # fmt: skip

    def add_steps(self, steps: StepBatch) -> None:
        super().add_steps(steps)
        self.replay.add_steps(steps)

    def close(self, stream: int) -> None:
        super().close(stream)
        self.replay.close(stream)


def roll(env, player, steps: int, **options) -> tuple[LocalCollector, list[list[Episode]]]:
    """Episodes by step."""
    rollout = LocalCollector(env, {DEFAULT_BEHAVIOUR: player}, {DEFAULT_BEHAVIOUR: player}, **options)
    return rollout, [rollout.step() for _ in range(steps)]


def transition(s: Segment) -> tuple:
    """(agent, episode, step, reward, terminated, truncated), after a look at the rest."""
    before, after = (tuple(row) for row in s.obs["obs"].astype(int).tolist())
    agent, episode, step = before
    assert (s.stream, s.start_step) == (agent, step) and after == (agent, episode, step + 1)
    assert s.obs["tag"].ravel().tolist() == [agent, agent]
    assert np.array_equal(s.action, chosen([before]))
    assert s.behaviour_logp.tolist() == [[agent, step]]
    assert s.carry.tolist() == [carried(moment)[: s.carry.shape[1]] for moment in (before, after)]
    return (*before, s.reward.item(), s.terminated.item(), s.truncated.item())


@pytest.mark.parametrize(("first", "limit", "stored"), [
    ({0, 1, 2, 3, 4}, -1, (2,)),
    ({0, 1, 2, 3, 4}, 4, (0,)),
    (set(), 4, (1,)),
])  # fmt: skip
def test_what_is_stored_is_what_each_agent_by_itself_brings(rng, first, limit, stored):
    """``Attentive`` complains about a carry, an action or a row that is not that of its agent."""
    script = random_script(rng, 100, 6)
    player = Remembering(stored)
    rollout, episodes = roll(Guests(script, first), player, len(script), length_limit=limit)
    rows, closed, ended = tale(script, first, limit)
    assert Counter(map(transition, player.segments)) == Counter(rows)
    assert Counter(player.closed) == Counter(closed)
    assert Counter((e.agent, e.total, e.length) for es in episodes for e in es) == Counter(ended)
    assert len(player.calls) < len(script), "one call a step, none while nobody is there"
    assert {s.carry.shape for s in player.segments} == {(2, *stored)}
    assert player.replay.num_transitions == rollout.steps == len(rows)
    check_windows(player.replay, rows)


def check_windows(replay: ReplayBuffer, rows: list[tuple]) -> None:
    """Every window holds one episode of one agent without gaps, and all of it that there is room for."""
    batch = replay.windows(replay.spread(len(rows)))
    lengths = Counter(row[:2] for row in rows)
    terminated = {row[:3] for row in rows if row[4]}
    for b, there in enumerate(batch.obs_valid.numpy()):
        seen = [tuple(row) for row in batch.obs["obs"][b].numpy()[there].astype(int).tolist()]
        agent, episode, anchor = map(int, batch.obs["obs"][b, K].tolist())
        last = min(anchor + T + N - 1, lengths[agent, episode])
        assert seen == [(agent, episode, step) for step in range(max(0, anchor - K), last + 1)]
        assert batch.terminated[b][batch.valid[b]].tolist() == [m in terminated for m in seen[:-1]]


def test_an_environment_without_any_agent_ends_the_run(monkeypatch):
    monkeypatch.setattr(collector, "PATIENCE", 3)
    script = ["..", "a.", "..", "w.", "w.", "..", "w.", "w.", "w."]
    rollout, _ = roll(Guests(script, set()), Attentive(), len(script) - 1)
    with pytest.raises(EnvError, match="no agent asks for an action"):
        rollout.step()
    assert rollout.steps == 2


@pytest.mark.parametrize("stored", [(3,), (2, 2)])
def test_a_stored_carry_is_part_of_the_whole_one(stored):
    with pytest.raises(ValueError, match="stored_carry_shape of 'default' must fit"):
        roll(Guests([], {0}), Attentive(stored), 0)


class Says(Guests):
    """Its results are altered on the way."""

    def __init__(self, script, first, **altered) -> None:
        super().__init__(script, first)
        self._altered = altered

    def step(self, actions):
        return {DEFAULT_BEHAVIOUR: replace(super().step(actions)[DEFAULT_BEHAVIOUR], **self._altered)}


@pytest.mark.parametrize(("event", "altered", "said"), [
    ("t", {"terminated": np.zeros(1, bool)}, r"agents \[0\] left with neither terminated nor truncated"),
    ("t", {"final": None}, r"agents \[0\] left with no final observation"),
    (".", {"ids": np.zeros(2, np.int64)}, "an id of 'default' appears twice"),
])  # fmt: skip
def test_results_that_contradict_themselves_are_refused(event, altered, said):
    player = Attentive()
    with pytest.raises(ValueError, match=said):
        roll(Says([event], {0}, **altered), player, 1)
    assert player.log == []


@pytest.mark.parametrize(("script", "on_reset", "closed", "of_agent_1", "left"), [
    # 0 reaches the limit first; 1, which was skipped and is younger, begins anew as well
    ([".....", ".s...", ".....", "....."], [], [1, 1], [(1, 0), (2, 0), (3, 0)], {0, 1, 2, 3, 4}),
    # 1 waits when 0 reaches the limit, and begins anew with it
    (["..", "..", ".w", "..", ".."], [], [1], [(1, 0), (1, 1), (2, 0), (2, 1)], {0, 1}),
    (["..", "..", ".w", "."], [({1}, set())], [1], [(1, 0), (1, 1)], {0}),
    # with the reset 0 is gone and 3 is new: it stands behind the others
    (["..s.", "..s.", "....", "...."], [({0}, {3})], [], [(1, 0), (1, 1), (1, 2), (2, 0)], {1, 2, 3}),
])  # fmt: skip
def test_a_reset_for_the_length_limit_is_one_for_the_room(script, on_reset, closed, of_agent_1, left):
    """Agents 0 and 1 share a room, and 2 and 3. The limit is 3 steps."""
    player, first = Attentive(), range(min(3, len(script[0])) if on_reset else len(script[0]))
    env = Guests(script, first, rooms=True, on_reset=on_reset)
    rollout, _ = roll(env, player, len(script), length_limit=3)
    assert player.closed == closed
    assert [transition(s)[1:3] for s in player.segments if s.stream == 1] == of_agent_1
    assert {agent for _, agent in rollout.agents} == left


def test_truncate_begins_those_anew_who_wait():
    player = Attentive()
    rollout, _ = roll(Guests(["..", ".w", ".."], {0, 1}), player, 2)
    rollout.truncate()
    rollout.step()
    assert sorted(player.closed) == [0, 1] and [s.start_step for s in player.segments[-2:]] == [0, 0]


@pytest.mark.parametrize(("script", "first", "expected"), [
    (["T.", "T.", ".T", ".T", "T."], {0, 1}, [3, 5]),  # everybody once, and again
    (["T.", "..", ".v", "..", "T."], {0, 1}, [3, 5]),  # the one that was waited for vanished
    (["T.", ".t", "..", "T.", "va"], {0, 1}, [2, 4]),  # it left after its end, and is not missed
    (["T.", ".a", "T.", ".T"], {0}, [1, 4]),  # a newcomer is waited for
    (["..", "..", "a.", "..", "T.", "v.", ".."], set(), [5]),  # nobody there is no end
    (["t.", "..", ".T"], {0, 1}, [3]),  # the one that left had finished, the other had not
])  # fmt: skip
def test_an_iteration_ends_when_all_who_are_there_have_finished(script, first, expected):
    rollout, _ = roll(Guests(script, first), Attentive(), 0)
    iteration = Iteration(rollout)
    assert [t + 1 for t in range(len(script)) if iteration.ends(rollout.step())] == expected
