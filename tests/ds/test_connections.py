"""Connections that do nothing: how many of them there may be, and what they do to a training."""

from __future__ import annotations

import contextlib
import resource
import signal
import socket
import time
from collections.abc import Iterator

import pytest

import ds.server
from ds import connections
from ds.connections import MAX_CONNECTIONS, RESERVED, ConnectionLimiter, most_connections
from ds.protocol import Unreachable
from tests.ds.samples import HELLO, WELCOME
from tests.ds.scene import LENGTH, Scene
from tests.ds.talking import HOST, Learner, actor, learner


@contextlib.contextmanager
def strangers(number: int, port: int, host: str = HOST) -> Iterator[list[socket.socket]]:
    """So many connections on which nothing is said."""
    with contextlib.ExitStack() as stack:
        found = [stack.enter_context(socket.create_connection((host, port), 5)) for _ in range(number)]
        for one in found:
            one.setblocking(False)
        yield found


def still_open(found: list[socket.socket]) -> int:
    number = 0
    for one in found:
        try:
            number += bool(one.recv(4096))
        except BlockingIOError:
            number += 1
        except OSError:
            pass
    return number


def falls(found: list[socket.socket], most: int) -> bool:
    """Whether no more than ``most`` are left open, soon."""
    until = time.monotonic() + 8
    while still_open(found) > most:
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[Learner]:
    """At most 40 connections, 8 silent ones of an address."""
    monkeypatch.setattr(ds.server, "most_connections", lambda: 40)
    monkeypatch.setattr(connections, "MAX_SILENT", 8)
    monkeypatch.setattr(connections, "LOOK_S", 1.5)  # for so long only the total counts
    with learner(handshake_s=60.0) as one:
        yield one


@pytest.mark.fault("F30")
def test_a_crowd_is_kept_out_and_who_talks_stays(small: Learner) -> None:
    with actor(small.port) as known, actor(small.port) as other:
        assert known.hello(HELLO) == WELCOME
        with strangers(120, small.port) as crowd:
            assert falls(crowd, 39) and still_open(crowd) > 8
            assert known.hello(HELLO) == WELCOME
            assert falls(crowd, 8)
            for _ in range(20):  # one comes in while the crowd stands at the door
                with contextlib.suppress(Unreachable):
                    assert other.hello(HELLO) == WELCOME
                    break
            assert known.hello(HELLO) == WELCOME
    assert set(small.kinds) == {"crowded"} and small.loop_errors == []
    assert any(f"{HOST}: 4" in what and "are closed" in what for _, what in small.faults)


@pytest.mark.fault("F30")
def test_no_address_has_all_connections(small: Learner) -> None:
    """Not even one whose connections talk: those beyond three quarters are closed, the last ones first."""
    with contextlib.ExitStack() as stack:
        talking = [stack.enter_context(actor(small.port)) for _ in range(36)]
        for one in talking:
            with contextlib.suppress(Unreachable):
                one.hello(HELLO)
        until = time.monotonic() + 8
        while not any("are closed" in what for _, what in small.faults):
            assert time.monotonic() < until
            time.sleep(0.02)
        assert talking[0].hello(HELLO) == WELCOME


def test_what_counts_as_one_address() -> None:
    same = connections._network
    assert same("10.0.0.1") != same("10.0.0.2")
    assert same("fd00::1") == same("fd00::2:0:0:1") != same("fd00:0:0:1::1")
    watched = ConnectionLimiter(1, 10, lambda kind, what: None)
    for peer in ("10.0.0.1:5", "[::ffff:10.0.0.1]:6", "[fe80::1%eth0]:7", "nonsense"):
        watched.note_message(peer)
    assert watched._spoke == {("10.0.0.1", 5), ("10.0.0.1", 6), ("fe80::1", 7)}


@pytest.mark.fault("F30")
@pytest.mark.parametrize(
    ("soft", "hard", "raised"),
    [(1024, 1024, 1024), (256, 256, 256), (64, 64, 64), (256, 10**6, 1536), (4096, 10**6, 4096)],
)
def test_descriptors_are_left_for_everything_else(
    soft: int, hard: int, raised: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = [(soft, hard)]
    monkeypatch.setattr(resource, "getrlimit", lambda which: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda which, limit: limits.append(limit))
    monkeypatch.setattr(connections, "open_descriptors", lambda: list(range(30)))
    most = most_connections()
    assert limits[-1] == (raised, hard)
    assert 1 <= most <= MAX_CONNECTIONS
    free = raised - 30 - most
    assert free >= RESERVED or free >= (raised - 30) // 2


@pytest.mark.fault("F30")
@pytest.mark.slow
def test_a_flood_of_connections_leaves_a_training_alone(tmp_path) -> None:
    """Three times as many as the learner has descriptors, soft limit and hard one alike."""
    scene = Scene(tmp_path)
    try:
        process = scene.learner(descriptors=300)
        one = scene.actor("one")
        scene.until_stored(one.pid)
        with strangers(450, scene.port) as first, strangers(450, scene.port) as second:
            scene.until_steps(10 * LENGTH)
            assert still_open([*first, *second]) < 300
            late = scene.actor("late")
            scene.until_stored(one.pid, late.pid)
        assert scene.end(process, signal.SIGINT) == 130
        assert "Too many open files" not in scene.said("learner")
        assert scene.lines("learner", "crowded: ") and not scene.lines("one", "no answer")
        assert [scene.end(each, signal.SIGINT) for each in (one, late)] == [130, 130]
    finally:
        scene.close()
