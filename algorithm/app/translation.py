"""Translation of ML-Agents' trainer files, as ``asac.from_mlagents``."""

from __future__ import annotations

from pathlib import Path

from algorithm.core.extras import extra


def from_mlagents(file: str | Path) -> str:
    """Translate an ML-Agents trainer configuration (0.12 or later); return the text of a ``config.yaml``.

    Comments show the ML-Agents key of each line, and settings without an equivalent. Raises ConfigError with
    the lines of all unknown keys and wrong values.
    """
    text: str = extra("translate")(Path(file)).text
    return text
