"""The number of places that a new part touches, counted by adding one to a copy of the project."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TASK = """\
default:
  base_config: {env_type: TYPE, env_name: CartPole-v1, max_step: 80}
  sac_config: {start_step: 20, batch_size: 8, write_summary_per_step: 40}
  nn_config: {q: {dense_n: 8}, policy: {dense_n: 8}}
  eval_config: {per_step: -1, episodes: 1}
"""

EXTENSION = '''\
"""Small states."""

from algorithm.extensions.base import Extension


class Shrink(Extension):
    def auxiliary_losses(self, ctx):
        return {"q": ctx.state[:, ctx.learned].square().mean()}


def make_shrink(build):
    open("made.txt", "w").close()
    return Shrink()
'''

OWN = '''\
"""Environments of Gymnasium under another name, and a simulator that steps several at once."""

from functools import partial

from algorithm.env.gym import GymRecipe
from algorithm.env.registered import make_vector
from algorithm.env.lanes.gym_vector import GymVectorEnv


class OwnRecipe(GymRecipe):
    """With nothing of its own."""


def make_own(request):
    make = partial(make_vector, request.env_name, request.n, request.env_args)
    return GymVectorEnv(make, seed_of=request.seed_of, name=request.env_name)
'''


@pytest.fixture
def copy(tmp_path):
    for name in ("algorithm", "ds"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "main.py", tmp_path / "main.py")
    (tmp_path / "task").mkdir()
    return tmp_path


def edit(file: Path, before: str, after: str) -> None:
    source = file.read_text("utf-8")
    assert source.count(before) == 1, f"{file.name} has changed: is it still one place?"
    file.write_text(source.replace(before, after), "utf-8")


def train(copy: Path, env_type: str) -> None:
    (copy / "task" / "config.yaml").write_text(TASK.replace("TYPE", env_type))
    command = [sys.executable, "main.py", "./task", "--seed=1", "-n", "a", "--quiet"]
    done = subprocess.run(command, cwd=copy, env=os.environ, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (copy / "models" / "task" / "a" / "result.json").exists()


@pytest.mark.slow
def test_an_extension_is_a_file_and_an_entry_of_the_registry(copy):
    registry = copy / "algorithm" / "extensions" / "__init__.py"
    (registry.parent / "shrink.py").write_text(EXTENSION)
    edit(registry, "    make_gail,\n)", "    make_gail,\n    make_shrink,\n)")
    edit(registry, "\nREGISTRY", "\nfrom algorithm.extensions.shrink import make_shrink\n\nREGISTRY")
    train(copy, "GYM")
    assert (copy / "made.txt").exists()


@pytest.mark.slow
def test_a_kind_of_environment_is_a_file_and_an_object(copy):
    env = copy / "algorithm" / "env"
    (env / "own.py").write_text(OWN)
    kind = 'OWN = EnvKind(name="OWN", maker="algorithm.env.own:OwnRecipe")'
    edit(env / "kinds.py", "\nKINDS:", f"{kind}\n\nKINDS:")
    edit(env / "kinds.py", "(UNITY, GYM, DM_CONTROL)", "(UNITY, GYM, DM_CONTROL, OWN)")
    train(copy, "OWN")


@pytest.mark.slow
def test_a_kind_of_environment_with_its_own_vector_class_is_a_module_of_the_task(copy):
    (copy / "task" / "own.py").write_text(OWN)
    train(copy, "own:make_own")
