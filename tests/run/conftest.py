"""The folder that runs are started in."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.run.sessions import TASK


@pytest.fixture
def task(tmp_path, monkeypatch) -> Path:
    """A folder to start from, with a small task in ``task/``."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "task").mkdir()
    (tmp_path / "task" / "config.yaml").write_text(TASK)
    return tmp_path / "models" / "task"
