"""``docs/reliability.md`` and the tests name the same faults."""

from __future__ import annotations

import ast
import re
from collections.abc import Set
from pathlib import Path

import pytest

from algorithm.app.command import guarded
from algorithm.core.errors import EnvError, UsageError
from algorithm.core.system.processes import STOP_SIGNALS

ROOT = Path(__file__).resolve().parents[2]
FAULTS = [f"F{number:02d}" for number in range(1, 46)]
ROW = re.compile(r"^\| (F\d\d) \| (.+) \|$", re.M)
CODE_ROW = re.compile(r"^\| ([\d, ]+) \| (.+) \|$", re.M)
MARK = re.compile(r"pytest\.mark\.fault\('(F\d\d)'\)")


def marked_faults(source: str) -> set[str]:
    """Return the faults that the tests of a file are marked with."""
    body = ast.parse(source).body
    of_all = [ast.unparse(node) for node in body if ast.unparse(node).startswith("pytestmark =")]
    tests = [node for node in body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]
    marks = [*of_all, *(ast.unparse(mark) for test in tests for mark in test.decorator_list)]
    return set(MARK.findall(" ".join(marks))) if tests else set()


def objections(page: str, marked: Set[str]) -> list[str]:
    """Return the faults of the page, a readable line each."""
    listed = [fault for fault, _ in ROW.findall(page)]
    found = [f"{fault} is marked and not in the table" for fault in sorted(marked - set(listed))]
    return found + [f"{fault} has no test" for fault in listed if fault not in marked]


@pytest.fixture(scope="module")
def page() -> str:
    return (ROOT / "docs" / "reliability.md").read_text("utf-8")


def test_every_fault_has_a_row_and_a_test(page: str) -> None:
    assert [fault for fault, _ in ROW.findall(page)] == FAULTS
    files = (ROOT / "tests").rglob("test_*.py")
    marked = set().union(*(marked_faults(file.read_text("utf-8")) for file in files))
    assert objections(page, marked) == []


def codes_of(source: str) -> set[int]:
    """Every number that a class of errors has as its ``exit_code``, or that ``guarded`` returns."""
    tree = ast.parse(source)
    known = {ast.unparse(one.targets[0]): one.value for one in tree.body if isinstance(one, ast.Assign)}
    values: list[ast.expr | None] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            assigned = [one for one in node.body if isinstance(one, ast.Assign)]
            values += [one.value for one in assigned if ast.unparse(one.targets[0]) == "exit_code"]
        elif isinstance(node, ast.FunctionDef) and node.name == "guarded":
            values += [one.value for one in ast.walk(node) if isinstance(one, ast.Return)]
    numbers = [known.get(one.id) if isinstance(one, ast.Name) else one for one in values]
    return {int(one.value) for one in numbers if isinstance(one, ast.Constant)}


def test_the_table_has_every_exit_code_and_no_other(page: str) -> None:
    told = {int(code) for codes, _ in CODE_ROW.findall(page) for code in codes.split(",")}
    program = [ROOT / "main.py", *(ROOT / "algorithm").rglob("*.py"), *(ROOT / "ds").rglob("*.py")]
    found = {code for file in program for code in codes_of(file.read_text("utf-8"))}
    assert told == {0, *found, *(128 + number for number in STOP_SIGNALS)}


@pytest.mark.parametrize(
    ("error", "code"),
    [(RuntimeError("x"), 1), (KeyboardInterrupt(), 130), (UsageError("x"), 2), (EnvError("x"), 4)],
)
def test_a_command_ends_with_the_code_of_its_error(error: BaseException, code: int) -> None:
    def command() -> int:
        raise error

    assert guarded(command, debug=False) == code


SOURCE = """\
pytestmark = [pytest.mark.fault("F02"), pytest.mark.slow]

@pytest.mark.fault("F01")
@pytest.mark.parametrize("a", [1])
def test_a(a): ...

def test_b(): ...
"""
RIGHT = "| F01 | x |\n| F02 | x |\n"


@pytest.mark.parametrize(
    ("page", "number"),
    [
        (RIGHT, 0),
        (RIGHT + "| F03 | x |\n", 1),  # no test is marked with it
        (RIGHT.replace("F01", "F04"), 2),  # F01 is not in the table
    ],
)
def test_a_wrong_page_is_noticed(page: str, number: int) -> None:
    assert len(objections(page, marked_faults(SOURCE))) == number


def test_codes_are_found() -> None:
    source = "TWO = 2\nclass A(E):\n    exit_code = TWO\nclass B(E):\n    exit_code = 7\n    other = 8\n"
    assert codes_of(source + "def guarded():\n    return 1 if x else 3\n    return 9\n") == {2, 7, 9}
