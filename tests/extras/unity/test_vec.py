from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from algorithm.app.console.base import LineConsole
from algorithm.core.data import Float, StepBatch
from algorithm.core.errors import EnvError, UsageError
from algorithm.core.seeding import episode_seeds
from algorithm.env.base import Fault, StepResult
from algorithm.env.config import UnityArgs
from algorithm.env.request import EnvRequest
from algorithm.extras.unity.player import PlayerEnd, PlayerError
from algorithm.extras.unity.vec import UnityVecEnv
from algorithm.run.experience.collector import LocalCollector
from algorithm.run.experience.faults import Faults
from algorithm.run.experience.non_finite import Drop
from tests.extras.unity.scripted import ScriptedPlayer, Stage, behaviour, crash
from tests.lib.episodes import Scripted

BALL, CUBE = "Ball?team=0", "Cube?team=0"


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    return Stage(monkeypatch)


class Closed:
    """Recorder of the streams that were closed."""

    def __init__(self) -> None:
        self.closed: list[int] = []
        self.steps: list[tuple[int, int]] = []

    def add_steps(self, steps: StepBatch) -> None:
        self.steps += zip(steps.streams.tolist(), steps.start_steps.tolist(), strict=True)

    def close(self, stream: int) -> None:
        self.closed.append(stream)


class Env(UnityVecEnv):
    """With the faults that were survived."""

    def __init__(self, n: int = 1, restarts: int = 3, timeout: float = 5.0, **options: Any) -> None:
        self.faults: list[Fault] = []
        pool = {"timeout": timeout, "restarts": restarts, "on_fault": self.faults.append}
        asked = {"unity": UnityArgs(editor=True), **pool, **options}
        super().__init__(EnvRequest("UNITY", "scene", n=n, seed_of=episode_seeds(1, "train"), **asked))

    def act(self, *values: float, name: str = "Ball", **others: Sequence[float]) -> StepResult:
        """Step with an action for each row of ``name``, by its value; returns the result of ``name``."""
        rows: dict[str, Float] = {key: np.array(own, np.float32)[:, None] for key, own in others.items()}
        return self.step({name: np.array(values, np.float32)[:, None], **rows})[name]


def ball(asking: Sequence[Any], ending: Sequence[Any] = ()) -> dict[str, Any]:
    return {BALL: (asking, ending)}


def _rounded(player: ScriptedPlayer) -> list[list[float]]:
    """Return the actions that a player got for its balls, step by step."""
    return [[round(value, 3) for value in actions[BALL]] for actions in player.actions]


def told(result: StepResult) -> list[tuple[Any, ...]]:
    """Return (id, observation, reward, terminated, truncated) of each row."""
    columns = (
        result.ids,
        result.obs["place"][:, 0],
        result.reward,
        result.terminated,
        result.truncated,
    )
    return list(zip(*(column.tolist() for column in columns), strict=True))


def test_who_is_missing_waits_and_actions_go_to_who_asked(stage: Stage) -> None:
    start = ball([(7, 1, 0), (5, 2, 0)])
    stage.add(start, start, ball([(5, 3, 0.5, True)]), ball([]), ball([(5, 5, 2), (7, 4, 1)]), ball([]))
    env = Env()
    first = env.reset()["Ball"]
    assert first.ids.tolist() == [0, 1] and first.obs["place"].tolist() == [[1], [2]], "7 came first"
    assert told(env.act(0.1, 0.2)) == [(1, 3, 0.5, False, False)]
    assert told(env.act(0.3)) == []
    assert told(env.act()) == [(0, 4, 1, False, False), (1, 5, 2, False, False)]
    env.act(0.4, 0.5)
    expected = [[0.1, 0.2], [0.3], [], [0.5, 0.4]]
    assert _rounded(stage.players[0]) == expected, "in the order of Unity's last message"


