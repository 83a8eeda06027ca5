"""One small training, which the tests of a process share."""

from __future__ import annotations

import pytest

import asac
from tests.extras.short_run import SHORT

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> asac.Run:
    """A run of CartPole-v1 with three checkpoints, the best of step 80 or 120."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("algorithm.app.summaries.write_report", lambda *_, **__: None)
        patch.setattr(
            "algorithm.app.summaries.plot_curve",
            lambda path, *_, **__: path.parent.mkdir(exist_ok=True) or path.write_bytes(PNG),
        )
        folder = tmp_path_factory.mktemp("trained")
        return asac.train("CartPole-v1", name="first", directory=folder / "models", **SHORT)
