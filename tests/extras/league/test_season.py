"""Tests of the opponents of self-play: Elo's ratings, the pool of past policies, and resume."""

from __future__ import annotations

import json
from typing import Any, cast

import numpy as np
import pytest
from torch import nn

from algorithm.agents.base import Agent
from algorithm.agents.roles import Acting, ExploringPolicy
from algorithm.config.extras_config import SelfPlayConfig
from algorithm.core.data import State
from algorithm.core.errors import EnvError
from algorithm.extras.league.season import Season, expected_score


class Weight:
    """An agent, and its opponents' policy, with a single weight."""

    def __init__(self) -> None:
        self.part = nn.Linear(1, 1, bias=False)
        self.draws = 0

    def acting_parts(self) -> dict[str, nn.Module]:
        return {"policy": self.part}

    def set(self, value: float) -> None:
        nn.init.constant_(self.part.weight, value)

    @property
    def value(self) -> float:
        return self.part.weight.item()

    def state(self) -> State:
        return State(meta={"draws": self.draws})

    def load_state(self, state: State) -> None:
        self.draws = state.meta["draws"]


class Played:
    """A season of one behaviour, ``player``, between teams 0 and 1."""

    def __init__(self, **keys: float) -> None:
        values: dict[str, Any] = {"window": 3, "save_steps": 10, "swap_steps": 5, **keys}
        self.agent, self.opponent = Weight(), Weight()
        self.agent.set(0.0)
        agent, policy = cast(Agent, self.agent), cast(ExploringPolicy, self.opponent)
        acting = {"player": Acting(policy, {"policy": self.opponent.part})}
        self.season = Season(SelfPlayConfig(**values), {"player": agent}, acting, np.random.default_rng(1))
        for team in (0, 1):
            self.season.meet(team)

    def steps(self, n: int) -> list[float]:
        """Take n steps; the agent's weight is their number. Return the opponents' weight after each swap."""
        met = []
        for _ in range(n):
            self.agent.set(self.agent.value + 1.0)
            if self.season.advance({"player": 1}, playing=True):
                met.append(self.opponent.value)
        return met


def test_a_game_moves_the_rating_by_elo_s_rule() -> None:
    assert expected_score(1600.0, 1200.0) == pytest.approx(10 / 11)
    assert expected_score(1000.0, 1200.0) + expected_score(1200.0, 1000.0) == pytest.approx(1.0)
    season = Played().season
    assert season.rate("player", ["player"], 1.0) == {"elo": 1208.0}
    assert season.rate("player", ["player"], 0.5)["elo"] == pytest.approx(
        1208.0 + 16.0 * (0.5 - 1.0 / (1.0 + 10.0 ** (-8.0 / 400.0)))
    )


def test_past_policies_are_kept_as_they_were_and_the_oldest_go() -> None:
    played = Played(play_against_latest_model_ratio=0.0)
    assert played.opponent.value == 0.0, "the untrained policy plays first"
    met = played.steps(60)
    assert len(met) == 12
    assert set(met[:2]) <= {0.0, 10.0}
    assert met[-2] in (0.0, 30.0, 40.0, 50.0) and met[-1] in (0.0, 40.0, 50.0, 60.0)
    assert set(Played(play_against_latest_model_ratio=0.0, window=1, swap_steps=1).steps(400)[-60:]) == {
        0.0,
        *(float(step) for step in range(340, 401, 10)),
    }, "the untrained one stays"
    assert len(set(met)) > 3


def test_the_newest_policy_is_drawn_as_often_as_asked() -> None:
    newest = Played(play_against_latest_model_ratio=1.0, swap_steps=1, save_steps=1000)
    assert newest.steps(50) == [float(step) for step in range(1, 51)]
    half = Played(play_against_latest_model_ratio=0.5, swap_steps=1, save_steps=10_000)
    met = half.steps(2000)
    share = sum(value == step for step, value in enumerate(met, 1)) / len(met)
    assert share == pytest.approx(0.5, abs=5 * (0.25 / len(met)) ** 0.5)


def test_an_opponent_has_the_rating_that_it_had() -> None:
    played = Played(play_against_latest_model_ratio=1.0)
    played.season.rate("player", ["player"], 1.0)
    played.steps(5)  # the newest policy becomes the opponent, with 1208
    assert played.season.rate("player", ["player"], 0.5)["elo"] == pytest.approx(1208.0)


def test_teams_learn_in_turn() -> None:
    played = Played(team_change=7)
    turns = []
    for _ in range(21):
        played.steps(1)
        turns.append(played.season.team)
    assert turns == [0] * 6 + [1] * 7 + [0] * 7 + [1]


def test_a_team_that_never_acts_is_reported() -> None:
    played = Played(team_change=7)
    played.season.begin()
    played.season.meet(0)
    with pytest.raises(EnvError, match="only one has acted"):
        played.steps(7)


def test_a_resumed_season_goes_on_with_the_same_bits() -> None:
    through, resumed = Played(), Played()
    through.season.rate("player", ["player"], 1.0)
    through.steps(33)
    through.opponent.draws = 5
    state = through.season.state()
    state = State({k: v.copy() for k, v in state.arrays.items()}, json.loads(json.dumps(state.meta)))
    resumed.season.load_state(state)
    resumed.agent.set(33.0)
    assert (resumed.opponent.draws, resumed.opponent.value) == (5, through.opponent.value)
    assert resumed.steps(70) == through.steps(70)
    assert resumed.season.team == through.season.team
    score = ("player", ["player"], 0.0)
    assert resumed.season.rate(*score) == through.season.rate(*score)
