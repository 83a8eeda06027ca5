"""The scripts of the house: the budget of statements, the list of mutations, the comparison of two trees."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from scripts import mutations
from scripts.mutations import Mutation, locate, read_source, read_table


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
