"""The list of mutations fits the source, and a planted mistake turns a test red."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest

from scripts.mutations import Mutation, locate, main, read_source, read_table


def test_every_mutation_fits_the_source(root: Path):
    """Its snippet stands there once, what becomes of it is Python, and its tests are there."""
    table, source = read_table(), read_source(root)
    for one in table:
        path = locate(one, source)
        ast.parse(source[path].replace(one.old, one.new))
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


def test_a_mutation_is_caught(capsys: pytest.CaptureFixture[str]):
    assert main(["one-step-drops-gamma", "--jobs", "1"]) == 0
    first, last = capsys.readouterr().out.splitlines()
    assert first.startswith("caught") and "tests/ops/test_returns.py::" in first
    assert last == "1 of 1 mutations caught"
