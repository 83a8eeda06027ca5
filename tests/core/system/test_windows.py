"""What is prepared for Windows, shown on Linux: nothing here has run on Windows."""

import re

from tests.house.test_architecture import MODULES

SPECIAL = re.compile(
    r"""["']/(?:proc|dev|sys)/|preexec_fn=|pass_fds=|(?:get_context|set_start_method)\((?!"spawn")|"""
    r"""start_new_session=(?!True, creationflags=)"""
)
"""Faults on Windows that `mypy --platform win32` does not notice, since it looks at names alone."""


def test_what_only_some_systems_have_stands_in_one_package() -> None:
    found = {module.name for module in MODULES if SPECIAL.search(module.source)}
    assert found and all(name.startswith("algorithm.core.system.") for name in found)
