"""The package as somebody gets it who has no checkout: a wheel, an archive of the sources, two commands."""

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import yaml

from algorithm.core.program import VERSION, as_typed, flag_or_argument, program

PLAY = """
import gymnasium as gym
import asac

run = asac.train("CartPole-v1", max_step=60, seed=1, name="own", device="cpu")
policy, env = asac.load(run, "latest"), gym.make("CartPole-v1")
obs, _ = env.reset(seed=0)
assert env.action_space.contains(policy.act(obs)[0])
run.resume(max_step=70)
run.evaluate(1)
run.export("shared.zip", "latest")
"""
CORE_ALONE = """
import os, sys
from importlib.machinery import PathFinder

EXTRAS = "cryptography google grpc imageio imageio_ffmpeg msgspec tensorboard"
ABSENT = f"{EXTRAS} {os.environ['ABSENT']}".split()

class Installed(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in ABSENT else super().find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = Installed
"""
"""A ``sitecustomize.py``, with which the packages of some extras are not installed, and those of ABSENT."""
HEAVY = "gymnasium numpy pydantic torch yaml"
"""Packages that a command line is read without."""
WITHOUT = {
    "ds": "-m ds toy/identity learner",
    "video": "-m asac CartPole-v1 -n own --video",
}
"""Extra -> a command that needs it."""
OF_THE_REQUIREMENTS = ("bullet", "ds", "tensorboard", "unity", "video")


@pytest.fixture(scope="module")
def built(root, tmp_path_factory):
    """Wheel and archive, built from a clean copy of what git knows."""
    folder = tmp_path_factory.mktemp("built")
    words = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(root)]
    subprocess.run(words, check=True, capture_output=True, timeout=200)
    return folder


def test_a_wheel_trains_and_plays_where_there_is_neither_a_checkout_nor_an_extra(built, root, tmp_path):
    (wheel,) = built.glob("*.whl")
    site, work = tmp_path / "site", tmp_path / "work"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    (site / "sitecustomize.py").write_text(CORE_ALONE)
    work.mkdir()
    environment = os.environ | {"PYTHONPATH": str(site)}

    def python(*words, absent=""):
        env = environment | {"ABSENT": absent}
        command = [sys.executable, *words]
        return subprocess.run(command, cwd=work, env=env, capture_output=True, text=True, check=True).stdout

    listed = python("-m", "asac", "--list")
    tasks = {path.parent.relative_to(root / "envs").as_posix() for path in root.glob("envs/*/*/config.yaml")}
    assert tasks and all(re.search(rf"^  {task} ", listed, re.M) for task in tasks)
    assert python("-m", "ds", "--version").strip() == VERSION
    out = python("-m", "asac", "toy/identity", "--max_step=60", "-n", "run", "--seed=1", "--device=cpu")
    assert "python -m asac toy/identity -n run --resume" in out, "the commands are those that work here"
    assert '[tensorboard]"' in out and (work / "models/toy/identity/run/report.html").is_file()
    (work / "main.py").write_text(PLAY)
    assert "run.resume(max_step=" in python("main.py"), "a script is told what to call"
    assert "--resume" in python("-m", "asac", "--help", absent=HEAVY)
    with pytest.raises(subprocess.CalledProcessError) as mistyped:
        python("-m", "asac", "toy/identity", "--resme", absent=HEAVY)
    assert mistyped.value.stderr.endswith("did you mean --resume?\n")
    for extra, command in WITHOUT.items():
        with pytest.raises(subprocess.CalledProcessError) as failed:
            python(*command.split())
        fix = f'{sys.executable} -m pip install "advanced-soft-actor-critic[{extra}]"\n'
        assert failed.value.returncode == 2 and failed.value.stderr.endswith(fix)


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


def test_the_requirements_are_those_of_the_package_and_six_extras(root):
    wanted = {line for line in (root / "requirements.txt").read_text().splitlines() if line[:1].isalpha()}
    text = (root / "pyproject.toml").read_text()
    core = re.search(r"^dependencies = \[(.*?)^\]", text, re.M | re.S)
    extras = re.findall(rf"^(?:{'|'.join(OF_THE_REQUIREMENTS)}) = \[(.*)\]", text, re.M)
    assert core and len(extras) == len(OF_THE_REQUIREMENTS)
    assert set(re.findall(r'"([^"]+)"', core[1] + "".join(extras))) == wanted


def test_the_citation_names_this_version(root):
    assert yaml.safe_load((root / "CITATION.cff").read_text())["version"] == VERSION
    assert f"{{{VERSION}}}" in (root / "README.md").read_text()


@pytest.mark.parametrize(
    ("typed", "words", "how"),
    [
        ("main.py", "python main.py", "--flag"),
        ("/elsewhere/main.py", "python /elsewhere/main.py", "--flag"),
        ("/usr/bin/asac", "asac", "--flag"),
        ("C:/Scripts/asac.exe", "asac", "--flag"),
        ("/site/asac/__main__.py", "python -m asac", "--flag"),
        ("/usr/bin/pytest", "python main.py", "flag=1"),
    ],
)
def test_commands_and_flags_are_shown_as_the_program_was_started(monkeypatch, root, typed, words, how):
    monkeypatch.chdir(root)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(sys, "argv", [typed])
    assert " ".join(program()) == words and flag_or_argument("--flag", "flag=1") == how
    if "main.py" not in words:
        assert as_typed("python main.py gym/pendulum") == f"{words} gym/pendulum"


@pytest.mark.parametrize("typed", ["main.py", "mine.py"])
def test_a_script_of_ones_own_is_not_the_command(monkeypatch, root, cwd, typed):
    (cwd / typed).touch()
    monkeypatch.setattr(sys, "argv", [typed])
    monkeypatch.setenv("PATH", "/nowhere")
    assert program() == ["python", str(root / "main.py")] and flag_or_argument("--flag", "flag=1") == "flag=1"
    (cwd / "asac").touch(0o755)
    monkeypatch.setenv("PATH", str(cwd))
    assert program() == ["asac"]
    monkeypatch.setattr("algorithm.core.program._CHECKOUT", cwd / "installed")
    assert program() == ["asac"] and flag_or_argument("--flag", "flag=1") == "flag=1"


def test_a_distributed_command_has_its_own_name(monkeypatch):
    monkeypatch.setattr(sys, "argv", [str(Path("/usr/bin/asac-ds"))])
    assert program("main_ds.py") == ["asac-ds"]
    assert as_typed("python main_ds.py T learner, python main.py T") == "asac-ds T learner, asac T"
