"""What `make` says on machines that lack something, played with stand-ins for Python and pip."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

PYTHON = """#!/bin/sh
echo "$*" >> "{log}"
case "$*" in
  *version_info*) echo {minor} ;;
  *ensurepip*) exit {ensurepip} ;;
  "-m venv "*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
  *"pip install"*) exit "${{PIP_RESULT:-0}}" ;;
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

    def add_python(self, name: str, minor: int, *, ensurepip: bool = True) -> Path:
        """Put a stand-in on the PATH that calls itself Python 3.``minor``."""
        file = self.bin / name
        file.write_text(PYTHON.format(log=self.log, minor=minor, ensurepip=0 if ensurepip else 1))
        file.chmod(0o755)
        return file

    def run(self, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run the script with only our tools and stand-ins on the PATH."""
        command = [str(self.bin / "bash"), str(self.folder / "scripts/venv.sh")]
        environment = {"PATH": str(self.bin)} | environment
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    @property
    def stamp(self) -> Path:
        return self.folder / ".venv/.installed"

    def installations(self) -> int:
        """How often pip was asked to install."""
        return self.log.read_text().count("pip install") if self.log.exists() else 0


@pytest.fixture
def checkout(root: Path, tmp_path: Path) -> Checkout:
    return Checkout(root, tmp_path)


def test_no_python_at_all(checkout: Checkout) -> None:
    result = checkout.run()
    assert result.returncode == 1
    assert "no Python 3.10 to 3.13" in result.stderr
    assert "sudo apt install python3 python3-venv" in result.stderr


def test_only_an_unsupported_python(checkout: Checkout) -> None:
    checkout.add_python("python3", 14)
    assert "(python3 is Python 3.14)" in checkout.run().stderr


def test_the_python_asked_for_is_unsupported(checkout: Checkout) -> None:
    checkout.add_python("python3.11", 11)
    result = checkout.run(PYTHON=str(checkout.add_python("other", 9)))
    assert result.returncode == 1
    assert "is Python 3.9, not a Python 3.10 to 3.13" in result.stderr


def test_the_python_asked_for_does_not_exist(checkout: Checkout) -> None:
    assert "PYTHON=nowhere is not a Python 3.10 to 3.13" in checkout.run(PYTHON="nowhere").stderr


def test_venv_is_missing(checkout: Checkout) -> None:
    checkout.add_python("python3.11", 11, ensurepip=False)
    result = checkout.run()
    assert result.returncode == 1
    assert "sudo apt install python3.11-venv" in result.stderr


@pytest.mark.parametrize("minor", [12, 13])
def test_compiler_is_missing(checkout: Checkout, minor: int) -> None:
    checkout.add_python(f"python3.{minor}", minor)
    result = checkout.run()
    assert result.returncode == 1
    assert f"sudo apt install g++ python3.{minor}-dev" in result.stderr


def test_a_ready_package_is_preferred_to_compiling(checkout: Checkout) -> None:
    checkout.add_python("python3.12", 12)
    checkout.add_python("python3.10", 10)
    assert checkout.run().returncode == 0
    assert "constraints/python3.10.txt" in checkout.log.read_text()


def test_installs_once(checkout: Checkout) -> None:
    checkout.add_python("python3", 11)
    assert checkout.run().returncode == 0
    second = checkout.run()
    assert (second.returncode, second.stderr) == (0, "")
    assert checkout.installations() == 1


def test_a_half_finished_installation_is_finished(checkout: Checkout) -> None:
    checkout.add_python("python3.11", 11)
    failed = checkout.run(PIP_RESULT="1")
    assert failed.returncode == 1
    assert "the installation failed" in failed.stderr
    assert not checkout.stamp.exists()
    assert checkout.run().returncode == 0
    assert checkout.stamp.exists()
    assert checkout.installations() == 2


def test_a_failed_change_is_not_undone_by_undoing_it(checkout: Checkout) -> None:
    """Half of the new versions may be there when the old requirements come back."""
    checkout.add_python("python3.11", 11)
    checkout.run()
    before = (checkout.folder / "requirements.txt").read_text()
    change_requirements(checkout)
    checkout.run(PIP_RESULT="1")
    (checkout.folder / "requirements.txt").write_text(before)
    checkout.run()
    assert checkout.installations() == 3


def change_requirements(checkout: Checkout) -> None:
    (checkout.folder / "requirements.txt").write_text("numpy\n")


def change_constraints(checkout: Checkout) -> None:
    (checkout.folder / "constraints/python3.11.txt").write_text("numpy==2.0\n")


def change_extras(checkout: Checkout) -> None:
    (checkout.folder / "pyproject.toml").write_text("")


@pytest.mark.parametrize("change", [change_requirements, change_constraints, change_extras])
def test_a_change_installs_again(checkout: Checkout, change: Callable[[Checkout], None]) -> None:
    checkout.add_python("python3.11", 11)
    checkout.run()
    change(checkout)
    assert checkout.run().returncode == 0
    assert checkout.installations() == 2


def test_what_is_installed_is_what_was_resolved(root: Path) -> None:
    """An extra that is installed and was not resolved would come in any version."""
    installed = re.search(r"--editable '\.\[([\w,]+)\]'", (root / "scripts/venv.sh").read_text())
    assert installed
    resolved = re.findall(r"--extra (\w+)", (root / "scripts/constraints.sh").read_text())
    assert set(installed[1].split(",")) == set(resolved) == {"all", "dev"}


@pytest.mark.parametrize("version", ["3.10", "3.11", "3.12", "3.13"])
def test_what_the_shipped_tasks_need_is_pinned(root: Path, version: str) -> None:
    pinned = set(re.findall(r"^(.+)==", (root / f"constraints/python{version}.txt").read_text(), re.M))
    assert {"ale-py", "box2d", "minigrid", "opencv-python-headless", "popgym", "gymnasium", "torch"} <= pinned


def test_another_python_makes_another_environment(checkout: Checkout) -> None:
    checkout.add_python("python3.11", 11)
    checkout.run()
    other = checkout.add_python("python3.10", 10)
    assert "Creating .venv" in checkout.run(PYTHON=str(other)).stderr
    assert (checkout.run().returncode, checkout.installations()) == (0, 2)


def test_a_broken_environment_is_made_again(checkout: Checkout) -> None:
    checkout.add_python("python3.11", 11)
    checkout.run()
    (checkout.folder / ".venv/bin/python").unlink()
    assert "Creating .venv" in checkout.run().stderr


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
    assert {f"python{version}.txt" for version in versions} == {
        file.name for file in (root / "constraints").iterdir()
    }
    first, last = versions[0], int(versions[-1].removeprefix("3."))
    required = f'requires-python = ">={first},<3.{last + 1}"'
    assert required in (root / "pyproject.toml").read_text("utf-8").splitlines()
