"""Each message is that of the golden file."""

from __future__ import annotations

from difflib import unified_diff

import pytest

from tests.messages import areas, golden, rendered


@pytest.mark.fault("F21")
@pytest.mark.parametrize("area", areas())
def test_messages_are_those_of_the_golden_file(area: str) -> None:
    lines = unified_diff(golden(area).splitlines(), rendered(area).splitlines(), "golden.txt", "now", n=5)
    diff = "\n".join(line.rstrip() for line in lines)
    assert not diff, f"if it is as it should be: python -m tests.messages\n{diff}"
