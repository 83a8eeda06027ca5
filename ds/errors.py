"""Errors between learner and actors."""

from __future__ import annotations

from algorithm.core.errors import UserError


class LearnerRefused(UserError):  # noqa: N818 - what happened
    """Refusal of this actor as it is: token, certificate, configuration or version."""

    exit_code = 3


class LearnerAway(UserError):  # noqa: N818
    """No answer from a learner within ``net_config.patience``."""

    exit_code = 3


class Unreachable(Exception):  # noqa: N818
    """No answer this time; the next call may succeed. One line."""


class Busy(Unreachable):
    """The learner is there, but takes no more calls at the moment."""


class WireError(ValueError):
    """Bytes that are no message, or a message that cannot become bytes. One line."""
