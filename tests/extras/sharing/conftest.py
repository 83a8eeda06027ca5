"""The export of the small training."""

from __future__ import annotations

from pathlib import Path

import pytest

import asac


@pytest.fixture
def exported(run: asac.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Its export, in the folder that a test stands in, far from the run."""
    monkeypatch.chdir(tmp_path)
    return run.export(tmp_path / "first.zip", 120)
