"""The trainer configurations of ``mlagents_files.yaml``."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from algorithm.config.schema import Config

FILES: dict[str, str] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text("utf-8"))
"""Name -> text of a file; ``{demos}`` in it stands for a folder of recordings."""


def without_parameters(text: str) -> str:
    """Return a translation without ``environment_parameters`` where our configuration has no such block."""
    if "environment_parameters" in Config.model_fields:
        return text
    return re.sub(r"(?m)^  environment_parameters:\n(?:    .*\n)+", "", text)
