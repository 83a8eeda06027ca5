"""The package as somebody gets it who has no checkout: a wheel, an archive of the sources, two commands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from algorithm.core.program import VERSION, as_typed, program

PLAY = """
import gymnasium as gym
import asac

run = asac.train("CartPole-v1", max_step=60, seed=1, name="own", device="cpu")
policy, env = asac.load(run, "latest"), gym.make("CartPole-v1")
obs, _ = env.reset(seed=0)
assert env.action_space.contains(policy.act(obs)[0])
"""


@pytest.fixture(scope="module")
def built(root, tmp_path_factory):
    """Wheel and archive, built from a clean copy of what git knows."""
    folder = tmp_path_factory.mktemp("built")
    words = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(root)]
    subprocess.run(words, check=True, capture_output=True, timeout=200)
    return folder


def test_a_wheel_trains_and_plays_where_there_is_no_checkout(built, root, tmp_path):
    (wheel,) = built.glob("*.whl")
    site, work = tmp_path / "site", tmp_path / "work"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    work.mkdir()
    environment = os.environ | {"PYTHONPATH": str(site)}

    def python(*words):
        command = [sys.executable, *words]
        return subprocess.run(
            command, cwd=work, env=environment, capture_output=True, text=True, check=True
        ).stdout

    listed = python("-m", "asac", "--list")
    tasks = {path.parent.relative_to(root / "envs").as_posix() for path in root.glob("envs/*/*/config.yaml")}
    assert tasks and all(re.search(rf"^  {task} ", listed, re.M) for task in tasks)
    assert python("-m", "ds", "--version").strip() == VERSION
    out = python("-m", "asac", "toy/identity", "--max_step=60", "-n", "run", "--seed=1", "--device=cpu")
    assert "python -m asac toy/identity -n run --resume" in out, "the commands are those that work here"
    assert (work / "models/toy/identity/run/report.html").is_file()
    (work / "main.py").write_text(PLAY)
    assert "  asac CartPole-v1 -n own --resume" in python("main.py")


def test_both_archives_hold_all_that_is_needed(built, root):
    (wheel,), (sources,) = built.glob("*.whl"), built.glob("*.tar.gz")
    names = set(zipfile.ZipFile(wheel).namelist())
    for package in ("algorithm", "asac", "ds"):
        files = {path.relative_to(root).as_posix() for path in (root / package).rglob("*.py")}
        assert files <= names and f"{package}/py.typed" in names
    shipped = {path.relative_to(root / "envs").as_posix() for path in (root / "envs").rglob("*.yaml")}
    assert {f"algorithm/shipped_envs/{name}" for name in shipped} <= names
    assert not [name for name in names if "__pycache__" in name or name.startswith(("tests", "benchmarks"))]
    with tarfile.open(sources) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    assert {"main.py", "main_ds.py", "pyproject.toml", "README.md", "envs/gym/pendulum/config.yaml"} <= inside


def test_the_requirements_are_those_of_the_package_and_two_extras(root):
    wanted = {line for line in (root / "requirements.txt").read_text().splitlines() if line[:1].isalpha()}
    text = (root / "pyproject.toml").read_text()
    core = re.search(r"^dependencies = \[(.*?)^\]", text, re.M | re.S)
    extras = re.findall(r"^(?:bullet|unity) = \[(.*)\]$", text, re.M)
    assert core and len(extras) == 2
    assert set(re.findall(r'"([^"]+)"', core[1] + "".join(extras))) == wanted


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("main.py", "python main.py"),
        ("/elsewhere/main.py", "python /elsewhere/main.py"),
        ("/usr/bin/asac", "asac"),
        ("C:/Scripts/asac.exe", "asac"),
        ("/site/asac/__main__.py", "python -m asac"),
        ("/usr/bin/pytest", "python main.py"),
    ],
)
def test_commands_are_shown_as_the_program_was_started(monkeypatch, root, typed, words):
    monkeypatch.chdir(root)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(sys, "argv", [typed])
    assert " ".join(program()) == words
    if "main.py" not in words:
        assert as_typed("python main.py gym/pendulum") == f"{words} gym/pendulum"


@pytest.mark.parametrize("typed", ["main.py", "mine.py"])
def test_a_script_of_ones_own_is_not_the_command(monkeypatch, root, tmp_path, typed):
    (tmp_path / typed).touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [typed])
    monkeypatch.setenv("PATH", "/nowhere")
    assert program() == ["python", str(root / "main.py")]
    (tmp_path / "asac").touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert program() == ["asac"]


def test_a_distributed_command_has_its_own_name(monkeypatch):
    monkeypatch.setattr(sys, "argv", [str(Path("/usr/bin/asac-ds"))])
    assert program("main_ds.py") == ["asac-ds"]
    assert as_typed("python main_ds.py T learner, python main.py T") == "asac-ds T learner, asac T"
