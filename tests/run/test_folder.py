"""A run's folder while it trains: what somebody else does to it costs no more than they have taken."""

from __future__ import annotations

import pytest

from algorithm.core.errors import EnvError
from algorithm.train.reporter import Reporter
from algorithm.train.trainer import Trainer
from tests.run.sessions import run


@pytest.mark.fault("F39")
def test_a_run_without_its_configuration_keeps_everything_else(task, monkeypatch):
    def fails(self: Trainer) -> None:
        (task / "a/config.yaml").unlink()
        raise EnvError("the simulator is gone")

    monkeypatch.setattr(Trainer, "_evaluate", fails)  # the checkpoint of step 200 comes after it
    assert run("--seed=1", "-n", "a", "-o", "sac_config.save_model_per_step=150") == 4
    assert (task / "a/checkpoints/step_000000150/model.safetensors").is_file()
    assert (task / "a/metrics.csv").is_file() and (task / "a/train.log").is_file()


@pytest.mark.fault("F39")
def test_a_folder_that_is_moved_while_it_trains_ends_the_run_and_is_not_made_again(task, monkeypatch, capsys):
    write = Reporter.summary

    def moves(self: Reporter) -> None:
        write(self)
        if (task / "a").exists():
            (task / "a").rename(task / "b")

    monkeypatch.setattr(Reporter, "summary", moves)
    assert run("--seed=1", "-n", "a") == 6
    said = capsys.readouterr().err
    assert "the run's folder is not there any more" in said and "--resume" in said
    assert not (task / "a").exists()
    assert (task / "b/config.yaml").is_file() and (task / "b/metrics.csv").is_file()
