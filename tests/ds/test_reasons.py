"""Why a learner did not answer, in few words."""

from __future__ import annotations

import grpc
import pytest

from ds.client import passing

AWAY = grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize(
    ("details", "words"),
    [
        (
            "failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:61001: Failed to "
            "connect to remote host: connect: Connection refused (111)",
            "nobody listens there",
        ),
        ("Stream removed (Socket closed)", "it hung up"),
        ("recvmsg:Connection reset by peer", "it hung up"),
        ("DNS resolution failed for nowhere:61001", "its name is not known"),
        ("the moon is in the way", "unavailable: the moon is in the way"),
    ],
)
def test_what_is_known_is_said_in_few_words_and_the_rest_as_it_is(details, words):
    assert passing(AWAY, details, timeout=20.0) == words


def test_no_answer_in_time_names_the_time():
    code = grpc.StatusCode.DEADLINE_EXCEEDED
    assert passing(code, "Deadline Exceeded", timeout=20.0) == "no answer within 20 s"
