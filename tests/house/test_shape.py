"""The budget of statements: kept, exceeded, and files that cannot be parsed."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.shape import main

SOURCE = '''"""A docstring is no statement."""
class Pair:
    def __init__(self, a, b):
        """Nor is this one."""
        self.a, self.b = a, b
'''


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A source of three statements, tests of one, and just the budget for them."""
    for file, text in {"algorithm/pair.py": SOURCE, "tests/test_pair.py": "import pair\n"}.items():
        (tmp_path / file).parent.mkdir()
        (tmp_path / file).write_text(text)
    (tmp_path / "pyproject.toml").write_text("[tool.shape]\nstatements = 3\ntests = 1\n")
    return tmp_path


def test_what_is_counted(tree: Path, capsys: pytest.CaptureFixture[str]):
    assert main([], tree) == 0
    assert capsys.readouterr().out.splitlines()[1].split() == [
        "algorithm",
        "1",
        "5",
        "3",
        "1",
        "5/5/5",
        "3/3/3",
    ]


@pytest.mark.parametrize(
    ("folder", "exceeded"),
    [
        ("algorithm", "algorithm ds asac: 4 statements, the budget is 3"),
        ("tests", "tests: 2 statements, the budget is 1"),
    ],
)
def test_one_statement_beyond_the_budget(
    tree: Path, capsys: pytest.CaptureFixture[str], folder: str, exceeded: str
):
    assert main(["--check"], tree) == 0
    (tree / folder / "more.py").write_text("x = 1\n")
    assert main(["--check"], tree) == 1
    said = capsys.readouterr().err
    assert said.startswith(exceeded) and "Whoever raises the number says in the commit" in said


def test_a_file_that_cannot_be_parsed_is_named(tree: Path, capsys: pytest.CaptureFixture[str]):
    (tree / "tests" / "broken.py").write_text("def\n")
    assert main(["--check"], tree) == 0
    assert capsys.readouterr().err.startswith("tests/broken.py: not counted, it cannot be parsed")
