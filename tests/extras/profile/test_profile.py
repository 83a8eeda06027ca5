"""The profile of a training: two tables of a few seconds each, and the shares of the whole."""

from __future__ import annotations

import numpy as np
import torch

from algorithm.core.errors import StorageError
from algorithm.extras.profile import profile as module
from algorithm.extras.profile.profile import TrainingProfile
from main import main


class Heard:
    def __init__(self):
        self.said, self.warned = [], []

    def message(self, text):
        self.said.append(text)

    def warn(self, text):
        self.warned.append(text)


class Seconds:
    """A clock that goes on by one with each step of the loop."""

    now = 0.0

    def __call__(self):
        return self.now


def loop(profile, clock, updates_of):
    for updates in updates_of:
        torch.ones(4, 4) @ torch.ones(4, 4)
        np.linalg.norm(np.ones(3))
        clock.now += 1.0
        profile.step(updates)


def test_operators_then_functions_are_measured_once_updates_are_made(tmp_path):
    clock, console = Seconds(), Heard()
    profile = TrainingProfile(tmp_path / "profile.txt", console, seconds=3.0, clock=clock)
    loop(profile, clock, (0, 0, 0, 5, 10, 15, *range(16, 30)))
    profile.finish("update 60% · act 40%")
    operators, functions = (tmp_path / "profile.txt").read_text().split("Functions of Python, over 3.0 s")
    assert "update 60% · act 40%" in operators and "Operators of torch, over 3.0 s" in operators
    assert "aten::mm" in operators and "linalg" in functions
    assert console.said == [f"where the time went: {tmp_path / 'profile.txt'}"] and not console.warned


def test_an_evaluation_is_in_no_table(tmp_path):
    clock = Seconds()
    profile = TrainingProfile(tmp_path / "profile.txt", Heard(), seconds=3.0, clock=clock)
    loop(profile, clock, range(6))
    profile.interrupt()
    torch.ones(4).sort()
    clock.now += 50.0
    loop(profile, clock, range(8, 20))
    profile.finish("")
    text = (tmp_path / "profile.txt").read_text()
    assert "aten::sort" not in text and "Operators of torch, over 1.0 s" in text


def test_a_full_disk_is_a_warning(tmp_path, monkeypatch):
    def full(path, text):
        raise StorageError("no space left", where=path)

    monkeypatch.setattr(module, "write_text", full)
    console = Heard()
    TrainingProfile(tmp_path / "profile.txt", console).finish("")
    assert console.warned and not console.said


def test_a_trainer_interrupts_its_profile_for_each_evaluation(tmp_path, monkeypatch, capsys):
    interrupted = []
    monkeypatch.setattr(TrainingProfile, "interrupt", lambda profile: interrupted.append(profile))
    monkeypatch.chdir(tmp_path)
    keys = ("sac_config.start_step=20", "sac_config.batch_size=8", "eval_config.per_step=20")
    flags = [word for key in (*keys, "eval_config.episodes=1") for word in ("-o", key)]
    assert main(["Pendulum-v1", "--max_step=60", "--profile", "--device=cpu", *flags]) == 0, (
        capsys.readouterr()
    )
    assert len(interrupted) >= 3
