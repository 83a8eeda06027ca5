"""An episode with a number that is not finite, written down and seen again."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from algorithm.config.schema import BaseConfig, Config
from algorithm.env.base import Trace
from algorithm.env.registry import make_vec_env
from algorithm.errors import NumericalError, StorageError
from algorithm.run.failure_dump import LIMIT, Repro, Repros, main, replay
from algorithm.run.non_finite import Stop
from algorithm.run.rollout import Rollout
from algorithm.run.seeding import episode_seeds
from algorithm.sac.actor import ActorOutput
from tests.toys_numbers import LENGTH

pytestmark = pytest.mark.fault("F10")

SEEDS = episode_seeds(3, "train")
CONFIG = Config(base_config=BaseConfig(env_type="GYM", env_name="Pendulum-v1"))
NUMBERS = "tests.toys_numbers:Numbers-v0"


def meet(folder: Path, *, n: int = 2, env_name: str = NUMBERS, **base: Any) -> tuple[NumericalError, Path]:
    """Run into a number that is not finite; the error, and the file it names."""
    keys = BaseConfig(env_type="GYM", env_name=env_name, **base)
    options = {"colour": "red"}
    repros = Repros(folder / "faults", Config(base_config=keys, reset_config=options))
    env = make_vec_env(
        "GYM",
        env_name,
        env_args=keys.env_args,
        n=n,
        seed_of=SEEDS,
        options=options,
        wrappers=keys.wrappers,
    )
    player = Playing()
    with pytest.raises(NumericalError) as caught:
        rollout = Rollout(env, {"default": player}, on_non_finite=Stop(repros))
        for _ in range(4 * LENGTH):
            rollout.step()
    env.close()
    named = re.search(r"algorithm\.run\.failure_dump (\S+)", str(caught.value))
    assert named, str(caught.value)
    return caught.value, Path(named[1])


class Playing:
    """Acts on the step of the episode alone, which its carry counts."""

    stored_carry_shape = (1,)

    def initial_carry(self, n: int) -> np.ndarray:
        return np.zeros((n, 1), np.float32)

    def act(self, obs, prev_action, carry, action_mask) -> ActorOutput:
        z = 0.2 + 0.1 * carry
        return ActorOutput(action=np.tanh(z), z=z, behaviour_logp=0.0 * carry, carry=carry + 1)


def read(path: Path) -> Mapping[str, Any]:
    return json.loads(path.read_text())


CASES = [
    (SEEDS(1, 0), 3, "reward", "nan"),  # midway
    (SEEDS(1, 1), 2, "obs", "inf"),  # in the second episode
    (SEEDS(1, 0), LENGTH, "obs", "-inf"),  # where the episode ends, after which another one has begun
    (SEEDS(1, 0), LENGTH, "reward", "nan"),
    (SEEDS(1, 0), 0, "obs", "nan"),  # the very first observation
    (SEEDS(1, 2), 0, "obs", "nan"),  # the first one after an end
]


@pytest.mark.parametrize("event", CASES)
def test_the_same_number_is_met_again(tmp_path, event):
    seed, step, place, number = event
    _, path = meet(tmp_path, env_args={"events": [event]})
    repro = Repro.read(path)
    assert (repro.copy_index, repro.seed, repro.episode_step, repro.value) == (1, seed, step, number)
    assert repro.seed == SEEDS(1, repro.episode) and repro.agent == 1
    assert repro.what == ("reward" if place == "reward" else "observation 'obs'[1]")
    assert len(repro.actions) == len(repro.env_actions) == step
    lines: list[str] = []
    assert replay(repro, lines.append)
    (line,) = lines
    assert line.startswith(f"step {step}, after action ") and line.endswith(f"is {number}")


def test_the_file_says_all_that_is_needed(tmp_path):
    event = (SEEDS(0, 0), 2, "reward", "nan")
    wrappers = ({"TimeLimit": {"max_episode_steps": 50}},)
    _, path = meet(tmp_path, env_args={"events": [event]}, wrappers=wrappers)
    assert path.parent == tmp_path / "faults" and path.name == "non_finite_2.json"
    found = read(path)
    assert found["env_type"] == "GYM" and found["env_name"] == NUMBERS
    assert found["env_args"] == {"events": [list(event)]} and found["wrappers"] == list(wrappers)
    assert found["reset_config"] == {"colour": "red"}
    assert found["environment_step"] == 2
    flat, own = np.array(found["actions"]), np.array(found["env_actions"])
    np.testing.assert_allclose(own, -1.0 + 2.0 * flat, rtol=1e-6)  # of a Box from −3 to 1
    np.testing.assert_allclose(flat[:, 0], np.tanh([0.2, 0.3]), rtol=1e-6)


def test_the_simulators_own_means_show_it_too(tmp_path):
    """As the documentation says: a reset with the seed, then ``env_actions`` one after the other."""
    import gymnasium as gym

    _, path = meet(tmp_path, env_args={"events": [(SEEDS(0, 1), 3, "obs", "inf")]})
    found = read(path)
    env = gym.make(found["env_name"], **found["env_args"])
    env.reset(seed=found["seed"], options=found["reset_config"])
    for action in found["env_actions"]:
        obs, *_ = env.step(np.array(action, np.float32))
    assert np.isinf(obs[1])


@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
def test_wrappers_are_put_around_again(tmp_path):
    wrappers = ({"tests.run.test_rollout:Glitch": {"number": float("1e39"), "place": "reward"}},)
    _, path = meet(tmp_path, env_args={"events": []}, wrappers=wrappers)
    assert Repro.read(path).value == "inf"  # in float32
    assert replay(Repro.read(path), print)


def test_the_command_shows_it_and_says_whether_it_came_again(tmp_path, capsys):
    _, path = meet(tmp_path, env_args={"events": [(SEEDS(0, 0), 2, "reward", "nan")]})
    assert main([str(path)]) == 0
    said = capsys.readouterr().out
    assert "step 2, after action [" in said and "reward is nan" in said and "the same number" in said
    changed = read(path) | {"env_args": {"events": []}}
    path.write_text(json.dumps(changed))
    assert main([str(path)]) == 1
    assert "did not come again" in capsys.readouterr().out


@pytest.mark.parametrize(("text", "said"), [
    ("{}", "what is missing or not what a run writes there"),
    ('{"version": 2}', "version is missing or not what a run writes there"),
    ("not json", "a JSON file is damaged"),
    (None, "No such file"),
])  # fmt: skip
def test_what_is_no_repro_is_refused(tmp_path, capsys, text, said):
    path = tmp_path / "x.json"
    if text is not None:
        path.write_text(text)
    assert main([str(path)]) == StorageError.exit_code == 6
    assert said in capsys.readouterr().err


def test_an_environment_that_is_gone_is_said(tmp_path, capsys):
    _, path = meet(tmp_path, env_args={"events": [(SEEDS(0, 0), 1, "reward", "nan")]})
    path.write_text(json.dumps(read(path) | {"env_name": "Gone-v0"}))
    assert main([str(path)]) == 4
    assert "could not be made" in capsys.readouterr().err


def record(repros: Repros, step: int = 7, trace: Trace | None = None) -> str:
    return repros.record(
        lambda: trace,
        what="reward",
        value="nan",
        behaviour="default",
        agent=0,
        episode_step=1,
        environment_step=step,
    )


TRACE = Trace(
    copy=0,
    episode=0,
    seed=3,
    actions=np.zeros((1, 1), np.float32),
    next_seed=None,
    to_env=lambda action: action,
)


def test_there_are_never_more_than_a_few_and_none_is_written_over(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    repros = Repros(tmp_path / "faults", CONFIG)
    said = [record(repros, 7, TRACE) for _ in range(LIMIT)]
    assert len(list((tmp_path / "faults").iterdir())) == LIMIT == len(set(said))
    assert said[1].startswith("python -m algorithm.run.failure_dump faults/non_finite_7_2.json ")
    again = Repros(tmp_path / "faults", CONFIG)  # as after a resume
    assert record(again, 8, TRACE) == f"no repro: there are {LIMIT} in faults"
    assert len(list((tmp_path / "faults").iterdir())) == LIMIT


def test_why_there_is_none_is_said(tmp_path):
    assert "does not say which episode it was" in record(Repros(tmp_path / "faults", CONFIG))
    (tmp_path / "taken").write_text("")
    said = record(Repros(tmp_path / "taken", CONFIG), trace=TRACE)
    assert said.startswith("no repro: ") and "a file stands where a folder is needed" in said
