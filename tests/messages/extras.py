"""Messages on an extra whose folder is not there."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

from algorithm.core import extras
from algorithm.core.errors import UserError


def messages() -> Iterator[tuple[str, str]]:
    """Yield name and text."""
    yield "a folder that is not there", _asked_for(extras.Place("algorithm.extras.absent.command", "tune"))
    with patch.object(extras, "_CHECKOUT", Path("nowhere")):
        yield "the same, installed", _asked_for(extras.Place("algorithm.extras.absent.command", "tune"))
        yield "without packages of its own", _asked_for(extras.Place("algorithm.extras.absent"))


def _asked_for(place: extras.Place) -> str:
    with patch.object(extras, "PLACES", {"tune": place}):
        try:
            extras.extra("tune")
        except UserError as error:
            return f"{error}\nexit code {error.exit_code}".replace(sys.executable, "PYTHON")
    return ""