def test_an_end_leaves_and_its_number_is_free_afterwards(stage: Stage) -> None:
    start = ball([(0, 1, 0), (1, 2, 0)])
    stage.add(
        start,
        start,
        ball([(1, 3, 0)], [(0, 9, 5, False)]),
        ball([(40, 4, 0), (1, 3, 0)]),
        ball([(1, 6, 0), (0, 5, 7)]),
        ball([]),
    )
    env = Env()
    env.reset()
    result = env.act(0, 0)
    assert told(result) == [(0, 9, 5, True, False), (1, 3, 0, False, False)]
    assert result.left is not None and result.left.tolist() == [True, False]
    assert result.final is not None and result.final.obs["place"][0] == 9
    assert told(env.act(0))[0][:2] == (0, 4), "an object with another id takes the number"
    result = env.act(0, 0)
    assert result.ids.tolist() == [1, 2], "40 waits, and the former agent 0 is a new one"
    assert result.left is None and result.vanished is None and result.final is None


def test_an_end_and_the_next_question_are_one_row(stage: Stage) -> None:
    start = ball([(0, 1, 0)])
    stage.add(start, start, ball([(0, 2, 0.25)], [(0, 8, 3, True)]), ball([]))
    env = Env()
    env.reset()
    result = env.act(0)
    assert told(result) == [(0, 2, 3, False, True)], "the reward is that of the end"
    assert result.left is None
    assert result.final is not None and result.final.obs["place"].tolist() == [[8]]


def test_an_end_without_a_question_is_passed_over(stage: Stage) -> None:
    start = ball([(0, 1, 0)], [(3, 0, 0, False)])
    both = ball([(0, 2, 0), (3, 4, 0)], [(3, 9, 9, False), (4, 9, 9, True)])
    stage.add(start, ball([], [(0, 0, 0, False)]), ball([(0, 1, 0)]), both, ball([]))
    env = Env()
    assert env.reset()["Ball"].ids.tolist() == [], "a reset that is answered by ends alone"
    result = env.act()
    assert result.ids.tolist() == [0]
    result = env.act(0)
    assert told(result) == [(0, 2, 0, False, False), (1, 4, 0, False, False)], "1 has just appeared"
    assert result.final is None and result.left is None


def test_a_reset_is_one_of_a_whole_player(stage: Stage) -> None:
    for k in range(2):
        start = ball([(0, k, 0), (1, k, 0)])
        stage.add(start, start, ball([(1, 5, 0)]), ball([(1, 6, 0)]), ball([]), index=k)
    env = Env(n=2)
    env.reset()
    env.act(0, 0, 0, 0)  # 0 and 2 wait
    first = env.reset([3])["Ball"]
    assert [player.resets for player in stage.players] == [2, 3]
    assert first.ids.tolist() == [2] and first.obs["place"].tolist() == [[6]], "one is not there now"
    assert first.removed is not None and first.removed.tolist() == [3]
    env.act(0.1, 0.2)
    assert [_rounded(player)[-1] for player in stage.players] == [[0.1], [0.2]]


def test_agents_of_a_player_that_fails_vanish_and_another_one_starts(stage: Stage) -> None:
    start = ball([(0, 1, 0), (1, 2, 0)])
    stage.add(start, start, ball([(1, 3, 0)]), crash())
    stage.add(crash("in a reset"))
    stage.add(crash("before it connected"), starts=False)
    stage.add(ball([(0, 4, 0)]), ball([(0, 5, 1)]))
    env = Env()
    env.reset()
    env.act(0, 0)
    result = env.act(0)
    assert told(result) == [(0, 4, 0, False, False)]
    assert result.vanished is not None and result.vanished.tolist() == [0, 1]
    assert told(env.act(0)) == [(0, 5, 1, False, False)]
    assert [fault.what for fault in env.faults] == [
        "the Unity player has ended in a step",
        "the Unity player has ended in a reset",
        "the Unity player has ended before it connected",
    ]
    assert "player 0, start 1, seed" in env.faults[0].line and "\n" not in env.faults[0].line
    assert len(set(stage.seeds)) == 4


