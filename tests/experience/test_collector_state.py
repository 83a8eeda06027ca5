"""A rollout that goes on where another one was left stores and reports what that one would have."""

from __future__ import annotations

import json
from contextlib import closing
from typing import Any

import numpy as np
import pytest

from algorithm.agents.roles import Episode
from algorithm.core.data import State
from algorithm.core.spec import DEFAULT_BEHAVIOUR
from algorithm.env.base import VecEnv
from algorithm.env.gym_vector import GymVectorEnv
from algorithm.env.registry import make_vec_env
from algorithm.env.request import PoolOptions
from algorithm.experience.collector import Iteration, LocalCollector
from tests.oracles_env import Witness
from tests.toys_agents import Attentive, Both, Guests, random_script
from tests.toys_vector import DiaryVector, diary_seed


def stored(state: State) -> State:
    """The state as it comes back from the disk: nobody else's arrays, and not to be written to."""
    arrays = {name: np.frombuffer(v.tobytes(), v.dtype).reshape(v.shape) for name, v in state.arrays.items()}
    return State(arrays, json.loads(json.dumps(state.meta, allow_nan=False)))


def diaries(n: int = 3, **args: Any) -> VecEnv:
    name, pool = "tests.toys_vector:Diary-v0", PoolOptions(restarts=99)
    return make_vec_env("GYM", name, env_args=args, n=n, seed_of=diary_seed, pool=pool)


def fickle(how: str) -> VecEnv:
    return make_vec_env("GYM", "tests.toys_faults:Fickle-v0", env_args={"how": how}, n=3, seed_of=diary_seed)


def rolled(env: VecEnv, player: Any, limit: int = -1, **options: Any) -> LocalCollector:
    players = dict.fromkeys(env.specs, player)
    return LocalCollector(env, players, players, length_limit=limit, **options)


def play(rollout: LocalCollector, steps: int) -> list[Episode]:
    return [episode for _ in range(steps) for episode in rollout.step()]


@pytest.mark.parametrize(
    ("fails", "limit", "before"), [("", -1, 0), ("", 3, 23), ("sometimes", -1, 22), ("sometimes", 3, 1)]
)
def test_what_is_stored_and_reported_is_the_same_without_a_stop(fails, limit, before):
    with closing(diaries(fails=fails)) as one, closing(diaries(fails=fails)) as other:
        witness = Witness(one.specs[DEFAULT_BEHAVIOUR])
        first = rolled(one, witness, limit)
        play(first, before)
        state = stored(first.state())
        seen = {agent: list(found) for agent, found in witness.seen.items()}
        closed = list(witness.closed)
        expected, steps = play(first, 25), first.steps

        again = Witness(one.specs[DEFAULT_BEHAVIOUR])  # in place of the agent that was saved with it
        again.seen, again.closed = seen, closed
        second = rolled(other, again, limit)
        assert second.load_state(state) == []
        assert play(second, 25) == expected
        assert (second.steps, again.seen, again.closed) == (steps, witness.seen, witness.closed)


@pytest.mark.parametrize("seed", range(2))
def test_agents_that_come_and_go(seed):
    """``Attentive`` complains about a carry, an action or a row that is not that of its agent."""
    rng = np.random.default_rng(seed)
    script = random_script(rng, 60, 5)
    for before in (7, 20, 30):
        told: list[Any] = []
        for stop in (None, before):
            player = Attentive()
            rollout = rolled(Guests(script, {0, 2}), player)
            episodes = play(rollout, before)
            if stop:
                state = stored(rollout.state())
                rollout = rolled(Guests(script, {0, 2}), player)
                assert rollout.load_state(state) == []
            episodes += play(rollout, 60 - before)
            told.append((episodes, player.calls, player.log, rollout.steps, rollout.agents))
        assert told[0] == told[1]


class Together(Both):
    def state(self) -> State:
        return State.joined({str(k): house.state() for k, house in enumerate(self._houses.values())})

    def resume(self, state: State) -> dict[int, str]:
        for k, house in enumerate(self._houses.values()):
            house.resume(state.part(str(k)))
        return {}


def test_every_behaviour_has_its_own_agents():
    """Whatever it is called."""
    script = ["...", ".t.", ".a.", "s.T", "...", "..."]
    told = []
    for stops in (False, True):
        players = {name: Attentive() for name in ("left/first", "right")}
        rollouts = []
        for _ in range(2):
            houses = {"left/first": Guests(script, {0, 1}), "right": Guests(script[::-1], {1, 2})}
            rollouts.append(LocalCollector(Together(**houses), players, players))
        play(rollouts[0], 2)
        if stops:
            assert rollouts[1].load_state(stored(rollouts[0].state())) == []
        told.append((play(rollouts[stops], 4), [(player.calls, player.log) for player in players.values()]))
    assert told[0] == told[1]


