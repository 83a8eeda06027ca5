"""The export of the small training."""

from __future__ import annotations

from pathlib import Path

import pytest

import asac


@pytest.fixture
def exported(run: asac.Run, cwd: Path) -> Path:
    """Its export, in the folder that a test stands in, far from the run."""
    return run.export(cwd / "first.zip", 120)
