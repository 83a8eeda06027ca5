"""Why the learner did not answer this time, in few words; gRPC uses many, and says the address twice."""

from __future__ import annotations

import grpc

_WORDS = (
    ("Connection refused", "nobody listens there"),
    ("Socket closed", "it hung up"),
    ("Connection reset", "it hung up"),
    ("GOAWAY", "it hung up"),
    ("Broken pipe", "it hung up"),
    ("keepalive", "the connection is dead"),
    ("No route to host", "no way leads there"),
    ("Network is unreachable", "no way leads there"),
    ("Name or service not known", "its name is not known"),
    ("DNS resolution failed", "its name is not known"),
    ("FD Shutdown", "no connection came about in time"),
    ("onnection timed out", "no connection came about in time"),
    ("onnect timeout", "no connection came about in time"),
)
"""Part of what gRPC says, and what that means; the first one that is there counts."""


def passing(code: grpc.StatusCode, details: str, *, timeout: float) -> str:
    """A reason that may pass. timeout: seconds that the call was given."""
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return f"no answer within {timeout:.3g} s"
    known = (words for part, words in _WORDS if part in details)
    return next(known, f"{code.name.lower()}: {details}")
