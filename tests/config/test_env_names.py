"""An environment that is named on the command line, without a folder of a task."""

from __future__ import annotations

import pytest

from algorithm.config import ConfigError, find_env, load_config
from algorithm.extras.dmc import suite
from tests.config.conftest import PENDULUM
from tests.lib import own_env

FILE = """\
default:
  base_config: {env_type: GYM, env_name: Other-v0}
  sac_config: {n_step: 3}
fast:
  sac_config: {tau: 0.25}
"""


@pytest.fixture
def here(cwd):
    own_env.write(cwd)
    own_env.write(cwd / "sub")
    with own_env.fresh_imports():
        yield cwd


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("CartPole-v1", "CartPole-v1"),
        ("own_env:Own-v0", "own_env/Own-v0"),
        ("tests.lib.toys:Counting-v0", "tests.lib.toys/Counting-v0"),
        ("ale_py:ALE/Pong-v5", "ale_py/ALE/Pong-v5"),
        ("own_env.py:Own-v0", "own_env/Own-v0"),
        ("sub/own_env.py:Own", "sub/own_env/Own"),
        ("dm.cartpole.swingup", "dm.cartpole.swingup"),
    ],
)
def test_the_name_is_enough(here, monkeypatch, name, label):
    monkeypatch.syspath_prepend(here)
    loaded = load_config(name, require_runnable=True)
    base = loaded.config.base_config
    assert (base.env_type, base.env_name, loaded.env_label) == (
        "DM_CONTROL" if name.startswith("dm.") else "GYM",
        name,
        label,
    )
    assert loaded.differences().keys() <= {
        f"base_config.{k}" for k in ("env_type", "env_name", "stop_at_return")
    }
    assert (loaded.env_dir, loaded.file) == (here, None)


@pytest.mark.parametrize(
    ("names", "task"),
    [
        (
            "cartpole/swingup dm_control/cartpole/swingup cartpole-swingup dmc_cartpole_swingup "
            "cartpole_swingup dmc/cartpole/swingup dm_control/cartpole-swingup-v0 dm.cartpole.swingup",
            "cartpole.swingup",
        ),
        ("humanoid-walk", "humanoid.walk"),
        ("humanoid_CMU/run", "humanoid_CMU.run"),
        ("cup-catch ball_in_cup/catch dmc_ball_in_cup_catch", "ball_in_cup.catch"),
        ("finger-turn-hard finger/turn_hard", "finger.turn_hard"),
        ("lqr/lqr_2_1", "lqr.lqr_2_1"),
    ],
)
def test_a_task_of_deepmind_control_has_every_name_that_is_in_use(here, names, task):
    for name in names.split():
        folder = find_env(name)
        assert (folder.label, folder.env_name, folder.keys_of_name["base_config.env_type"]) == (
            f"dm.{task}",
            f"dm.{task}",
            "DM_CONTROL",
        )
        assert "/".join(suite._split(name)) == task.replace(".", "/", 1)


@pytest.mark.parametrize("name", ["pendulum-v1", "hopper-medium-v2", "cartpole", "walker"])
def test_what_is_like_a_task_of_deepmind_control_is_none(here, name):
    with pytest.raises(ConfigError, match="unknown environment"):
        find_env(name)


def test_only_without_a_file_the_training_ends_with_success(here):
    def stop(*given: str) -> object:
        return load_config(*given, require_runnable=True).config.base_config.stop_at_return

    (here / "mine.yaml").write_text("default: {}\nown: {base_config: {stop_at_return: 300}}\n")
    assert stop("CartPole-v1") == stop("CartPole-v1", "mine.yaml") == "auto"
    assert stop("CartPole-v1", "mine.yaml:own") == 300.0
    assert stop("gym/cart_pole") is None
    with pytest.raises(ConfigError, match="evaluations during training"):
        load_config("CartPole-v1", "mine.yaml:own", ["eval_config.per_step=-1"])


def test_a_file_elsewhere_is_filed_under_its_own_name(here, monkeypatch):
    monkeypatch.chdir(here / "sub")
    assert find_env("../own_env.py:Own").label == "own_env/Own"


def test_a_folder_of_that_name_goes_first(task):
    task(PENDULUM, name="CartPole-v1")
    assert load_config("CartPole-v1").config.base_config.env_name == "Pendulum-v1"


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
