"""The folder that commands are started in."""

from tests.run.conftest import task  # noqa: F401
