"""Agents appear, leave and vanish; each keeps what is its own, and begins with nothing of anybody's."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from algorithm.agents.roles import Episode
from algorithm.app.cli.parsing import parse_args
from algorithm.app.training import train
from algorithm.config.loader import load_config
from algorithm.core.data import ActorOutput, Segment, StepBatch
from algorithm.core.errors import EnvError, NumericalError
from algorithm.core.spec import DEFAULT_BEHAVIOUR
from algorithm.env.base import Observation
from algorithm.experience import collector
from algorithm.experience.agent_processor import AgentProcessor
from algorithm.experience.collector import Iteration, LocalCollector
from algorithm.replay.buffer import ReplayBuffer, UniformSampler
from algorithm.train.assembly import Assembly
from tests.toys_agents import SPEC, START, Attentive, Both, Guests, carried, chosen, random_script, see, tale

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
    assert s.carry.shape == (2, 0) or s.carry.tolist() == [carried(before), carried(after)]
    return (*before, s.reward.item(), s.terminated.item(), s.truncated.item())


@pytest.mark.parametrize(("first", "limit", "stored"), [
    ({0, 1, 2, 3, 4}, -1, (2,)),
    ({0, 1, 2, 3, 4}, 4, (0,)),
    (set(), 4, (2,)),
    (set(), -1, (0,)),
])  # fmt: skip
def test_what_is_stored_is_what_each_agent_by_itself_brings(rng, first, limit, stored):
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
    first_id = replay.next_id - len(replay)
    slots = [i for i in range(first_id, replay.next_id) if replay._storage.is_transition(np.array([i]))[0]]
    batch = replay.windows(np.array(slots))
    lengths = Counter(row[:2] for row in rows)
    terminated = {row[:3] for row in rows if row[4]}
    for b, there in enumerate(batch.obs_valid.numpy()):
        seen = [tuple(row) for row in batch.obs["obs"][b].numpy()[there].astype(int).tolist()]
        agent, episode, anchor = map(int, batch.obs["obs"][b, K].tolist())
        last = min(anchor + T + N - 1, lengths[agent, episode])
        assert seen == [(agent, episode, step) for step in range(max(0, anchor - K), last + 1)]
        expected = np.array([m in terminated for m in seen[:-1]])
        assert np.array_equal(batch.terminated[b].numpy()[batch.valid[b].numpy()], expected)
        previous = [chosen([(*m[:2], m[2] - 1)])[0] if m[2] else np.zeros(4) for m in seen]
        assert np.allclose(batch.prev_action[b].numpy()[there], previous, atol=1e-6)
        if batch.carry.shape[1]:
            assert batch.carry[b].tolist() == carried(seen[0])


@pytest.mark.parametrize(("script", "limit", "steps_seen"), [
    ("..T..", -1, [0, 1, 2, 0, 1]),
    ("..U..", -1, [0, 1, 2, 0, 1]),
    (".....", 3, [0, 1, 2, 0, 1]),
    ("..s..", -1, [0, 1, 2, 0, 1]),
    ("..t.a.", -1, [0, 1, 2, None, None, 0]),
    ("..u.a.", -1, [0, 1, 2, None, None, 0]),
    ("..va.", -1, [0, 1, 2, None, 0]),
    ("s....", -1, [0, 0, 1, 2, 3]),
])  # fmt: skip
def test_a_boundary_of_one_agent_resets_it_and_no_other(script, limit, steps_seen):
    """Agent 1 does what the script says; agent 0 goes on, agent 2 appears a step later and goes on."""
    handed = []

    class Watched(Attentive):
        def act(self, obs, prev_action, carry, action_mask) -> ActorOutput:
            ids = obs["tag"][:, 0].tolist()
            handed.append({i: (carry[row].tolist(), prev_action[row].any()) for row, i in enumerate(ids)})
            return super().act(obs, prev_action, carry, action_mask)

    events = [f".{event}{'a' if t == 0 else '.'}" for t, event in enumerate(script)]
    roll(Guests(events, {0, 1}), Watched(), len(script), length_limit=limit)
    assert len(handed) == len(script), "one call a step for all of them"
    beginning = (START.tolist(), False)
    assert [(1 in now) for now in handed] == [step is not None for step in steps_seen]
    assert [now[1] == beginning for now in handed if 1 in now] == [
        s == 0 for s in steps_seen if s is not None
    ]
    others = [t for t in range(len(script)) if limit < 0 or t % limit]
    assert all(handed[t][0] != beginning for t in others if t > 0)
    assert handed[1][2] == beginning


def test_where_nobody_is_there_nobody_is_asked():
    script = ["...", ".a.", "...", ".v.", "...", "a.a", "..."]
    player, env, shapes = Attentive(), Guests(script, set()), []
    step = env.step
    env.step = lambda actions: shapes.append(actions[DEFAULT_BEHAVIOUR].shape) or step(actions)
    rollout, _ = roll(env, player, len(script), num_envs=3)
    assert shapes == [(0, 4), (0, 4), (1, 4), (1, 4), (0, 4), (0, 4), (2, 4)]
    assert [len(moments) for moments in player.calls] == [1, 1, 2]
    assert rollout.steps == 1 + 2, "agent 1 before it vanished, then the other two"


def test_an_environment_without_any_agent_ends_the_run(monkeypatch):
    monkeypatch.setattr(collector, "PATIENCE", 3)
    script = ["..", "a.", "..", "w.", "w.", "..", "w.", "w.", "w."]
    rollout = LocalCollector(Guests(script, set()), {DEFAULT_BEHAVIOUR: Attentive()})
    for _ in script[:-1]:
        rollout.step()
    with pytest.raises(EnvError, match="no agent asks for an action") as caught:
        rollout.step()
    assert rollout.steps == 2 and "stepped 3 times" in str(caught.value)


def test_fixed_agents_are_never_moved(monkeypatch):
    """Equal ids suffice: not a row is copied on the way, and the carry is the very array of the player."""
    monkeypatch.setattr(AgentProcessor, "_move", lambda *args: pytest.fail("rows were moved"))
    env = Guests(["s..", ".T.", "..."], range(3), shuffled=False)
    rollout, _ = roll(env, Attentive(), 3)
    group = rollout._groups[DEFAULT_BEHAVIOUR]
    assert group.carry is group.acted.carry and group.prev_action is group.acted.action


def test_a_carry_that_is_not_stored_is_not_copied():
    """A cache of 8 TiB that exists only as a view of one number."""

    class Huge(Attentive):
        def initial_carry(self, n):
            return np.broadcast_to(np.zeros((), np.float32), (n, 2**40))

        def act(self, obs, prev_action, carry, action_mask):
            act = super().act(obs, prev_action, np.array([carried(m) for m in moments(obs)]), action_mask)
            return replace(act, carry=carry)

    def moments(obs):
        return [tuple(row) for row in obs["obs"].astype(int).tolist()]

    player = Huge((0,))
    roll(Guests(["..", ".."], range(2), shuffled=False), player, 2)
    assert [s.carry.shape for s in player.segments] == [(2, 0)] * 4


@pytest.mark.parametrize("stored", [(1,), (), (2, 2)])
def test_a_stored_carry_is_all_or_nothing(stored):
    with pytest.raises(ValueError, match="stored_carry_shape of 'default' must be"):
        roll(Guests([], {0}), Attentive(stored), 0)


class Says(Guests):
    """Its results are altered on the way."""

    def __init__(self, script, first, **altered) -> None:
        super().__init__(script, first)
        self._altered = altered

    def step(self, actions):
        result = super().step(actions)[DEFAULT_BEHAVIOUR]
        return {DEFAULT_BEHAVIOUR: replace(result, **self._altered)}


@pytest.mark.parametrize(("altered", "said"), [
    ({"terminated": np.zeros(1, bool)}, r"agents \[0\] left with neither terminated nor truncated"),
    ({"final": None}, r"agents \[0\] left with no final observation"),
])  # fmt: skip
def test_who_leaves_must_have_come_to_an_end(altered, said):
    player = Attentive()
    with pytest.raises(ValueError, match=said):
        roll(Says(["t"], {0}, **altered), player, 1)
    assert player.log == []


def test_an_id_stands_once():
    with pytest.raises(ValueError, match=r"an id of 'default' stands twice in \[0, 0\]"):
        roll(Says([".."], {0, 1}, ids=np.zeros(2, np.int64)), Attentive(), 1)
    with pytest.raises(ValueError, match="twice"):
        AgentProcessor(
            "g", SPEC, Attentive(), None, Observation(ids=np.zeros(2, np.int64), obs={}, action_mask=None)
        )


def test_a_reset_for_the_length_limit_is_one_for_the_room():
    """Agents 0 and 1 share a room. 0 reaches the limit first; 1, which is younger, begins anew as well."""
    player = Attentive()
    env = Guests([".....", ".s...", ".....", "....."], range(5), rooms=True)
    roll(env, player, 4, length_limit=3)
    assert player.closed == [1, 1]  # when it was skipped, and with the reset
    own = [transition(s) for s in player.segments if s.stream == 1]
    assert [(episode, step) for _, episode, step, *_ in own] == [(1, 0), (2, 0), (3, 0)]
    assert not any(truncated for *_, truncated in own)


def test_a_reset_ends_those_who_wait_as_well():
    """Agents 0 and 1 share a room; 1 waits when 0 reaches the limit, and begins anew with it."""
    player = Attentive()
    env = Guests(["..", "..", ".w", "..", ".."], range(2), rooms=True)
    rollout, _ = roll(env, player, 5, length_limit=3)
    assert player.closed == [1]
    own = [transition(s)[1:3] for s in player.segments if s.stream == 1]
    assert own == [(1, 0), (1, 1), (2, 0), (2, 1)]
    assert rollout.agents == {(DEFAULT_BEHAVIOUR, 0), (DEFAULT_BEHAVIOUR, 1)}


def test_a_reset_may_remove_those_who_wait():
    player = Attentive()
    env = Guests(["..", "..", ".w", "."], range(2), rooms=True, on_reset=[({1}, set())])
    rollout, _ = roll(env, player, 4, length_limit=3)
    assert player.closed == [1] and rollout.agents == {(DEFAULT_BEHAVIOUR, 0)}


def test_truncate_begins_those_anew_who_wait():
    player = Attentive()
    rollout, _ = roll(Guests(["..", ".w", ".."], {0, 1}), player, 2)
    rollout.truncate()
    assert sorted(player.closed) == [0, 1]
    rollout.step()
    assert [s.start_step for s in player.segments[-2:]] == [0, 0]


def test_who_is_there_may_change_with_a_reset():
    """With the reset of its room agent 0 is gone and agent 3 is new: it stands behind the others."""
    player = Attentive()
    script = ["..s.", "..s.", "....", "....", "...."]
    env = Guests(script, range(3), rooms=True, on_reset=[({0}, {3})])
    rollout, _ = roll(env, player, 3, length_limit=3)
    assert {agent for _, agent in rollout.agents} == {1, 2, 3}
    assert rollout._groups[DEFAULT_BEHAVIOUR].ids[-1] == 3
    player.log.clear()
    rollout.step()
    assert sorted(player.log) == [("add", 1), ("add", 2), ("add", 3)]


def test_behaviours_change_each_by_itself(rng):
    scripts = {"a": random_script(rng, 60, 4), "b": ["...."] * 60}
    env = Both(**{k: Guests(script, range(4)) for k, script in scripts.items()})
    players = {k: Attentive() for k in scripts}
    rollout = LocalCollector(env, players, players)
    for _ in range(60):
        rollout.step()
    for k, script in scripts.items():
        assert Counter(map(transition, players[k].segments)) == Counter(tale(script, set(range(4)), -1)[0])
    assert len(players["b"].calls) == 60


def ends(script: list[str], first: set[int]) -> list[int]:
    """The steps, from 1, with which iterations end."""
    rollout = LocalCollector(Guests(script, first), {DEFAULT_BEHAVIOUR: Attentive()})
    iteration = Iteration(rollout)
    return [t + 1 for t in range(len(script)) if iteration.ends(rollout.step())]


@pytest.mark.parametrize(("script", "first", "expected"), [
    (["T.", "T.", ".T", ".T", "T."], {0, 1}, [3, 5]),  # everybody once, and again
    (["T.", "..", ".v", "..", "T."], {0, 1}, [3, 5]),  # the one that was waited for vanished
    (["T.", ".t", "..", "T.", "va"], {0, 1}, [2, 4]),  # it left after its end, and is not missed
    (["T.", ".a", "T.", ".T"], {0}, [1, 4]),  # a newcomer is waited for
    (["..", "..", "a.", "..", "T.", "v.", ".."], set(), [5]),  # nobody there is no end
    (["t.", "..", ".T"], {0, 1}, [3]),  # the one that left had finished, the other had not
])  # fmt: skip
def test_an_iteration_ends_when_all_who_are_there_have_finished(script, first, expected):
    assert ends(script, first) == expected


class Patient(Guests):
    """Takes any action."""

    def _check(self, action):
        assert action.shape == (len(self._order), 4) and np.isfinite(action).all()


CONFIG = """\
default:
  base_config: {env_type: GYM, env_name: guests, max_iter: 2, reset_on_iteration: false}
  nn_config: {q: {dense_n: 8}, policy: {dense_n: 8}}
  sac_config: {batch_size: 2, start_step: 2}
  replay_config: {capacity: 100}
  eval_config: {per_step: -1, episodes: 2}
