"""Draws of a study follow from its database, its seed and their number; nothing else is remembered."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from sqlalchemy import event
from sqlalchemy.engine import Engine

from algorithm.core.errors import StorageError
from algorithm.extras.tune.optimiser import Optimiser
from algorithm.extras.tune.records import DATABASE, TrialRecord
from tests.extras.tune.conftest import LEARNING_RATE, Made

Make = Callable[..., Made]
SEVERAL = {
    **LEARNING_RATE,
    "sac_config.n_step": {"in": [1, 3, 5]},
    "nn_config.policy.dense_depth": {"truncated": [1, 3], "step": 1},
}


def _trial(optimiser: Optimiser) -> dict[str, object]:
    record = optimiser.ask()
    _tell(optimiser, record)
    return dict(record.values)


def _tell(optimiser: Optimiser, record: TrialRecord) -> None:
    x, n = (record.values.get(f"sac_config.{key}", 0.5) for key in ("learning_rate", "n_step"))
    assert isinstance(x, float) and isinstance(n, int | float)
    optimiser.end(record.number, "complete", score=-((x - 0.3) ** 2) - 0.01 * n)


@pytest.mark.parametrize("sampler", ["tpe", "random"])
def test_a_study_opened_before_each_draw_draws_the_same(made: Make, sampler: str) -> None:
    whole, again = (made(name, params=SEVERAL, sampler=sampler, startup=4) for name in "ab")
    optimiser = whole.optimiser()
    drawn = [_trial(optimiser) for _ in range(10)]
    assert [_trial(again.optimiser()) for _ in range(10)] == drawn
    assert len({json.dumps(one) for one in drawn}) == 10
    depths = {one["nn_config.policy.dense_depth"] for one in drawn}
    assert depths <= {1, 2, 3} and all(isinstance(depth, int) for depth in depths)


def test_choices_of_any_kind_come_back_as_they_were(made: Make) -> None:
    choices = [None, "auto", 1, 1.5, True, [64, 64]]
    study = made(params={"nn_config.policy.what": {"in": choices}}, sampler="random")
    drawn = [_trial(study.optimiser())["nn_config.policy.what"] for _ in range(30)]
    assert all(one in choices for one in drawn) and {type(one) for one in drawn} >= {str, list, float}


@pytest.mark.parametrize("sampler", ["tpe", "random"])
def test_a_kill_between_any_two_transactions_changes_no_draw(made: Make, sampler: str) -> None:
    params = {"sac_config.n_step": {"in": [1, 3, 5]}, "sac_config.batch_size": {"in": [16, 64, 256]}}
    settings = {"params": params, "sampler": sampler, "startup": 1}
    whole, states = made(**settings), dict[bytes, None]()

    def keep(_: object) -> None:
        states[(whole.run.path / DATABASE).read_bytes()] = None

    event.listen(Engine, "begin", keep)
    try:
        drawn = [_trial(whole.optimiser()) for _ in range(3)]
    finally:
        event.remove(Engine, "begin", keep)
    assert len(states) > 10
    for number, state in enumerate(states):
        killed = made(f"killed_{number}", **settings)
        (killed.run.path / DATABASE).write_bytes(state)
        optimiser = killed.optimiser()
        for one in optimiser.trials:  # asked, and not told
            if one.state == "running":
                _tell(optimiser, one)
        while len(optimiser.trials) < 3:
            _trial(optimiser)
        assert [dict(one.values) for one in optimiser.trials] == drawn, f"killed in transaction {number}"


def test_a_report_counts_once(made: Make) -> None:
    optimiser = made().optimiser()
    optimiser.ask()
    for value in (1.0, 2.0, float("nan")):
        optimiser.report(1, 100, value)
    assert optimiser.trials[0].reports == {100: 1.0}


def test_a_damaged_database_is_named(made: Make) -> None:
    study = made()
    for _ in range(3):
        _trial(study.optimiser())
    database = study.run.path / DATABASE
    whole = database.read_bytes()
    for damaged in (b"no database", whole[:4096] + bytes(4096) + whole[8192:], whole[: len(whole) // 2]):
        database.write_bytes(damaged)
        with pytest.raises(StorageError, match="the database of a study cannot be used") as caught:
            study.optimiser()
        assert caught.value.where == str(database) and caught.value.why and caught.value.fix


def test_a_full_disk_is_named(made: Make) -> None:
    optimiser = made().optimiser()
    optimiser.ask()
    full = "PRAGMA max_page_count = 1"  # no page more than there are
    event.listen(optimiser._storage.engine, "connect", lambda connection, _: connection.execute(full))
    with pytest.raises(StorageError, match="the database of a study cannot be used") as caught:
        for step in range(2000):
            optimiser.report(1, step, 1.0)
    assert "full" in caught.value.why and caught.value.exit_code == 6
    with pytest.raises(StorageError):
        for _ in range(500):
            optimiser.ask()
