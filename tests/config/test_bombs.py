"""Small files and numbers that would take all memory or time."""

from __future__ import annotations

import pytest

from algorithm.config import load_config
from tests.config.conftest import PENDULUM, refusal

pytestmark = pytest.mark.fault("F43")

BOMB = ["  x0: &x0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
BOMB += [f"  x{n}: &x{n} [{', '.join([f'*x{n - 1}'] * 10)}]" for n in range(1, 12)]
MERGES = ["  y0: &y0 {a: 1}"]
MERGES += [f"  y{n}: &y{n} {{<<: [{', '.join([f'*y{n - 1}'] * 10)}]}}" for n in range(1, 12)]
NESTED = ["  z0: &z0 {a: 1}"]
NESTED += [f"  z{n}: &z{n} {{{', '.join(f'k{k}: *z{n - 1}' for k in range(10))}}}" for n in range(1, 12)]


@pytest.mark.parametrize("bomb", [BOMB, MERGES, NESTED], ids=["lists", "merges", "mappings"])
def test_aliases_that_grow_without_end_are_refused_before_they_do(task, bomb):
    task(PENDULUM + "\n".join(bomb))
    (problem,) = refusal("gym/task").problems
    assert "more than 100,000 values once its aliases are written out" in problem.why
    assert problem.where.startswith("envs/gym/task/config.yaml:")


def test_the_same_on_the_command_line(task):
    task(PENDULUM)
    lists = "[&a [1,1,1,1,1,1,1,1,1,1]" + "".join(
        f", &{new} [{','.join([f'*{old}'] * 10)}]" for old, new in zip("abcdefg", "bcdefgh", strict=True)
    )
    (problem,) = refusal("gym/task", overrides=[f"base_config.env_args={lists}]"]).problems
    assert "more than 100,000 values" in problem.why


def test_as_many_environments_as_no_machine_has_are_refused(task):
    task(PENDULUM + "    n_envs: 1e9\n")
    (problem,) = refusal("gym/task").problems
    assert "n_envs" in problem.what and "65536" in problem.why + problem.fix + problem.what


def test_a_large_file_of_values_that_stand_there_is_read(task):
    values = ", ".join(["1"] * 20_000)
    task(PENDULUM + f"    env_args: {{x: [{values}]}}\n")
    assert len(load_config("gym/task").config.base_config.env_args["x"]) == 20_000