@pytest.mark.parametrize(
    ("kind", "starts", "survived"),
    [("hangs", False, True), ("hangs", True, True), ("absent", False, False), ("ended", True, False)],
)
def test_a_first_player_that_hangs_is_survived_and_no_other(
    kind: PlayerEnd, starts: bool, survived: bool, stage: Stage
) -> None:
    stage.add(PlayerError(kind, "it has failed", where="", why="", fix=""), starts=starts)
    stage.add(ball([(0, 1, 0)]))
    if survived:
        env = Env(restarts=1)
        assert env.reset()["Ball"].ids.tolist() == [0]
        assert [fault.what for fault in env.faults] == ["it has failed"]
    else:
        with pytest.raises(PlayerError, match="it has failed"):
            Env(restarts=5)


@pytest.mark.fault("F10")
def test_a_dropped_episode_resets_its_player(stage: Stage) -> None:
    nan, start = float("nan"), ball([(0, 1, 0), (1, 2, 0)])
    stage.add(
        start,
        start,
        ball([(0, nan, 0), (1, 3, 1)]),  # agent 0 is dropped, and agent 1 truncated
        start,
        ball([(0, 5, 0), (1, 5, 1)]),
    )
    env, kept, dropped = Env(), Closed(), Faults(LineConsole(lambda _: None, lambda _: None))
    policy = Scripted(env.specs["Ball"])
    rollout = LocalCollector(env, {"Ball": policy}, {"Ball": kept}, on_non_finite=Drop(dropped))
    (player,) = stage.players
    for _ in range(2):
        rollout.step()
        assert player.resets == 3
    assert kept.steps == [(1, 0), (0, 0), (1, 0)] and kept.closed == [1]
    assert dropped.non_finite == 1


def test_one_failure_too_many_ends_the_run(stage: Stage) -> None:
    start = ball([(0, 1, 0)])
    stage.add(start, start, crash())
    stage.add(start, crash())
    env = Env(restarts=1)
    env.reset()
    env.act(0)
    with pytest.raises(EnvError, match="ended in a step") as raised:
        env.act(0)
    assert "1 failures are tolerated" in raised.value.fix and "log" in raised.value.why
    assert "start 2" in raised.value.where


def test_other_spaces_are_found_when_they_show_up(stage: Stage) -> None:
    both = {BALL: ([(0, 1, 0)], ()), CUBE: ([(1, 2, 0)], ())}
    stage.add(both, both, crash(), specs=[behaviour(), behaviour(CUBE)])
    stage.add(ball([(0, 1, 0)]), both, specs=[behaviour(), behaviour(CUBE, continuous=2)])
    env = Env()
    env.reset()
    env.act(0, Cube=[0])
    with pytest.raises(EnvError, match=r"Cube\?team=0 have changed"):
        env.act(0, Cube=[])


def test_a_behaviour_that_is_named_is_waited_for(stage: Stage) -> None:
    both = {BALL: ([(0, 1, 0)], ()), CUBE: ([(1, 2, 0)], ())}
    stage.add(ball([(0, 1, 0)]), ball([(0, 1, 0)]), both, both, specs=[behaviour(), behaviour(CUBE)])
    env = Env(behaviours=("Cube",))
    assert list(env.specs) == ["Ball", "Cube"]
    assert env.reset()["Cube"].ids.tolist() == [1], "ids are unique over behaviours"


def test_a_behaviour_that_never_comes_and_one_that_comes_late_end_the_run(stage: Stage) -> None:
    start = ball([(0, 1, 0)])
    stage.add(start)
    with pytest.raises(UsageError, match="names 'Cube'") as raised:
        Env(behaviours=("Cube",), timeout=0.05)
    assert BALL in raised.value.why and stage.players[0].closed
    stage.add(start, start, {CUBE: ([(1, 2, 0)], ())}, specs=[behaviour(), behaviour(CUBE)])
    env = Env()
    env.reset()
    with pytest.raises(EnvError, match=r"Cube\?team=0 appeared late") as late:
        env.act(0)
    assert "ma_config: {Cube: {}}" in late.value.fix


