"""The table of extras: what it gives, and what an import that fails becomes."""

from __future__ import annotations

import sys

import pytest

from algorithm.core import extras
from algorithm.core.errors import UsageError
from algorithm.core.extras import PLACES, Place, extra


@pytest.mark.parametrize("name", PLACES)
def test_every_name_is_what_its_module_defines(name: str) -> None:
    assert extra(name).__module__ == PLACES[name].module


def test_a_folder_that_is_not_there_is_no_fault_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "PLACES", {"tune": Place("algorithm.extras.absent.command", "tune")})
    with pytest.raises(UsageError) as raised:
        extra("tune")
    assert raised.value.where == "algorithm/extras/absent" and '".[tune]"' in raised.value.fix


def test_another_package_that_is_not_there_is_left_to_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psutil", None)
    monkeypatch.setattr(extras, "PLACES", {"tune": Place("tests.extras.without_psutil")})
    with pytest.raises(ModuleNotFoundError, match="psutil"):
        extra("tune")
