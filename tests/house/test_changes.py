"""The choice of the extras whose tests a change needs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.house.changes import untouched

SOURCES = {
    "README.md": "",
    "main.py": "import algorithm.core.run",
    "algorithm/__init__.py": "",
    "algorithm/core/__init__.py": "",
    "algorithm/core/run.py": "",
    "algorithm/core/other.py": "",
    "algorithm/extras/a/__init__.py": "",
    "algorithm/extras/a/one.py": "from algorithm.core import run",
    "algorithm/extras/b/two.py": "import algorithm.extras.a.one",
    "algorithm/extras/c/three.py": "",
    "tests/conftest.py": "",
    "tests/tools.py": "import algorithm.core.other",
    **dict.fromkeys((f"tests/extras/{name}/__init__.py" for name in "abc"), ""),
    "tests/extras/c/test_c.py": "def test():\n    from tests import tools",
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Three extras; b is built on a, and the tests of c use a helper."""
    for file, text in SOURCES.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("file", "touched"),
    [
        ("algorithm/core/run.py", "ab"),
        ("algorithm/core/other.py", "c"),
        ("algorithm/core/__init__.py", "abc"),
        ("algorithm/extras/a/one.py", "ab"),
        ("algorithm/extras/a/table.yaml", "ab"),
        ("algorithm/extras/a/removed.py", "ab"),
        ("algorithm/extras/b/two.py", "b"),
        ("tests/extras/c/test_c.py", "c"),
        ("tests/tools.py", "c"),
        ("tests/conftest.py", "abc"),
        ("main.py", ""),
        ("docs/page.md", ""),
        ("docs/picture.svg", ""),
        ("README.md", ""),
        ("pyproject.toml", "abc"),
        ("envs/task/config.yaml", "abc"),
        ("algorithm/core/removed.py", "abc"),
    ],
)
def test_the_extras_that_a_file_touches(tree: Path, file: str, touched: str) -> None:
    assert untouched(tree, [file]) == frozenset("abc") - frozenset(touched)
    assert untouched(tree, [file, "docs/page.md", "pyproject.toml"]) == frozenset()
