"""The trainer configurations of ``mlagents_files.yaml``."""

from __future__ import annotations

from pathlib import Path

import yaml

FILES: dict[str, str] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text("utf-8"))
"""Name -> text of a file; ``{demos}`` in it stands for a folder of recordings."""
