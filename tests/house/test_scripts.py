"""The scripts of the house: the budget of statements, the list of mutations, the comparison of two trees."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from scripts import mutations, names, shape, words
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


def test_what_is_counted(tree: Path, capsys: pytest.CaptureFixture[str]):
    assert shape.main([], tree) == 0
    first, second, *_, last = capsys.readouterr().out.splitlines()[1:]
    assert first.split() == ["algorithm", "1", "5", "3", "1", "5/5/5", "3/3/3"]
    assert second.split()[:4] == ["algorithm/extras/one", "1", "1", "1"]
    assert last == "statements: core 3, extras 1, ds 0, tests 1"


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


def test_a_file_that_cannot_be_parsed_is_named(tree: Path, capsys: pytest.CaptureFixture[str]):
    (tree / "tests" / "broken.py").write_text("def\n")
    assert shape.main(["--check"], tree) == 0
    assert capsys.readouterr().err.startswith("tests/broken.py: not counted, it cannot be parsed")


PAGE = """# Two words

Four [words of](https://example.org/a-long-address "a title") prose. <!-- none -->

| a table | is none |
| --- | --- |

```sh
asac Pendulum-v1 # nor is code
```

1. * – Five more, with one `key`.
"""


def test_words_of_prose_and_one_beyond_the_budget(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "docs").mkdir()
    for page in ("README.md", "CONTRIBUTING.md", "docs/a.md", "docs/api.md"):
        (tmp_path / page).write_text(PAGE)
    budget = tmp_path / "pyproject.toml"
    for pages, prose, code in ((4, 36, 0), (3, 36, 1), (4, 35, 1)):
        budget.write_text(f"[tool.words]\npages = {pages}\nprose = {prose}\n")
        assert words.main(["--check"], tmp_path) == code
        said = capsys.readouterr()
        assert said.out.splitlines()[-1].split() == ["4", "pages", "36"] and bool(said.err) == bool(code)


def test_names_that_say_nothing_are_found_and_counted_below_a_relative_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "file.py").write_text(
        'def steps(own):\n    """Return what is asked for."""\n\n\ndef size():\n    """Its size."""\n'
    )
    monkeypatch.chdir(tmp_path)
    assert names.main(["package"], tmp_path) == 1
    kinds = [line.split(": ")[1] for line in capsys.readouterr().err.splitlines()]
    assert sorted(kinds) == ["empty", "name", "person", "return"]
    assert names.main(["--count", "package"], tmp_path) == 1
    assert capsys.readouterr().out.splitlines()[0].split() == ["package", "empty", "1"]


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
