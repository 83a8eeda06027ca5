"""The scripts of the house: the budget of statements, the list of mutations, the comparison of two trees."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from scripts import mutations, shape
from scripts.mutations import Mutation, locate, read_source, read_table

SOURCE = '''"""A docstring is no statement."""
class Pair:
    def __init__(self, a, b):
        """Nor is this one."""
        self.a, self.b = a, b
'''


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A core of three statements, one each of an extra and of tests, and just the budget for them."""
    files = {
        "algorithm/pair.py": SOURCE,
        "algorithm/extras/one/two.py": "x = 1\n",
        "tests/test_pair.py": "x = 1\n",
    }
    for file, text in files.items():
        (tmp_path / file).parent.mkdir(parents=True)
        (tmp_path / file).write_text(text)
    (tmp_path / "ds").mkdir()
    (tmp_path / "pyproject.toml").write_text("[tool.shape]\ncore = 3\nextras = 1\nds = 0\ntests = 1\n")
    return tmp_path


@pytest.mark.parametrize(
    ("folder", "exceeded"),
    [
        ("algorithm", "core: 4 statements, the budget is 3"),
        ("algorithm/extras/one", "extras: 2 statements, the budget is 1"),
        ("ds", "ds: 1 statements, the budget is 0"),
        ("tests", "tests: 2 statements, the budget is 1"),
    ],
)
def test_one_statement_beyond_the_budget(
    tree: Path, capsys: pytest.CaptureFixture[str], folder: str, exceeded: str
):
    assert shape.main(["--check"], tree) == 0
    (tree / folder / "more.py").write_text("x = 1\n")
    assert shape.main(["--check"], tree) == 1
    said = capsys.readouterr().err
    assert said.startswith(exceeded) and "Whoever raises the number says in the commit" in said


def test_every_mutation_fits_the_source(root: Path):
    """Its snippet stands there once, what becomes of it is Python, and its tests are there."""
    table, source = read_table(), read_source(root)
    for one in table:
        ast.parse(source[locate(one, source)].replace(one.old, one.new))
        assert one.old != one.new, one.name
        missing = [
            word for word in one.tests.split() if word.startswith("tests") and not (root / word).exists()
        ]
        assert not missing, one.name
    names = Counter(name for one in table for name in {one.name, one.area})
    assert len(table) >= 64 and max(names[one.name] for one in table) == 1


def test_a_snippet_must_stand_in_the_source_once():
    both = Mutation(area="", name="", old="x = 1", new="x = 2", tests="")
    with pytest.raises(LookupError, match=r"2 times in b\.py"):
        locate(both, {Path("a.py"): "y = 1", Path("b.py"): "x = 1\nx = 1"})
    with pytest.raises(LookupError, match="it is not there"):
        locate(both, {Path("a.py"): "y = 1"})


@pytest.mark.slow
def test_a_mutation_is_caught(capsys: pytest.CaptureFixture[str]):
    assert mutations.main(["one-step-drops-gamma", "--jobs", "1"]) == 0
    first, last = capsys.readouterr().out.splitlines()
    assert first.startswith("caught") and "tests/ops/test_returns.py::" in first
    assert last == "1 of 1 mutations caught"


@pytest.mark.slow
def test_a_tree_trains_what_its_own_commit_trains(root: Path):
    command = [sys.executable, "scripts/golden.py", "HEAD", "--only", "continuous", "learner"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and "2 of 2 cases are the same" in done.stdout, done.stdout + done.stderr
