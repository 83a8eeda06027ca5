"""What is said when the package of an environment is not installed."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import gymnasium as gym
import pytest

from algorithm.env.install_hints import _EXTRAS, advice

PYPROJECT = (Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8")


def importing(name: str, monkeypatch: pytest.MonkeyPatch) -> Exception:
    """What gymnasium raises for an environment of a package that is not there."""
    for package in ("ale_py", "Box2D", "cv2", "minigrid"):
        monkeypatch.setitem(sys.modules, package, None)
    for module in ("gymnasium.envs.box2d", "gymnasium.envs.box2d.lunar_lander"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    with pytest.raises((ImportError, gym.error.DependencyNotInstalled)) as caught:
        gym.make(name)
    return caught.value


@pytest.mark.parametrize(
    ("name", "extra"),
    [
        ("ale_py:ALE/Pong-v5", "atari"),
        ("LunarLander-v3", "box2d"),
        ("minigrid:MiniGrid-Empty-5x5-v0", "minigrid"),
    ],
)
def test_a_missing_package_is_told_with_its_extra(
    name: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert advice(importing(name, monkeypatch), "else") == (
        f'in the project\'s folder: {sys.executable} -m pip install -e ".[{extra}]"'
    )


def test_an_installed_package_names_itself(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("algorithm.env.install_hints._CHECKOUT", tmp_path / "pyproject.toml")
    error = ModuleNotFoundError("No module named 'pybullet_envs_gymnasium'")
    assert advice(error, "else").endswith('-m pip install ".[bullet]"'), "the project is on no index"


def test_atari_preprocessing_without_opencv_is_told_with_its_extra() -> None:
    error = gym.error.DependencyNotInstalled('opencv-python package not installed, run `pip install "…"`')
    assert '".[atari]"' in advice(error, "else")


@pytest.mark.parametrize("error", [ImportError("No module named 'mine'"), ValueError("ale_py is too loud")])
def test_other_errors_have_other_advice(error: Exception) -> None:
    assert advice(error, "else") == "else"


def test_the_extras_exist(root: Path) -> None:
    extras = re.findall(r"^(\w+) = \[", (root / "pyproject.toml").read_text("utf-8"), re.M)
    assert set(_EXTRAS.values()) <= set(extras)


def test_an_extra_that_this_python_cannot_have_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    error = ModuleNotFoundError("No module named 'dm_control'")
    monkeypatch.setattr(sys, "version_info", (3, 12, 9))
    assert "[dmc]" in advice(error, "")
    for version in ((3, 13, 0), (3, 14, 0)):
        monkeypatch.setattr(sys, "version_info", version)
        found = advice(error, "")
        assert found == "use Python 3.12 or an older one: for 3.13 the extra dmc has no packages"
    (marked,) = re.findall(r"^dmc = \[\"dm-control\S+; python_version < '([\d.]+)'", PYPROJECT, re.M)
    assert marked == "3.13"
