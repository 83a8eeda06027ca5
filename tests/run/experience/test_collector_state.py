"""A rollout that goes on where another one was left stores and reports what that one would have."""

from contextlib import closing
from typing import Any

import numpy as np
import pytest

from algorithm.core.data import Episode, State
from algorithm.core.errors import EnvError
from algorithm.core.spec import DEFAULT_BEHAVIOUR
from algorithm.env.base import VecEnv
from algorithm.env.registry import make_vec_env
from algorithm.env.request import EnvRequest
from algorithm.run.experience.collector import Iteration, LocalCollector
from tests.env.oracles import Witness
from tests.lib.agreement import stored
from tests.lib.toys_agents import Attentive, Both, Guests, random_script
from tests.lib.toys_vector import diary_seed

TWO = ["..", ".w", ".."]


def diaries(n: int = 3, **args: Any) -> VecEnv:
    name, pool = "tests.lib.toys_vector:Diary-v0", {"restarts": 99}
    return make_vec_env(EnvRequest("GYM", name, env_args=args, n=n, seed_of=diary_seed, **pool))


def fickle(how: str) -> VecEnv:
    return make_vec_env(
        EnvRequest("GYM", "tests.env.pool.toys:Fickle-v0", env_args={"how": how}, n=3, seed_of=diary_seed)
    )


def rolled(env: VecEnv, player: Any, limit: int = -1, **options: Any) -> LocalCollector:
    players = dict.fromkeys(env.specs, player)
    return LocalCollector(env, players, players, length_limit=limit, **options)


class Wrong(Guests):
    """Guests of whose methods one returns what it is told to."""

    def __init__(self, method: str, result: object) -> None:
        super().__init__(["..", "UU"], {0, 1})
        setattr(self, method, lambda *_, **__: result)


@pytest.mark.parametrize(
    ("method", "result"),
    [
        ("reset", None),
        ("step", {DEFAULT_BEHAVIOUR: None}),
        ("state", {"line": 3}),
        ("state", State({"line": [3]})),
        ("state", State(meta={"line": np.int64(3)})),
        ("state", State(meta={"line": np.nan})),
        ("resume", [0]),
        ("infos", None),
        ("infos", {"score": "high"}),
        ("metrics", None),
    ],
)
def test_a_simulator_that_returns_a_wrong_type_is_told_which_one_to_return(method, result):
    with pytest.raises(EnvError, match="a method of the environments returns a wrong type") as caught:
        rollout = rolled(Wrong(method, result), Attentive())
        play(rollout, 2)
        rollout.load_state(rollout.state())
        rollout.metrics()
    assert caught.value.where == f"{__name__}.Wrong.{method}" and caught.value.fix.startswith("return a")


def play(rollout: LocalCollector, steps: int) -> list[Episode]:
    return [episode for _ in range(steps) for episode in rollout.step()]


@pytest.mark.parametrize(
    ("fails", "limit", "before"), [("", -1, 0), ("", 3, 23), ("sometimes", -1, 22), ("sometimes", 3, 1)]
)
def test_what_is_stored_and_reported_is_the_same_without_a_stop(fails, limit, before):
    with closing(diaries(fails=fails)) as one, closing(diaries(fails=fails)) as other:
        witness, again = (Witness(one.specs[DEFAULT_BEHAVIOUR]) for _ in range(2))
        first = rolled(one, witness, limit)
        play(first, before)
        state = stored(first.state())
        again.seen = {agent: list(found) for agent, found in witness.seen.items()}
        again.closed = list(witness.closed)
        expected, steps = play(first, 25), first.steps
        second = rolled(other, again, limit)
        assert second.load_state(state) == []
        assert play(second, 25) == expected
        assert (second.steps, again.seen, again.closed) == (steps, witness.seen, witness.closed)


