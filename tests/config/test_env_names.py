"""An environment that is named on the command line, without a folder of a task."""

from __future__ import annotations

import gymnasium as gym
import pytest

from algorithm.config import ConfigError, find_env, load_config
from tests import own_env
from tests.config.conftest import PENDULUM, refusal

FILE = """\
default:
  base_config: {env_type: GYM, env_name: Other-v0}
  sac_config: {n_step: 3}
fast:
  sac_config: {tau: 0.25}
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    own_env.write(tmp_path)
    own_env.write(tmp_path / "sub")
    with own_env.fresh_imports():
        yield tmp_path


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("CartPole-v1", "CartPole-v1"),
        ("own_env:Own-v0", "own_env/Own-v0"),
        ("tests.toys:Counting-v0", "tests.toys/Counting-v0"),
        ("ale_py:ALE/Pong-v5", "ale_py/ALE/Pong-v5"),
        ("own_env.py:Own-v0", "own_env/Own-v0"),
        ("sub/own_env.py:Own", "sub/own_env/Own"),
    ],
)
def test_the_name_is_enough(here, monkeypatch, name, label):
    monkeypatch.syspath_prepend(here)
    loaded = load_config(name, require_runnable=True)
    base = loaded.config.base_config
    assert (base.env_type, base.env_name, loaded.env_label) == ("GYM", name, label)
    assert loaded.differences().keys() <= {
        f"base_config.{k}" for k in ("env_type", "env_name", "stop_at_return")
    }
    assert (loaded.env_dir, loaded.file) == (here, None)


def test_only_without_a_file_the_training_ends_with_success(here):
    def stop(*given: str) -> object:
        return load_config(*given, require_runnable=True).config.base_config.stop_at_return

    (here / "mine.yaml").write_text("default: {}\nown: {base_config: {stop_at_return: 300}}\n")
    assert stop("CartPole-v1") == stop("CartPole-v1", "mine.yaml") == "auto"
    assert stop("CartPole-v1", "mine.yaml:own") == 300.0
    assert stop("gym/cart_pole") is None
    with pytest.raises(ConfigError, match="evaluations on the way"):
        load_config("CartPole-v1", "mine.yaml:own", ["eval_config.per_step=-1"])


def test_a_task_of_the_control_suite_has_a_prefix(here):
    loaded = load_config("dm.cartpole.swingup", require_runnable=True)
    base = loaded.config.base_config
    assert (base.env_type, base.env_name, loaded.env_label) == ("DM_CONTROL", *["dm.cartpole.swingup"] * 2)


def test_a_file_elsewhere_is_filed_under_its_own_name(here, monkeypatch):
    monkeypatch.chdir(here / "sub")
    assert find_env("../own_env.py:Own").label == "own_env/Own"


def test_a_folder_of_that_name_goes_first(task):
    task(PENDULUM, name="CartPole-v1")
    assert load_config("CartPole-v1").config.base_config.env_name == "Pendulum-v1"


def test_overrides_and_flags_count(here):
    config = load_config("CartPole-v1", None, ["sac_config.n_step=3"], {"base_config.n_envs": 2}).config
    assert (config.sac_config.n_step, config.base_config.n_envs) == (3, 2)


@pytest.mark.parametrize(
    ("chosen", "fast"), [("file.yaml", False), ("file", False), ("file:fast", True), ("file.yaml:fast", True)]
)
def test_c_names_a_file_whose_environment_does_not_count(here, chosen, fast):
    (here / "file.yaml").write_text(FILE)
    loaded = load_config("CartPole-v1", chosen)
    sac = loaded.config.sac_config
    assert (loaded.config.base_config.env_name, sac.n_step) == ("CartPole-v1", 3)
    assert loaded.file == here / "file.yaml"
    assert (sac.tau == 0.25) == fast


def test_c_cannot_name_a_section(here):
    (problem,) = refusal("CartPole-v1", "long").problems
    assert "-c names a YAML file" in problem.why and "-o" in problem.fix


def test_all_tasks_are_listed_only_where_nothing_is_near(here, monkeypatch):
    for name, spec in list(gym.registry.items()):
        if "ale_py" in str(spec.entry_point):  # another test has imported it
            monkeypatch.delitem(gym.registry, name)
    (near,), (far,) = refusal("cartpole").problems, refusal("qqqqqq").problems
    others = "an environment of another package is module:Id, one of your own file.py:Id"
    assert near.fix == f"did you mean `dm_control/cartpole` or `CartPole-v1`? {others}"
    assert "toy/recall" in far.fix and far.fix.endswith(others)
    (package,) = refusal("ALE/Pong-v5").problems
    assert package.fix == f"did you mean `ale_py:ALE/Pong-v5` or `atari/pong`? {others}"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("own_env.py", "name one: own_env.py:Id"),
        ("absent.py:Own", "there is no file absent.py"),
        ("absent_module:Own-v0", "there is no module absent_module"),
        ("cart_pole", "did you mean `gym/cart_pole` or `CartPole-v1`?"),
        ("CartPole", "`CartPole-v1`?"),
        ("cartpole-v7", "`CartPole-v1`?"),
        ("LunarLander-v2", "`LunarLander-v3`?"),
        ("HalfCheeta", "`HalfCheetah-v5`"),
        ("BreakoutNoFrameskip-v4", "did you mean `ale_py:BreakoutNoFrameskip-v4`"),
        ("MiniGrid-Empty-5x5-v0", "did you mean `minigrid:MiniGrid-Empty-5x5-v0`"),
        ("popgym-RepeatPreviousEasy-v0", "`popgym:popgym-RepeatPreviousEasy-v0` or `popgym/repeat_previous`"),
        ("HopperBulletEnv-v0", "did you mean `pybullet_envs_gymnasium:HopperBulletEnv-v0`"),
        ("dm_control/cartpole-swingup-v0", "did you mean `dm.cartpole.swingup`"),
        ("qqqqqq", "of another package is module:Id, one of your own file.py:Id"),
        (":X", "of another package is module:Id"),
        ("x" * 300, "File name too long"),
    ],
)
def test_what_is_no_name_is_told_with_what_is_near(here, name, said, monkeypatch):
    monkeypatch.delitem(gym.registry, name, raising=False)  # another test may have imported its package
    with pytest.raises(ConfigError) as caught:
        find_env(name)
    assert said in str(caught.value)
