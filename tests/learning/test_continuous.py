"""Does it learn? A task with a known optimum in seconds, Pendulum in minutes."""

import json
from pathlib import Path

import pytest

from main import main

TARGET = """\
default:
  base_config:
    {preset: plain, env_type: GYM, env_name: "tests.lib.toys:Endless-v0", max_step_each_iter: 20,
      max_step: 700}
  nn_config: {q: {dense_n: 32}, policy: {dense_n: 32}}
  replay_config: {capacity: 2000}
  sac_config: {batch_size: 64, start_step: 200, learning_rate: 0.003, gamma: 0.5, clip_epsilon: -1}
  eval_config: {per_step: -1, episodes: 1}
"""


def last_eval(env: str) -> float:
    (result,) = (Path("models") / env).glob("*/result.json")
    return json.loads(result.read_text())["last_eval"]["mean"]


@pytest.mark.parametrize(
    "options",
    [
        pytest.param([], id="default"),
        pytest.param(["sac_config.n_step=3"], id="v-trace", marks=pytest.mark.slow),
        pytest.param(["sac_config.use_priority=false"], id="uniform", marks=pytest.mark.slow),
        pytest.param(["sac_config.ensemble_q_num=3"], id="redq", marks=pytest.mark.slow),
    ],
)
def test_the_best_action_is_found(cwd, options):
    """The reward is −|a − ½|: always ½ gives 0, uniformly random actions −12.5 in 20 steps."""
    (cwd / "target").mkdir()
    (cwd / "target" / "config.yaml").write_text(TARGET)
    overrides = [part for option in options for part in ("-o", option)]
    assert main(["./target", "--seed=1", "--device=cpu", "--quiet", *overrides]) == 0
    assert last_eval("target") > -1.5


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", [1, 2, 3, 4, 5])
def test_pendulum_is_solved(cwd, seed):
    assert main(["gym/pendulum", f"--seed={seed}", "--device=cpu", "--quiet"]) == 0
    assert last_eval("gym/pendulum") >= -200.0
