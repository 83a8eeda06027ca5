"""``docs/reliability.md`` and the tests tell of the same faults."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from algorithm.app.command import guarded
from algorithm.core.errors import EnvError, UsageError
from algorithm.core.system.processes import STOP_SIGNALS

ROOT = Path(__file__).resolve().parents[2]
FAULTS = [f"F{number:02d}" for number in range(1, 46)]
LATER = "comes with population training"
ROW = re.compile(r"^\| (F\d\d) \| (.+) \|$", re.M)
LISTED = re.compile(r"(tests/[\w/]+\.py)::(\w+)")


def rows_of(page: str) -> list[tuple[str, str]]:
    """Id and the rest of each row."""
    return ROW.findall(page)


def marked_tests(files: Mapping[str, str]) -> dict[str, set[str]]:
    """Fault -> the tests that are marked with it, as ``path::name``. files: path -> source."""
    found: dict[str, set[str]] = {}
    for path, source in files.items():
        body = ast.parse(source).body
        assigned = [
            node.value
            for node in body
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark"
        ]
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                for fault in _faults(assigned) | _faults(node.decorator_list):
                    found.setdefault(fault, set()).add(f"{path}::{node.name}")
    return found


def _faults(marks: Iterable[ast.expr]) -> set[str]:
    calls = [node for mark in marks for node in ast.walk(mark) if isinstance(node, ast.Call)]
    marked = [call for call in calls if ast.unparse(call.func) == "pytest.mark.fault"]
    return {str(ast.literal_eval(call.args[0])) for call in marked}


def objections(page: str, marked: Mapping[str, set[str]]) -> list[str]:
    """What is wrong with the page; one readable line each."""
    rows = rows_of(page)
    found = [f"{fault} is marked and not in the table" for fault in marked if fault not in dict(rows)]
    for fault, row in rows:
        listed = {f"{path}::{name}" for path, name in LISTED.findall(row)}
        found += [
            f"{fault} lists {test}, which is not marked with it" for test in listed - marked.get(fault, set())
        ]
        if not listed and fault in marked:
            found.append(f"{fault} lists none of its tests")
        if not listed and LATER not in row:
            found.append(f"{fault} has neither a test nor the part that it comes with")
    return found


@pytest.fixture(scope="module")
def page() -> str:
    return (ROOT / "docs" / "reliability.md").read_text("utf-8")


@pytest.fixture(scope="module")
def marked() -> dict[str, set[str]]:
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    return marked_tests({file.relative_to(ROOT).as_posix(): file.read_text("utf-8") for file in files})


def test_every_fault_has_one_row(page: str) -> None:
    assert [fault for fault, _ in rows_of(page)] == FAULTS


def test_every_listed_test_injects_its_fault(page: str, marked: dict[str, set[str]]) -> None:
    assert objections(page, marked) == []


def test_no_other_fault_is_marked(marked: dict[str, set[str]]) -> None:
    assert set(marked) <= set(FAULTS)


CODE_ROW = re.compile(r"^\| ([\d, ]+) \| (.+) \|$", re.M)
PROGRAM = [
    ROOT / "main.py",
    *sorted((ROOT / "algorithm").rglob("*.py")),
    *sorted((ROOT / "ds").rglob("*.py")),
]


def codes_of(sources: Iterable[str]) -> set[int]:
    """Every number that a class of errors has as its ``exit_code``, or that ``guarded`` returns."""
    found: set[int] = set()
    for source in sources:
        tree = ast.parse(source)
        known = {ast.unparse(one.targets[0]): one.value for one in tree.body if isinstance(one, ast.Assign)}
        for node in ast.walk(tree):
            values: list[ast.expr | None] = []
            if isinstance(node, ast.ClassDef):
                assigned = [one for one in node.body if isinstance(one, ast.Assign)]
                values = [one.value for one in assigned if ast.unparse(one.targets[0]) == "exit_code"]
            elif isinstance(node, ast.FunctionDef) and node.name == "guarded":
                values = [one.value for one in ast.walk(node) if isinstance(one, ast.Return)]
            for value in values:
                number = known.get(value.id) if isinstance(value, ast.Name) else value
                if isinstance(number, ast.Constant):
                    found.add(int(number.value))
    return found


def test_the_table_has_every_exit_code_and_no_other(page: str) -> None:
    told = {int(code) for codes, _ in CODE_ROW.findall(page) for code in codes.split(",")}
    of_signals = {128 + number for number in STOP_SIGNALS}
    assert told == {0, *codes_of(file.read_text("utf-8") for file in PROGRAM), *of_signals}


def test_codes_are_found() -> None:
    source = "TWO = 2\nclass A(E):\n    exit_code = TWO\nclass B(E):\n    exit_code = 7\n    other = 8\n"
    assert codes_of([source, "def guarded():\n    return 1 if x else 3\n    return 9\n"]) == {2, 7, 9}


@pytest.mark.parametrize(
    ("error", "code"),
    [(RuntimeError("x"), 1), (KeyboardInterrupt(), 130), (UsageError("x"), 2), (EnvError("x"), 4)],
)
def test_a_command_ends_with_the_code_of_its_error(error: BaseException, code: int) -> None:
    def command() -> int:
        raise error

    assert guarded(command, debug=False) == code


SOURCE = """\
import pytest

pytestmark = [pytest.mark.fault("F02"), pytest.mark.slow]

@pytest.mark.fault("F01")
@pytest.mark.parametrize("a", [1])
def test_a(a): ...

def test_b(): ...

def helper(): ...
"""


def test_marks_are_found() -> None:
    assert marked_tests({"tests/test_x.py": SOURCE}) == {
        "F01": {"tests/test_x.py::test_a"},
        "F02": {"tests/test_x.py::test_a", "tests/test_x.py::test_b"},
    }


@pytest.mark.parametrize(
    ("page", "objection"),
    [
        ("| F01 | x | `tests/test_x.py::test_b` |", "F01 lists tests/test_x.py::test_b, which is not marked"),
        ("| F01 | x | `tests/test_x.py::test_z` |", "F01 lists tests/test_x.py::test_z, which is not marked"),
        ("| F02 | x | `tests/test_x.py::test_a` |", "F01 is marked and not in the table"),
        ("| F01 | x | comes with population training |", "F01 lists none of its tests"),
        ("| F03 | x | nothing |", "F03 has neither a test"),
    ],
)
def test_a_wrong_page_is_noticed(page: str, objection: str) -> None:
    found = objections(page, marked_tests({"tests/test_x.py": SOURCE}))
    assert any(line.startswith(objection) for line in found)


def test_a_right_page_passes() -> None:
    right = (
        "| F01 | x | `tests/test_x.py::test_a` |\n"
        "| F02 | x | `tests/test_x.py::test_a`, `tests/test_x.py::test_b` |\n"
        "| F03 | x | comes with population training |\n"
    )
    assert objections(right, marked_tests({"tests/test_x.py": SOURCE})) == []