@pytest.mark.parametrize(
    ("teams", "named", "expected"),
    [
        (1, (), ["Ball"]),
        (1, ("Ball",), ["Ball"]),
        (1, (BALL,), [BALL]),
        (2, ("Ball",), ["Ball?team=0", "Ball?team=1"]),
    ],
)
def test_a_single_team_is_called_without_its_number(
    teams: int, named: tuple[str, ...], expected: list[str], stage: Stage
) -> None:
    names = [f"Ball?team={k}" for k in range(teams)]
    start = {name: ([(k, 1, 0)], ()) for k, name in enumerate(names)}
    stage.add(start, specs=[behaviour(name) for name in names])
    assert list(Env(behaviours=named).specs) == expected


def test_teams_share_a_behaviour_in_self_play(stage: Stage) -> None:
    blue = "Ball?team=1"
    start = {BALL: ([(0, 1, 0)], ()), blue: ([(1, 2, 0)], ())}
    then = {BALL: ([(0, 3, 0.5)], ()), blue: ((), [(1, 4, -1, False)])}
    stage.add(start, start, then, specs=[behaviour(BALL), behaviour(blue)])
    env = Env(teams=True, behaviours=("Ball",))
    assert list(env.specs) == ["Ball"]
    first = env.reset()["Ball"]
    assert [env.team_of(agent) for agent in first.ids.tolist()] == [0, 1]
    result = env.act(0.25, -0.5)
    assert stage.players[0].actions == [{BALL: [0.25], blue: [-0.5]}]
    assert (result.ids.tolist(), result.reward.tolist()) == ([0, 1], [0.5, -1])
    assert result.left is not None and result.left.tolist() == [False, True]
    assert env.team_of(1) == 1, "which is asked for when it has left"


def test_teams_with_other_sensors_cannot_share(stage: Stage) -> None:
    blue = "Ball?team=1"
    stage.add(
        {BALL: ([(0, 1, 0)], ()), blue: ([(1, 2, 0)], ())}, specs=[behaviour(BALL), behaviour(blue, size=2)]
    )
    with pytest.raises(UsageError, match="the teams of Ball cannot share a policy"):
        Env(teams=True)
    assert stage.players[0].closed


def test_a_resumed_run_ends_all_saved_episodes(stage: Stage) -> None:
    """With the collector: rows, waiting agents and streams fit, and ended episodes are closed."""
    start = ball([(0, 1, 0), (1, 2, 0), (2, 3, 0)])
    stage.add(start, start, ball([(1, 3, 0), (2, 3, 0)]), ball([(1, 4, 0)]))
    saved = _collector(Env(), Closed())
    saved.step()  # 0 waits
    state = saved.state()
    fresh = ball([(0, 1, 0)])
    stage.add(fresh, fresh, ball([(2, 5, 0), (1, 6, 0), (3, 7, 0)]), ball([(3, 8, 0)]), ball([(0, 9, 0)]))
    recorder = Closed()
    resumed = _collector(Env(since=5), recorder)
    (line,) = resumed.load_state(state)
    assert line == "environment 0: a player cannot be set back; its open episode ends as truncated"
    assert sorted(recorder.closed) == [1, 2], "agent 0 has no stored transition"
    resumed.step()
    assert {agent for _, agent in resumed.agents} == {3, 4, 5}, "new ones, of which two wait"
    resumed.step()
    assert {agent for _, agent in resumed.agents} == {0, 3, 4, 5}, "the numbers are free again"
    assert stage.seeds[0] != stage.seeds[1]


def test_the_players_of_agents_are_named_by_their_own_numbers(stage: Stage) -> None:
    both = ball([(0, 1, 0), (1, 2, 0)])
    for _ in range(2):
        for index in range(2):
            stage.add(both, both, index=index)
    saved = _collector(Env(2), Closed(), num_envs=2)
    (line,) = _collector(env := Env(2), Closed(), num_envs=2).load_state(saved.state())
    assert line == "environments 0, 1: a player cannot be set back; their open episodes end as truncated"
    agents = sorted(env.reset()["Ball"].ids.tolist())
    assert [env.environments_of([agent]) for agent in agents] == [[0], [0], [1], [1]]


def _collector(env: UnityVecEnv, recorder: Closed, *, num_envs: int = 1) -> LocalCollector:
    policy = Scripted(env.specs["Ball"])
    return LocalCollector(env, {"Ball": policy}, {"Ball": recorder}, num_envs=num_envs)