@pytest.mark.parametrize(
    ("how", "before", "why"), [("life", 12, "another observation"), ("fail", 5, "failed")]
)
def test_an_episode_that_cannot_be_repeated_ends_as_truncated_and_the_others_go_on(how, before, why):
    """Twelve steps are one episode of nine and three steps of the next."""
    with closing(fickle(how)) as one, closing(fickle(how)) as other:
        player = Witness(one.specs[DEFAULT_BEHAVIOUR])
        first = rolled(one, player)
        play(first, before)
        second = rolled(other, player)
        (line,) = second.load_state(stored(first.state()))
        assert line.startswith("environment 1: ") and why in line and line.endswith("ends as truncated")
        assert player.closed == [1]
        episodes = play(second, 9)
        assert [(e.agent, e.length) for e in episodes] == [(0, 9), (2, 9), (1, 9)]
        assert second.steps == 3 * (before + 9)
        steps = {agent: [t.step for t in seen] for agent, seen in player.seen.items()}
        all_steps = [t % 9 for t in range(before + 9)]
        assert steps == {0: all_steps, 1: all_steps[:before] + list(range(9)), 2: all_steps}
        cut = [t.truncated for t in player.seen[1]]
        assert [k for k, end in enumerate(cut) if end] == [before - 1]


def test_a_reason_that_several_have_is_told_once():
    """Of a vector class all begin anew; episodes that have taken a step end as truncated."""

    def make() -> VecEnv:
        return GymVectorEnv(lambda: DiaryVector(3), seed_of=diary_seed, name="Diary-v0")

    with closing(make()) as one, closing(make()) as other:
        player = Witness(one.specs[DEFAULT_BEHAVIOUR])
        first = rolled(one, player)
        play(first, 4)
        begun = np.flatnonzero(first._groups[DEFAULT_BEHAVIOUR].step > 0).tolist()
        assert 0 < len(begun) < 3
        second = rolled(other, player)
        (line,) = second.load_state(stored(first.state()))
        assert line.startswith("environments 0, 1, 2: DiaryVector steps all environments together")
        assert player.closed == begun
        play(second, 1)
        assert [seen[-1].step for seen in player.seen.values()] == [0, 0, 0]


@pytest.mark.parametrize("n", [2, 4])
def test_with_another_number_of_environments_all_episodes_are_closed(n):
    """Also those of agents that are not there any more."""
    with closing(diaries(3)) as one, closing(diaries(n)) as other:
        player = Witness(one.specs[DEFAULT_BEHAVIOUR])
        first = rolled(one, player)
        play(first, 7)
        open_ones = np.flatnonzero(first._groups[DEFAULT_BEHAVIOUR].step > 0).tolist()
        assert 2 in open_ones
        second = rolled(other, player)
        (line,) = second.load_state(stored(first.state()))
        assert line == f"3 environments became {n}: all open episodes end as truncated"
        assert player.closed == open_ones
        assert second.steps == 21
        episode = other.state().arrays["episode"]
        assert episode[:3].tolist() == [e + 1 for e in one.state().arrays["episode"][:n].tolist()]
        play(second, 1)
        assert second.steps == 21 + n
        assert {agent: seen[-1].step for agent, seen in player.seen.items()} == {
            **dict.fromkeys(range(n), 0),
            **({2: player.seen[2][-1].step} if n < 3 else {}),
        }


def test_agents_that_remember_something_else_begin_anew():
    with closing(diaries()) as one, closing(diaries()) as other:
        first = rolled(one, Witness(one.specs[DEFAULT_BEHAVIOUR]))
        play(first, 4)
        player = Witness(one.specs[DEFAULT_BEHAVIOUR])
        player.initial_carry = lambda n: np.zeros((n, 2), np.float32)
        player.stored_carry_shape = (2,)
        second = rolled(other, player)
        (line,) = second.load_state(stored(first.state()))
        assert "default: carry was float32 (1,) and is float32 (2,)" in line
        with pytest.raises(ValueError, match="carry was"):
            second._groups[DEFAULT_BEHAVIOUR].load_state(first.state().part("groups").part("0"))


def test_open_episodes_of_agents_that_wait_end_where_all_begin_anew():
    house = Guests(["..", ".w", ".."], {0, 1})
    first = rolled(house, Attentive())
    play(first, 2)
    player = Attentive()
    other = rolled(Guests(["..", "..", ".."], {0, 1}), player, num_envs=3)
    (line,) = other.load_state(stored(first.state()))
    assert line == "2 environments became 3: all open episodes end as truncated"
    assert sorted(player.closed) == [0, 1]


def test_behaviours_that_are_others_begin_anew():
    house = Guests(["..", "..", ".."], {0, 1})
    first = rolled(house, Attentive())
    play(first, 2)
    house.specs = {"others": house.specs[DEFAULT_BEHAVIOUR]}
    house.reset = lambda indices=None, *, episode=None: {
        "others": Guests.reset(house, None, episode=0)[DEFAULT_BEHAVIOUR]
    }
    player = Attentive()
    (line,) = rolled(house, player).load_state(stored(first.state()))
    assert line.startswith("the behaviours were default and are others: ")
    assert player.closed == []


def test_an_iteration_waits_for_those_it_waited_for():
    with closing(diaries(2)) as env:
        rollout = rolled(env, Witness(env.specs[DEFAULT_BEHAVIOUR]))
        one, other = Iteration(rollout), Iteration(rollout)
        mine, its = (Episode(DEFAULT_BEHAVIOUR, agent, 1.0, 1) for agent in range(2))
        assert not one.ends([its])
        other.load_state(stored(one.state()))
        assert not other.ends([])
        assert one.ends([mine]) and other.ends([mine])
        assert one.state().meta == other.state().meta == {"expected": None, "finished": False}
