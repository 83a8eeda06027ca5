"""Do curiosity and hindsight lead where nothing else does? Corridor and bits, in seconds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from algorithm.env.toys.bits import ToyBits
from algorithm.env.toys.corridor import ToyCorridor
from main import main


@pytest.mark.slow
@pytest.mark.parametrize(("section", "least", "most"), [("default", 5, 35), ("curiosity", 50, 60)])
def test_curiosity_covers_the_corridor(tmp_path, monkeypatch, section, least, most):
    """Twelve episodes: a walk at random gets to some thirty of sixty cells at best."""
    made, make = [], ToyCorridor.__init__

    def watched(self: ToyCorridor, *args: int, **kwargs: int) -> None:
        make(self, *args, **kwargs)
        made.append(self)

    monkeypatch.setattr(ToyCorridor, "__init__", watched)
    monkeypatch.chdir(tmp_path)
    options = ["-o", "base_config.max_step=1500", "-o", "eval_config.per_step=1500"]
    assert main(["toy/corridor", "-c", section, "--seed=1", "--device=cpu", "--quiet", *options]) == 0
    training = max(made, key=lambda env: env.visited.sum())
    assert training.visited.sum() > 1000
    assert least <= training.coverage <= most


@pytest.mark.slow
@pytest.mark.parametrize(("section", "least", "most"), [("default", -7, -5), ("no_hindsight", -12, -11)])
def test_hindsight_flips_the_right_bits(tmp_path, monkeypatch, section, least, most):
    """Random flips reach the goal in one of 700 episodes, of which there are some 400."""
    monkeypatch.chdir(tmp_path)
    options = ["-o", "base_config.max_step=5000", "-o", "eval_config.per_step=5000"]
    assert main(["toy/bits", "-c", section, "--seed=1", "--device=cpu", "--quiet", *options]) == 0
    (result,) = Path("models/toy/bits").glob("*/result.json")
    reached = json.loads(result.read_text())["last_eval"]["mean"]
    assert ToyBits.optimum == -5 and least <= reached <= most
