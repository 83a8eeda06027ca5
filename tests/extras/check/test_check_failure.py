"""``--check --from``: a failed episode replayed from its dump."""

from __future__ import annotations

import json

import pytest

from algorithm.extras.check.command import replay_failure
from algorithm.run.experience.failure_dump import FailureDump
from main import main
from tests.app.test_failure_dump import SEEDS, meet, read
from tests.toys_numbers import LENGTH

pytestmark = pytest.mark.fault("F10")

TASK = "gym/pendulum"
"""The dump says which environment is made, not the command line."""


CASES = [
    (SEEDS(1, 0), 3, "reward", "nan"),  # midway
    (SEEDS(1, 1), 2, "obs", "inf"),  # in the second episode
    (SEEDS(1, 0), LENGTH, "obs", "-inf"),  # where the episode ends, after which another one has begun
    (SEEDS(1, 0), LENGTH, "reward", "nan"),
    (SEEDS(1, 2), 0, "obs", "nan"),  # the first one after an end
]


@pytest.mark.parametrize("event", CASES)
def test_the_same_number_is_met_again(tmp_path, event):
    seed, step, place, number = event
    _, path = meet(tmp_path, env_args={"events": [event]})
    dump = FailureDump.read(path)
    assert (dump.copy_index, dump.seed, dump.episode_step, dump.value) == (1, seed, step, number)
    assert dump.what == ("reward" if place == "reward" else "observation 'obs'[1]")
    lines: list[str] = []
    assert replay_failure(dump, lines.append)
    (line,) = lines
    assert line.startswith(f"step {step}, after action ") and line.endswith(f"is {number}")
    assert not replay_failure(dump.model_copy(update={"value": "1e39"}), lines.append)


@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
def test_wrappers_are_put_around_again(tmp_path):
    wrappers = ({"tests.toys_numbers:Glitch": {"number": 1e39}},)
    _, path = meet(tmp_path, env_args={"events": []}, wrappers=wrappers)
    assert FailureDump.read(path).value == "1e+39"  # as it came, beyond float32
    assert replay_failure(FailureDump.read(path), print)


@pytest.mark.parametrize(("change", "code"), [
    ({}, 0),
    ({"env_args": {"events": []}}, 1),
    ({"env_name": "Gone-v0"}, 4),
    ({"version": 0}, 6),
])  # fmt: skip
def test_the_command_says_whether_it_came_again(tmp_path, capsys, change, code):
    _, path = meet(tmp_path, env_args={"events": [(SEEDS(0, 0), 2, "reward", "nan")]})
    path.write_text(json.dumps(read(path) | change))
    assert main([TASK, "--check", f"--from={path}"]) == code
    assert ("reward is nan" in capsys.readouterr().out) is (code == 0)


@pytest.mark.parametrize("text", ["{}", "not json", None])
def test_another_file_is_refused(tmp_path, text):
    path = tmp_path / "x.json"
    if text is not None:
        path.write_text(text)
    assert main([TASK, "--check", f"--from={path}"]) == 6
