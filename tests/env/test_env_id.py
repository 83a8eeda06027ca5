"""Environments that a task names by a module or a file of its own."""

import sys
from contextlib import closing
from pathlib import Path

import gymnasium as gym
import pytest

from algorithm.app import command
from algorithm.core.errors import EnvError
from algorithm.env.env_id import register_env, resolve_env_id, source_file
from algorithm.env.registry import make_vec_env
from algorithm.env.request import EnvRequest
from tests.env.test_gym import SEEDS
from tests.lib import own_env


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    own_env.write(tmp_path / "task")
    with own_env.fresh_imports():
        yield tmp_path / "task"


@pytest.mark.parametrize(
    "name", ["CartPole-v1", "tests.lib.toys:Counting-v0", "absent:X-v0", "pkg.own_env:Own"]
)
def test_what_is_no_file_stays_as_it_is(folder, name):
    assert resolve_env_id(name, folder) == name
    assert source_file(name) is None


@pytest.mark.parametrize(
    ("name", "workers"), [("own_env:Own-v0", 0), ("own_env.py:Own", 1), ("../task/own_env.py:Own-v0", 0)]
)
def test_a_file_beside_the_task_is_found_here_and_in_workers(folder, name, workers):
    resolved = resolve_env_id(name, folder)
    assert source_file(resolved) == folder / "own_env.py"
    assert register_env(resolved) == "Own-v0"
    pool = {"workers": workers}
    with closing(make_vec_env(EnvRequest("GYM", name, folder=folder, n=2, seed_of=SEEDS, **pool))) as env:
        env.reset()
        assert env.time_limit == 10, "that of the registration"


def test_the_tasks_file_goes_before_that_of_the_current_folder(folder):
    own_env.write(folder.parent / "here")
    assert resolve_env_id("own_env.py:Own", folder) == f"{folder}/own_env.py:Own"
    (folder / "own_env.py").unlink()
    assert resolve_env_id("own_env.py:Own", folder) == f"{folder.parent}/here/own_env.py:Own"
    (folder.parent / "here" / "own_env.py").unlink()
    with pytest.raises(EnvError) as caught:
        resolve_env_id("own_env.py:Own", folder)
    assert str(folder / "own_env.py") in caught.value.why and "here/own_env.py" in caught.value.why


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
    make_vec_env(EnvRequest("GYM", name, folder=here, seed_of=SEEDS)).close()
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
        command.remove_first_folder()
        assert sys.path == left


@pytest.mark.parametrize(
    ("source", "name", "why", "fix"),
    [
        (own_env.REGISTERED, "own_env:Owm-v0", "", "check base_config"),
        ("import gymnasium\ngymnasium.absent\n", "own_env.py:Own", "AttributeError", "check base_config"),
        ("class Own(:\n    pass\n", "own_env.py:Own", "SyntaxError", "own_env.py:\nclass Own(:"),
        ("import gym\n", "own_env.py:Own", "ModuleNotFoundError", "write `import gymnasium as gym`"),
        ("import gym_core\nclass Own(gym_core.Env):\n    x = 1\n", "own_env.py:Own", "of gym,", "as gym`"),
    ],
)  # fmt: skip
def test_a_misspelt_id_and_a_file_with_a_mistake_are_told(folder, source, name, why, fix):
    (folder / "gym_core.py").write_text("class Env:\n    __module__ = 'gym.core'\n")
    (folder / "own_env.py").write_text(source)
    with pytest.raises(EnvError, match="could not be made") as caught:
        make_vec_env(EnvRequest("GYM", name, folder=folder, n=2, seed_of=SEEDS))
    assert why in caught.value.why and fix in caught.value.fix


@pytest.mark.parametrize(
    ("path", "name"), [("json.py", "json:Own-v0"), ("own_package/envs.py", "own_package.envs:Own-v0")]
)
def test_a_file_may_be_called_like_an_installed_module_or_lie_in_a_package(folder, path, name):
    (folder / path).parent.mkdir(exist_ok=True)
    ((folder / path).parent / "__init__.py").touch()
    (folder / "own_env.py").rename(folder / path)
    assert register_env(resolve_env_id(name, folder)) == "Own-v0"
    assert gym.make("Own-v0").spec.max_episode_steps == 10


@pytest.mark.parametrize("name", ["Own", "CartPole"])
def test_a_class_need_not_be_registered_and_may_be_called_like_another(folder, name):
    own_env.write(folder, source=own_env.SOURCE.replace("class Own", f"class {name}"))
    env_id = register_env(resolve_env_id(f"own_env.py:{name}", folder))
    assert gym.make(env_id).unwrapped.observation_space.shape == (1,)
    assert register_env(resolve_env_id(f"own_env:{name}", folder)) == env_id
