"""Do curiosity and hindsight lead where nothing else does? Corridor and bits, in seconds."""

import json
from pathlib import Path

import pytest

from algorithm.env.toys.exploration import ToyCorridor
from main import main
from tests.lib.callbacks import watch


@pytest.mark.slow
@pytest.mark.parametrize(("section", "least", "most"), [("default", 5, 35), ("curiosity", 50, 60)])
def test_curiosity_covers_the_corridor(cwd, monkeypatch, section, least, most):
    """Twelve episodes: a walk at random gets to some thirty of sixty cells at best."""
    made: list[ToyCorridor] = []
    watch(monkeypatch, ToyCorridor, "__init__", lambda self, *_, **__: made.append(self))
    options = ["-o", "base_config.max_step=1500", "-o", "eval_config.per_step=1500"]
    assert main(["toy/corridor", "-c", section, "--seed=1", "--device=cpu", "--quiet", *options]) == 0
    training = max(made, key=lambda env: env.visited.sum())
    assert training.visited.sum() > 1000
    assert least <= training.coverage <= most


@pytest.mark.slow
@pytest.mark.parametrize(("section", "least", "most"), [("default", -4, -3), ("no_hindsight", -8, -7)])
def test_hindsight_flips_the_right_bits(cwd, section, least, most):
    """The best policy gets −3 with eight bits, a failure −8; random flips reach one goal of fifty."""
    keys = {
        "base_config": ["env_args.bits=8", "env_args.max_episode_steps=8", "max_step=2500"],
        "sac_config": ["batch_size=128", "start_step=500"],
        "eval_config": ["per_step=2500"],
    }
    options = [word for block, values in keys.items() for one in values for word in ("-o", f"{block}.{one}")]
    assert main(["toy/bits", "-c", section, "--seed=1", "--device=cpu", "--quiet", *options]) == 0
    (result,) = Path("models/toy/bits").glob("*/result.json")
    assert least <= json.loads(result.read_text())["last_eval"]["mean"] <= most
