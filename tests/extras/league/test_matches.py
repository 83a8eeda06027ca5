"""``--play_against``: who wins, by the numbers of games that are known, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from algorithm.env.config import PettingZooArgs
from algorithm.env.registry import make_vec_env
from algorithm.env.request import EnvRequest
from algorithm.extras.league.anchors import UniformPolicy
from algorithm.extras.league.contests import Contest, Entrant, MatchScore
from main import main
from tests.extras.league.toys_teams import HigherNumber
from tests.extras.short_run import exit_code

ENV = "tests.extras.league.toys_teams:HigherNumber"


class Always(Entrant):
    """Chooses the number that is its name."""

    def policies(self, specs: Mapping[str, Any], purpose: str, *, greedy: bool) -> Mapping[str, Any]:
        rng, choice = np.random.default_rng(0), int(self.name)
        return {name: Constant(spec, rng, choice) for name, spec in specs.items()}


class Constant(UniformPolicy):
    def __init__(self, spec: Any, rng: np.random.Generator, choice: int) -> None:
        super().__init__(spec, rng)
        self.choice = choice

    def act(self, obs: Any, prev_action: Any, carry: Any, action_mask: Any) -> Any:
        assert len(action_mask), "asked without an agent"
        mask = np.zeros_like(action_mask)
        mask[:, self.choice] = True
        return super().act(obs, prev_action, carry, mask)


def games(limit: int = 10, **args: Any) -> Contest:
    env = HigherNumber(EnvRequest(ENV, "cards", env_args=args, seed_of=lambda i, k: k))
    return Contest(env, limit, stop=lambda: False, greedy=False)


@pytest.mark.parametrize("in_turn", [False, True])
@pytest.mark.parametrize("length", [1, 3])
def test_the_higher_number_wins_and_chance_wins_its_share(in_turn: bool, length: int) -> None:
    table = games(in_turn=in_turn, length=length)
    score = table.score(Always("2"), Always("1"), 10)
    assert score == MatchScore(first="2", second="1", won=10, drawn=0, lost=0)
    assert table.score(Always("0"), Always("1"), 10) == MatchScore(
        first="0", second="1", won=0, drawn=0, lost=10
    )
    assert table.score(Always("1"), Always("1"), 10) == MatchScore(
        first="1", second="1", won=0, drawn=10, lost=0
    )
    by_chance = table.score(Entrant("random"), Always("2"), 300)
    assert by_chance is not None and by_chance.won == 0
    assert by_chance.drawn == pytest.approx(300 / 3**length, abs=40)


def test_both_have_the_better_seat_equally_often() -> None:
    assert games(bonus=1).score(Always("1"), Always("1"), 7) == MatchScore(
        first="1", second="1", won=4, drawn=0, lost=4
    )
    table = games(bonus=1, teams=4, in_turn=True)
    assert table.score(Always("1"), Always("1"), 8) == MatchScore(
        first="1", second="1", won=2, drawn=0, lost=6
    )


@pytest.mark.parametrize("length_limit", [100, 5])
def test_a_game_of_team_mates_counts_once_and_one_that_is_cut_off_is_drawn(length_limit: int) -> None:
    """Rewards are positive, so whoever is shown wins; the team of two ends at different times."""
    request = EnvRequest(
        "PETTINGZOO",
        "tests.extras.toys_games:Crowd",
        env_args={"alike": True},
        pettingzoo=PettingZooArgs(share={"*": "all_of_them"}, teams={"red_*": 0, "blue": 1}),
        seed_of=lambda i, k: k,
    )
    contest = Contest(make_vec_env(request), length_limit, stop=lambda: False, greedy=False)
    score = contest.score(Entrant("random"), Entrant("random"), 40)
    assert score is not None and score.games == 40 and score.lost == 0
    assert (score.drawn == 0) == (length_limit == 100)


def test_random_players_differ() -> None:
    score = games().score(Entrant("random"), Entrant("random"), 300)
    assert score is not None
    assert [score.won, score.drawn, score.lost] == pytest.approx([100, 100, 100], abs=35)


def test_a_share_has_the_interval_of_wilson() -> None:
    few = MatchScore(first="a", second="b", won=0, drawn=0, lost=10)
    assert few.interval == pytest.approx((0.0, 0.27754), abs=1e-5)
    many = MatchScore(first="a", second="b", won=61, drawn=4, lost=35)
    assert many.interval == pytest.approx((0.51202, 0.69992), abs=1e-3)
    assert many.text == "won 61 % [51, 70], drawn 4 %, lost 35 %, 100 games"


def test_games_without_an_end_are_drawn() -> None:
    assert games(length=0).score(Always("2"), Always("1"), 2) == MatchScore(
        first="2", second="1", won=0, drawn=2, lost=0
    )


TASK = """
default:
  base_config:
    {env_type: "tests.extras.league.toys_teams:HigherNumber", env_name: cards, n_envs: 2, max_step: 120}
  nn_config: {q: {dense_n: 8}, policy: {dense_n: 8}}
  replay_config: {capacity: 1000}
  sac_config: {start_step: 40, batch_size: 16, save_model_per_step: 60, write_summary_per_step: 60}
  eval_config: {per_step: 120, episodes: 2}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two runs of a task, and one of the task with other choices."""
    folder = tmp_path_factory.mktemp("matches")
    (folder / "cards").mkdir()
    (folder / "cards" / "config.yaml").write_text(TASK)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for what in ("summaries.plot_curve", "summaries.write_report"):
            patch.setattr(f"algorithm.app.{what}", lambda *_, **__: None)
        for name, more in (("one", []), ("two", ["--seed=2"]), ("wide", ["--env_args=choices=4"])):
            assert main(["./cards", "-n", name, "--quiet", "--device=cpu", *more]) == 0
    return folder


def test_every_pair_plays_and_the_scores_are_written(folder: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.chdir(folder)
    words = ["./cards", "--play_against", "one", "models/cards/two:60", "random", "--eval", "20"]
    assert main(words) == 0
    shown = capsys.readouterr().out
    assert "one against models/cards/two:60" in shown and "two:60 against random" in shown
    written = json.loads((folder / "models" / "cards" / "one" / "matches.json").read_text())
    assert written["acting"] == "sampled" and len(written["matches"]) == 3
    for match in written["matches"]:
        assert match["won"] + match["drawn"] + match["lost"] == 20
        assert match["ci95"][0] <= match["won"] / 20 <= match["ci95"][1]
    assert main([*words, "--quiet"]) == 0
    again = json.loads((folder / "models" / "cards" / "one" / "matches.json").read_text())
    assert again == written, "games have seeds"


def test_a_run_may_meet_itself_at_another_step_without_sampling(folder: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(folder)
    assert main(["./cards", "--play_against", "one:60", "one:best", "--disable_sample", "--eval=4"]) == 0
    written = json.loads((folder / "models" / "cards" / "one" / "matches.json").read_text())
    (match,) = written["matches"]
    assert written["acting"] == "deterministic" and (match["first"], match["second"]) == (
        "one:60",
        "one:best",
    )
    assert 4 in (match["won"], match["drawn"], match["lost"]), "each game is the same"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["one"], "a game is between two"),
        (["random", "random"], "one of them must be a run"),
        (["one", "absent"], "there is no run 'absent'"),
        (["one", "two:last"], "'last' is not a checkpoint"),
        (["one", "two:61"], "use one of them: --play_against two:120"),
        (["one", "wide"], "other observations or actions"),
        (
            ["one", "two", "-o", "base_config.env_args={one_team: true}"],
            "needs two teams, and only one has acted",
        ),
        (["one", "two", "-n", "one"], "leave -n out"),
        (["one", "two", "--run"], "cannot be combined"),
    ],
)
def test_matches_that_cannot_be_are_refused(
    folder: Path, monkeypatch: Any, capsys: Any, words: list[str], told: str
) -> None:
    monkeypatch.chdir(folder)
    code = exit_code(["./cards", "--play_against", *words])
    assert code in (2, 4, 6) and told in capsys.readouterr().err


def test_environments_without_teams_have_no_matches(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["CartPole-v1", "-n", "alone", "--max_step=4", "--device=cpu"]) == 0
    assert main(["CartPole-v1", "--play_against", "alone", "random"]) == 2
    assert "GYM environments have no teams" in capsys.readouterr().err
