"""The number of places that a new key touches, counted by adding one to a copy of the project."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from algorithm.config import reference

ROOT = Path(__file__).parents[2]
OWNER = Path("algorithm/agents/sac/config.py")
BEFORE = "    batch_size: Whole = option("
KEY = """\
    dropout: Finite = option(
        0.25, "Share of units.", resume="fixed: other networks", shared=True, ge=0, le=1
    )

"""
USE = """
import json
from algorithm.config import load_config
from algorithm.config.resume_rules import changes
from ds.compatibility import settings
old, new = (load_config("CartPole-v1", overrides=["sac_config.dropout=" + value], seed=1) for value in "01")
print(json.dumps([
    [str(change.effect) for change in changes(old, new)],
    settings(new.config)["sac_config.dropout"],
    new.differences()["sac_config.dropout"],
]))
"""


def texts(folder):
    found = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(folder): path.read_bytes() for path in found}


@pytest.fixture
def copy(tmp_path):
    for name in ("algorithm", "ds"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "docs").mkdir()
    for path in reference.generated():
        shutil.copy(ROOT / path, tmp_path / path)
    return tmp_path


def python(folder, *arguments):
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout


def test_a_key_is_declared_in_one_place_and_generated_files_follow(copy):
    source = (copy / OWNER).read_text("utf-8")
    assert source.count(BEFORE) == 1
    (copy / OWNER).write_text(source.replace(BEFORE, KEY + BEFORE), "utf-8")

    python(copy, "-m", "algorithm.config.reference", "--write")
    changed = {path for path, text in texts(copy).items() if text != (ROOT / path).read_bytes()}
    assert changed - reference.generated().keys() == {OWNER}, "one edit in one file"
    assert changed >= reference.generated().keys()
    listing = (copy / "algorithm" / "default_config.yaml").read_text("utf-8")
    assert "# [shared] [fixed] Share of units.\n  dropout: 0.25\n" in listing
    assert json.loads(python(copy, "-c", USE)) == [["refused: other networks"], 1, 1.0]
