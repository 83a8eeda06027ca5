"""The table of extras: what it gives."""

from __future__ import annotations

import pytest

from algorithm.core.extras import PLACES, extra


@pytest.mark.parametrize("name", PLACES)
def test_every_name_is_what_its_module_defines(name: str) -> None:
    assert extra(name).__module__ == PLACES[name].module
