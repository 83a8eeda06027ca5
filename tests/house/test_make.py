"""What `make` says on machines that lack something, played with stand-ins for Python and pip."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

PYTHON = """#!/bin/sh
echo "$*" >> "{log}"
case "$*" in
  *version_info*) echo {minor} ;;
  *ensurepip*) exit {ensurepip} ;;
  "-m venv "*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
esac
"""


class Checkout:
    """A copy of what ``scripts/venv.sh`` reads, on a machine with nothing but the tools of a base system."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.folder = folder / "project"
        self.bin = folder / "bin"
        self.log = folder / "calls.txt"
        shutil.copytree(root / "scripts", self.folder / "scripts")
        shutil.copytree(root / "constraints", self.folder / "constraints")
        for name in ("requirements.txt", "pyproject.toml"):
            shutil.copy(root / name, self.folder)
        self.bin.mkdir()
        for tool in ("bash", "cat", "cksum", "cp", "dirname", "mkdir", "rm"):
            (self.bin / tool).symlink_to(shutil.which(tool) or tool)

    def add_python(self, name: str, minor: int) -> Path:
        """Put a stand-in on the PATH that calls itself Python 3.``minor``; a bare one has no ensurepip."""
        file = self.bin / name
        file.write_text(PYTHON.format(log=self.log, minor=minor, ensurepip=int(name == BARE)))
        file.chmod(0o755)
        return file

    def run(self, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run the script with only our tools and stand-ins on the PATH."""
        command = [str(self.bin / "bash"), str(self.folder / "scripts/venv.sh")]
        environment = {"PATH": str(self.bin)} | environment
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


BARE = "python3.11"


@pytest.fixture
def checkout(root: Path, tmp_path: Path) -> Checkout:
    return Checkout(root, tmp_path)


@pytest.mark.parametrize(
    ("pythons", "asked", "told"),
    [
        ({}, "", "sudo apt install python3 python3-venv"),
        ({"python3": 14}, "", "(python3 is Python 3.14)"),
        ({"python3.12": 12}, "nowhere", "PYTHON=nowhere is not a Python 3.10 to 3.13"),
        ({"python3.12": 12, "other": 9}, "other", "is Python 3.9, not a Python 3.10 to 3.13"),
        ({"python3.12": 12}, "", "sudo apt install g++ python3.12-dev"),
        ({"python3.13": 13}, "", "sudo apt install g++ python3.13-dev"),
        ({BARE: 11}, "", "sudo apt install python3.11-venv"),
    ],
)
def test_what_is_missing_is_told(checkout: Checkout, pythons: dict[str, int], asked: str, told: str) -> None:
    paths = {name: str(checkout.add_python(name, minor)) for name, minor in pythons.items()}
    result = checkout.run(PYTHON=paths.get(asked, asked))
    assert result.returncode == 1 and told in result.stderr


def test_it_installs_once_a_ready_package_and_again_after_a_change(checkout: Checkout) -> None:
    """A ready package rather than one to compile."""
    checkout.add_python("python3.12", 12)
    checkout.add_python("python3.10", 10)
    assert [checkout.run().returncode, checkout.run().stderr] == [0, ""]
    assert "constraints/python3.10.txt" in checkout.log.read_text()
    for name in ("requirements.txt", "constraints/python3.10.txt", "pyproject.toml"):
        (checkout.folder / name).write_text("numpy==2.0\n")
        assert checkout.run().returncode == 0
    assert checkout.log.read_text().count("pip install") == 4


def test_what_is_installed_is_what_was_resolved(root: Path) -> None:
    """An extra that is installed and was not resolved would come in any version."""
    installed = re.search(r"--editable '\.\[([\w,]+)\]'", (root / "scripts/venv.sh").read_text())
    assert installed
    resolved = re.findall(r"--extra (\w+)", (root / "scripts/constraints.sh").read_text())
    assert set(installed[1].split(",")) == set(resolved) == {"all", "dev"}


def test_help_names_every_target(root: Path) -> None:
    """The list is read from the Makefile, so a target without a comment would be missing."""
    makefile = (root / "Makefile").read_text()
    phony = next(line for line in makefile.splitlines() if line.startswith(".PHONY:")).split()[1:]
    shown = subprocess.run(
        ["make", "--no-print-directory", "help"], cwd=root, capture_output=True, text=True, check=True
    )
    assert [line.split()[0] for line in shown.stdout.splitlines()[1:]] == phony


def test_every_supported_python_has_its_constraints(root: Path) -> None:
    """One list of versions: of the package, the resolver and the files."""
    resolved = re.search(r"for version in ([\d. ]+);", (root / "scripts/constraints.sh").read_text("utf-8"))
    assert resolved
    versions = resolved[1].split()
    pinned = {file.name: file.read_text("utf-8") for file in (root / "constraints").iterdir()}
    assert {f"python{version}.txt" for version in versions} == pinned.keys()
    for text in pinned.values():  # what the shipped tasks need
        names = set(re.findall(r"^(.+)==", text, re.M))
        assert {"ale-py", "box2d", "minigrid", "opencv-python-headless", "popgym", "torch"} <= names
    first, last = versions[0], int(versions[-1].removeprefix("3."))
    required = f'requires-python = ">={first},<3.{last + 1}"'
    assert required in (root / "pyproject.toml").read_text("utf-8").splitlines()