"""


def test_training_counts_iterations_of_those_who_are_there(tmp_path, monkeypatch):
    """Agent 1 keeps the iteration open until it vanishes, and no episode ends with that step."""
    houses = [Patient(["..", "T.", "..", ".v", "..", "T.", "T."], {0, 1}), Patient(["t", ".", "a", "T"], {0})]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Assembly, "env", lambda _, purpose, *__, **___: houses[purpose == "evaluate"])
    (tmp_path / "task").mkdir()
    (tmp_path / "task" / "config.yaml").write_text(CONFIG)
    loaded = load_config("./task", flags={"base_config.name": "a"}, seed=1)
    train(parse_args(["./task", "--device=cpu", "--quiet"]), loaded)
    result = json.loads((tmp_path / "models" / "task" / "a" / "result.json").read_text())
    assert result["steps"] == 3 * 2 + 1 + 2 and result["updates"] > 0
    assert result["last_eval"]["mean"] == 1.0


def test_observations_of_those_who_left_or_appeared_are_looked_at_where_they_count():
    """The double hands out NaN wherever nothing counts; one that does count is refused."""
    obs = see([(0, 1, 1), (1, 1, 0)])
    obs["obs"][1, 2] = np.nan
    with pytest.raises(NumericalError, match=r"observation 'obs'\[2\] of 'default' agent 1"):
        roll(Says([".a"], {0}, obs=obs, ids=np.array([0, 1])), Attentive(), 1)
