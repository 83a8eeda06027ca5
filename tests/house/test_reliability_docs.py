"""``docs/reliability.md`` and the tests tell of the same faults."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from algorithm.app.command import guarded
from algorithm.core.errors import EnvError, UsageError
from algorithm.core.system.processes import STOP_SIGNALS

ROOT = Path(__file__).resolve().parents[2]
FAULTS = [f"F{number:02d}" for number in range(1, 46)]
LATER = "comes with population training"
ROW = re.compile(r"^\| (F\d\d) \| (.+) \|$", re.M)
CODE_ROW = re.compile(r"^\| ([\d, ]+) \| (.+) \|$", re.M)
LISTED = re.compile(r"(tests/[\w/]+\.py)::(\w+)")
MARK = re.compile(r"pytest\.mark\.fault\('(F\d\d)'\)")


def marked_tests(files: Mapping[str, str]) -> dict[str, set[str]]:
    """Fault -> the tests that are marked with it, as ``path::name``. files: path -> source."""
    found: dict[str, set[str]] = {}
    for path, source in files.items():
        body = ast.parse(source).body
        of_all = [ast.unparse(node) for node in body if ast.unparse(node).startswith("pytestmark =")]
        for node in body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                for fault in MARK.findall(" ".join([*of_all, *map(ast.unparse, node.decorator_list)])):
                    found.setdefault(fault, set()).add(f"{path}::{node.name}")
    return found


def objections(page: str, marked: Mapping[str, set[str]]) -> list[str]:
    """Return the faults of the page, a readable line each."""
    rows = ROW.findall(page)
    found = [f"{fault} is marked and not in the table" for fault in marked if fault not in dict(rows)]
    for fault, row in rows:
        listed = {f"{path}::{name}" for path, name in LISTED.findall(row)}
        unmarked = listed - marked.get(fault, set())
        found += [f"{fault} lists {test}, which is not marked with it" for test in unmarked]
        if not listed and LATER not in row:
            found.append(f"{fault} lists no test, and not the part that it comes with")
    return found


@pytest.fixture(scope="module")
def page() -> str:
    return (ROOT / "docs" / "reliability.md").read_text("utf-8")


def test_every_fault_has_a_row_whose_tests_inject_it(page: str) -> None:
    assert [fault for fault, _ in ROW.findall(page)] == FAULTS
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    marked = marked_tests({file.relative_to(ROOT).as_posix(): file.read_text("utf-8") for file in files})
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
RIGHT = "| F01 | x | `tests/x.py::test_a` |\n| F02 | x | `tests/x.py::test_b` |\n"


@pytest.mark.parametrize(
    ("page", "number"),
    [
        (RIGHT, 0),
        (RIGHT + "| F03 | x | comes with population training |\n", 0),
        (RIGHT + "| F03 | x | nothing |\n", 1),
        (RIGHT.replace("test_a", "test_b"), 1),  # it is not marked
        (RIGHT.replace("F01", "F04"), 2),  # F01 is not in the table
    ],
)
def test_a_wrong_page_is_noticed(page: str, number: int) -> None:
    assert len(objections(page, marked_tests({"tests/x.py": SOURCE}))) == number


def test_codes_are_found() -> None:
    source = "TWO = 2\nclass A(E):\n    exit_code = TWO\nclass B(E):\n    exit_code = 7\n    other = 8\n"
    assert codes_of(source + "def guarded():\n    return 1 if x else 3\n    return 9\n") == {2, 7, 9}