class Together(Both):
    def state(self) -> State:
        return State.joined({str(k): house.state() for k, house in enumerate(self._houses.values())})

    def resume(self, state: State) -> dict[int, str]:
        for k, house in enumerate(self._houses.values()):
            house.resume(state.part(str(k)))
        return {}


@pytest.mark.parametrize("before", [7, 20, 30])
def test_agents_that_come_and_go_of_behaviours_of_any_name(rng, before):
    """``Attentive`` complains about a carry, an action or a row that is not that of its agent."""
    scripts = {name: random_script(rng, 60, 5) for name in ("left/first", "right")}
    told: list[Any] = []
    for stops in (False, True):
        players = {name: Attentive() for name in scripts}
        first, second = (
            LocalCollector(Together(**{k: Guests(s, {0, 2}) for k, s in scripts.items()}), players, players)
            for _ in range(2)
        )
        episodes = play(first, before)
        if stops:
            assert second.load_state(stored(first.state())) == []
            first = second
        episodes += play(first, 60 - before)
        logs = [(player.calls, player.log) for player in players.values()]
        told.append((episodes, logs, first.steps, first.agents))
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
        assert line.startswith("environment 1: ") and why in line
        assert player.closed == [1]
        episodes = play(second, 9)
    assert [(e.agent, e.length) for e in episodes] == [(0, 9), (2, 9), (1, 9)]
    assert second.steps == 3 * (before + 9)
    steps = {agent: [t.step for t in seen] for agent, seen in player.seen.items()}
    all_steps = [t % 9 for t in range(before + 9)]
    assert steps == {0: all_steps, 1: all_steps[:before] + list(range(9)), 2: all_steps}
    assert [k for k, t in enumerate(player.seen[1]) if t.truncated] == [before - 1]


@pytest.mark.parametrize("n", [2, 4])
def test_with_another_number_of_environments_all_episodes_are_closed(n):
    """Also those of agents that are not there any more."""
    with closing(diaries(3)) as one, closing(diaries(n)) as other:
        player = Witness(one.specs[DEFAULT_BEHAVIOUR])
        first = rolled(one, player)
        play(first, 7)
        open_ones = np.flatnonzero(first._groups[DEFAULT_BEHAVIOUR].step > 0).tolist()
        second = rolled(other, player)
        (line,) = second.load_state(stored(first.state()))
        assert line.startswith(f"3 environments became {n}")
        assert player.closed == open_ones and 2 in open_ones and second.steps == 21
        begun = [state.state().arrays["episode"][: min(n, 3)].tolist() for state in (one, other)]
        assert begun[1] == [number + 1 for number in begun[0]]
        play(second, 1)
        assert [player.seen[agent][-1].step for agent in range(n)] == [0] * n and second.steps == 21 + n


@pytest.mark.parametrize("what", ["carry", "number"])
def test_agents_that_are_others_begin_anew(what):
    """The open episodes end, also those of agents that wait."""
    first, house, player = rolled(Guests(TWO, {0, 1}), Attentive()), Guests(TWO, {0, 1}), Attentive()
    play(first, 2)
    if what == "carry":
        player.initial_carry = lambda n: np.zeros((n, 1), np.float32)
        player.stored_carry_shape = (1,)
    (line,) = rolled(house, player, num_envs=3 if what == "number" else None).load_state(
        stored(first.state())
    )
    why = {
        "carry": "default: carry was float32 (2,) and is float32 (1,)",
        "number": "2 environments became 3",
    }
    assert line.startswith(why[what])
    assert sorted(player.closed) == [0, 1]


def test_an_iteration_waits_for_those_it_waited_for():
    rollout = rolled(Guests(TWO, {0, 1}), Attentive())
    one, other = Iteration(rollout), Iteration(rollout)
    mine, its = (Episode(DEFAULT_BEHAVIOUR, agent, 1.0, 1) for agent in range(2))
    assert not one.ends([its])
    other.load_state(stored(one.state()))
    assert not other.ends([]) and other.ends([mine])
