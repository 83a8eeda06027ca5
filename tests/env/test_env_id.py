"""Environments that a task names by a module or a file of its own."""

from __future__ import annotations

import sys
from pathlib import Path

import gymnasium as gym
import pytest

from algorithm.app import command
from algorithm.core.errors import EnvError
from algorithm.env.env_id import register_env, resolve_env_id, source_file
from algorithm.env.registry import make_vec_env
from algorithm.env.request import PoolOptions
from tests import own_env
from tests.env.test_gym import SEEDS


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    own_env.write(tmp_path / "task")
    with own_env.fresh_imports():
        yield tmp_path / "task"


@pytest.mark.parametrize("name", ["CartPole-v1", "tests.toys:Counting-v0", "absent:X-v0", "pkg.own_env:Own"])
def test_what_is_no_file_stays_as_it_is(folder, name):
    assert resolve_env_id(name, folder) == name
    assert source_file(name) is None


@pytest.mark.parametrize("name", ["own_env:Own-v0", "own_env.py:Own-v0", "../task/own_env.py:Own-v0"])
def test_a_file_beside_the_task_is_found(folder, name):
    located = resolve_env_id(name, folder)
    assert located == f"{folder}/own_env.py:Own-v0"
    assert source_file(located) == folder / "own_env.py"
    assert register_env(located) == "Own-v0"


def test_the_tasks_file_goes_before_that_of_the_current_folder(folder):
    own_env.write(folder.parent / "here")
    assert resolve_env_id("own_env.py:Own", folder) == f"{folder}/own_env.py:Own"
    (folder / "own_env.py").unlink()
    assert resolve_env_id("own_env.py:Own", folder) == f"{folder.parent}/here/own_env.py:Own"


def test_a_file_that_is_not_there_is_named_with_where_it_was_looked_for(folder):
    with pytest.raises(EnvError) as caught:
        resolve_env_id("absent.py:X", folder)
    assert str(folder / "absent.py") in caught.value.why
    assert str(folder.parent / "here" / "absent.py") in caught.value.why


@pytest.mark.parametrize(
    ("name", "beside", "found"),
    [("CartPole-v1", "z3.py", False), ("CartPole-v1", "nn.py", True), ("own_env:Own", "z3.py", True)],
)
def test_modules_where_the_user_stands_are_imported_only_if_something_there_is_named(
    folder, name, beside, found
):
    """torch imports a module called z3, if there is one."""
    here = folder.parent / "here"
    own_env.write(here)
    (here / beside).touch()
    make_vec_env("GYM", name, folder=here, seed_of=SEEDS).close()
    assert (str(here) in sys.path[1:]) == found


def test_a_program_takes_no_modules_from_the_folder_that_python_puts_first(folder, monkeypatch):
    root, first, other = str(Path(command.__file__).parents[2]), str(folder), folder / "site"
    (other / "algorithm").mkdir(parents=True)
    (other / "algorithm" / "__init__.py").touch()
    for path, left in (
        ([first, root], [root]),
        ([first], [root]),
        ([first, str(other)], [root, str(other)]),  # workers take this version, too
    ):
        monkeypatch.setattr(sys, "path", path)
        command.leave_first_folder()
        assert sys.path == left


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(
    ("name", "limit"), [("own_env:Own-v0", 10), ("own_env.py:Own-v0", 10), ("own_env.py:Own", 10)]
)
def test_it_is_made_here_and_in_workers(folder, name, limit, workers):
    env = make_vec_env("GYM", name, folder=folder, n=2, seed_of=SEEDS, pool=PoolOptions(workers=workers))
    try:
        env.reset(episode=0)
        assert env.time_limit == limit
    finally:
        env.close()


def test_a_class_need_not_be_registered(folder):
    own_env.write(folder, source=own_env.SOURCE)
    env_id = register_env(resolve_env_id("own_env.py:Own", folder))
    assert gym.make(env_id).spec.max_episode_steps is None
    assert register_env(resolve_env_id("own_env:Own", folder)) == env_id


def test_a_class_may_be_called_like_another_environment(folder):
    own_env.write(folder, source=own_env.SOURCE.replace("class Own", "class CartPole"))
    made = gym.make(register_env(resolve_env_id("own_env.py:CartPole", folder)))
    assert made.unwrapped.observation_space.shape == (1,)


def test_a_file_may_be_called_like_an_installed_module(folder):
    own_env.write(folder)
    (folder / "own_env.py").rename(folder / "json.py")
    assert register_env(resolve_env_id("json:Own-v0", folder)) == "Own-v0"
    assert gym.make("Own-v0").spec.max_episode_steps == 10


def test_a_package_beside_the_task_is_found(folder):
    (folder / "own_package").mkdir()
    (folder / "own_package" / "__init__.py").write_text("")
    (folder / "own_env.py").rename(folder / "own_package" / "envs.py")
    assert register_env(resolve_env_id("own_package.envs:Own-v0", folder)) == "Own-v0"


@pytest.mark.parametrize("name", ["own_env:Owm-v0", "own_env.py:Owm"])
def test_a_misspelt_id_is_told_with_what_there_is(folder, name):
    with pytest.raises(EnvError, match="could not be made") as caught:
        make_vec_env("GYM", name, folder=folder, seed_of=SEEDS)
    assert "did you mean Own" in caught.value.fix
    assert caught.value.fix.endswith("there: Own, Own-v0")


@pytest.mark.parametrize(
    ("source", "why", "fix"),
    [
        ("import gymnasium\ngymnasium.absent\n", "AttributeError", "check base_config.env_name"),
        ("class Own(:\n    pass\n", "SyntaxError", "correct line 1 of {file}:\nclass Own(:"),
        ("import gym\n", "ModuleNotFoundError", "write `import gymnasium as gym`"),
        ("import gym_core\n\nclass Own(gym_core.Env):\n    pass\n", "of gym, and not", "as gym`"),
    ],
)
def test_a_file_with_a_mistake_is_told_as_one(folder, source, why, fix):
    (folder / "gym_core.py").write_text("class Env:\n    __module__ = 'gym.core'\n")
    (folder / "own_env.py").write_text(source)
    with pytest.raises(EnvError, match="could not be made") as caught:
        make_vec_env("GYM", "own_env.py:Own", folder=folder, n=2, seed_of=SEEDS)
    assert why in caught.value.why
    assert fix.format(file=folder / "own_env.py") in caught.value.fix


def test_a_wrapper_is_offered_as_no_environment(folder):
    with (folder / "own_env.py").open("a") as file:
        file.write("\n\nclass Wrapped(gym.Wrapper):\n    pass\n")
    with pytest.raises(EnvError) as caught:
        make_vec_env("GYM", "own_env.py:Wrap", folder=folder, seed_of=SEEDS)
    assert caught.value.fix.endswith("there: Own, Own-v0")
