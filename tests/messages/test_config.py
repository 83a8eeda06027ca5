"""The golden file has every message about a wrong configuration or command line as it is now."""

import pytest

from tests.messages.config import GOLDEN, rendered


@pytest.mark.fault("F21")
def test_messages_are_those_of_the_golden_file() -> None:
    assert rendered() == GOLDEN.read_text("utf-8"), "run python -m tests.messages.config and look at the diff"
