"""Real sockets: what arrives, what is refused before it is read, and who is told why."""

import contextlib
import logging
import os
import random
import resource
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np
import psutil
import pytest

import ds.net.port
import ds.net.server
from algorithm.core.errors import UsageError
from algorithm.core.spec import ActionSpec, AgentSpec, ObsSpec
from ds.net.port import most_connections
from ds.net.protocol import (
    SERVICE,
    Beat,
    Busy,
    Bye,
    LearnerRefused,
    Receipt,
    WeightRequest,
    Welcome,
)
from ds.net.wire import encode
from ds.weights import CHUNK
from tests.ds.learners import until
from tests.ds.samples import HELLO, JOIN, TAKEN, WELCOME, same, step_message, steps
from tests.ds.talking import HOST, MAX_MESSAGE, METHODS, Learner, actor, channel, learner, send

SPEC = AgentSpec(ObsSpec(("obs",), ((27,),), ("float32",)), ActionSpec(continuous=8))
STEPS = step_message(default=steps(SPEC, 100))
TOO_LARGE = step_message(default=steps(SPEC, MAX_MESSAGE // 100))
BEAT = Beat(actor="a", version=1, steps=2, waiting=3, dropped=4)
BYE = Bye(actor="a", reason="done")
WANTED = WeightRequest(actor="a", newer_than=3)


def is_well(one: Learner) -> None:
    """It answers, and nothing has gone wrong in its loop."""
    with actor(one.port) as client:
        assert client.ask(HELLO, Welcome) == WELCOME
    assert one.loop_errors == []


def test_every_message_arrives_and_is_answered() -> None:
    chunks = [np.random.default_rng(i).bytes(CHUNK) for i in range(5)]
    with learner() as one, actor(one.port) as client:
        assert client.ask(HELLO, Welcome) == WELCOME
        assert client.ask(JOIN, Receipt) == TAKEN
        assert client.ask(STEPS, Receipt) == TAKEN
        assert client.ask(BEAT, Receipt) == TAKEN
        assert client.weights(WANTED) == []
        client.bye(BYE)
        assert all(map(same, one.notes.seen, [HELLO, JOIN, STEPS, BEAT, WANTED, BYE]))
        one.notes.chunks = [*chunks, b"last"]
        assert client.weights(WANTED) == [*chunks, b"last"], "of any size"


@pytest.mark.fault("F17")
def test_a_message_that_is_too_large_names_the_limit_and_the_key() -> None:
    with learner() as one, actor(one.port) as client:
        with pytest.raises(LearnerRefused) as caught:
            client.ask(TOO_LARGE, Receipt)
        assert str(MAX_MESSAGE) in caught.value.why
        assert "base_config.max_episode_length" in caught.value.fix
        until(lambda: one.kinds == ["incomplete"])
        assert client.ask(STEPS, Receipt) == TAKEN and one.loop_errors == []


@pytest.mark.fault("F16")
def test_malformed_messages_are_refused_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    with learner() as one, channel(one.port) as bare:
        rng = random.Random(0)
        for method in METHODS:
            for body in (rng.randbytes(300), encode(JOIN)[:-1], encode(STEPS)[:5000], b""):
                answer = send(bare, method, body)
                assert answer is not None and answer[0] is grpc.StatusCode.INVALID_ARGUMENT
        assert one.kinds == ["malformed"] * 4 * len(METHODS)
        assert one.faults[0][1].startswith("127.0.0.1:")
        preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
        for i in range(100):  # bytes that are no call at all
            with socket.create_connection((HOST, one.port)) as stranger, contextlib.suppress(OSError):
                stranger.sendall((preface if i % 2 else b"") + rng.randbytes(rng.randrange(1, 5000)))
        is_well(one)
        assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.mark.fault("F16")
def test_an_endless_frame_is_cut_off_at_the_limit_and_what_is_compressed_is_not_expanded() -> None:
    """Its length says four gigabytes, and bytes keep coming."""
    with learner() as one, channel(one.port) as bare:
        before = psutil.Process().memory_info().rss
        answer = send(bare, "Deliver", bytes(64 * MAX_MESSAGE))
        assert answer is not None and answer[0] is grpc.StatusCode.RESOURCE_EXHAUSTED
        until(lambda: one.kinds == ["incomplete"])
        assert psutil.Process().memory_info().rss - before < 200 * MAX_MESSAGE
        answer = send(bare, "Deliver", bytes(64 * MAX_MESSAGE), compression=grpc.Compression.Gzip)
        assert answer is not None and answer[0] is grpc.StatusCode.INVALID_ARGUMENT
        assert one.kinds == ["incomplete", "malformed"]


@pytest.mark.fault("F16")
def test_a_call_without_a_message_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ds.net.server, "BODY_S", 0.2)
    release = threading.Event()
    with learner() as one, channel(one.port) as bare:
        call = bare.stream_unary(f"/{SERVICE}/Beat")
        with pytest.raises(grpc.RpcError, match="incomplete message"):
            call(iter(()))
        with pytest.raises(grpc.RpcError, match="no complete message within"):
            call(iter(release.wait, True))
        release.set()
        assert one.kinds == ["incomplete", "malformed"]


@pytest.mark.fault("F16")
def test_more_calls_than_are_served_are_sent_away_for_now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ds.net.server, "MAX_CALLS", 4)
    with learner() as one, actor(one.port) as client, ThreadPoolExecutor(4) as threads:
        one.notes.holding = True
        waiting = [threads.submit(client.ask, STEPS, Receipt) for _ in range(4)]
        until(lambda: one.notes.held == 4)
        with pytest.raises(Busy, match="it is busy"):
            client.ask(BEAT, Receipt)
        one.server.loop.call_soon_threadsafe(one.notes.release.set)
        assert [future.result() for future in waiting] == [TAKEN] * 4
        assert client.ask(BEAT, Receipt) == TAKEN


@pytest.mark.fault("F32")
def test_no_more_messages_arrive_at_a_time_than_may(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("LEAST", 4), ("MEMORY", 0), ("GRACE_S", 0.2)):
        monkeypatch.setattr(ds.net.server, name, value)
    release = threading.Event()

    def whole() -> Iterator[bytes]:
        release.wait()
        yield encode(STEPS)

    with learner() as one, channel(one.port) as bare, actor(one.port) as client:
        room = one.server._deliveries._free
        deliver = bare.stream_unary(f"/{SERVICE}/Deliver")
        slow = [deliver.future(whole()) for _ in range(4)]
        until(lambda: room._value == 0)
        assert client.ask(BEAT, Receipt) == TAKEN, "other messages have room of their own"
        with pytest.raises(Busy):
            client.ask(STEPS, Receipt)
        release.set()
        until(lambda: all(call.done() for call in slow))
        assert {call.code() for call in slow} == {grpc.StatusCode.OK}, "slow is not lost"
        assert client.ask(STEPS, Receipt) == TAKEN
        assert one.kinds == ["crowded"] and one.loop_errors == []


# ---- connections


def strangers(number: int, port: int, stack: contextlib.ExitStack) -> list[socket.socket]:
    """So many connections on which nothing is said."""
    found = [stack.enter_context(socket.create_connection((HOST, port), 5)) for _ in range(number)]
    for one in found:
        one.setblocking(False)
    return found


def is_open(connection: socket.socket) -> bool:
    try:
        return bool(connection.recv(4096))
    except OSError as error:
        return isinstance(error, BlockingIOError)


@pytest.mark.fault("F16")
@pytest.mark.fault("F30")
@pytest.mark.parametrize(("handshake_s", "left"), [(60.0, 40), (0.5, 0)])
def test_a_crowd_is_kept_out_and_who_talks_stays(
    handshake_s: float, left: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond the total none is let in; who says nothing is sent away, and then others come in again."""
    monkeypatch.setattr(ds.net.server, "most_connections", lambda: 40)
    with learner(handshake_s=handshake_s) as one, actor(one.port) as known, actor(one.port) as late:
        assert known.ask(HELLO, Welcome) == WELCOME
        with contextlib.ExitStack() as stack:
            crowd = strangers(120, one.port, stack)
            until(lambda: sum(map(is_open, crowd)) <= left)
            assert known.ask(HELLO, Welcome) == WELCOME
            if not left:
                assert late.ask(HELLO, Welcome) == WELCOME
    assert one.loop_errors == []


@pytest.mark.fault("F30")
@pytest.mark.parametrize(
    ("soft", "hard", "raised", "most"),
    [(64, 64, 64, 17), (256, 256, 256, 113), (1024, 1024, 1024, 738), (256, 10**6, 1536, 1024)],
)
def test_descriptors_are_left_for_everything_else(
    soft: int, hard: int, raised: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """30 are taken; of the others 256, or half, are left."""
    limits = [(soft, hard)]
    monkeypatch.setattr(resource, "getrlimit", lambda which: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda which, limit: limits.append(limit))
    monkeypatch.setattr(ds.net.port, "open_descriptors", lambda: list(range(30)))
    assert most_connections() == most
    assert limits[-1] == (raised, hard)


# ---- the port


@pytest.mark.fault("F20")
def test_a_port_that_is_taken_is_refused_and_its_process_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(kind: str) -> list[object]:
        raise psutil.AccessDenied

    with learner() as one:
        taken = pytest.raises(UsageError, match=rf"\(process {os.getpid()}: .*\) listens there")
        with taken, learner(port=one.port):
            pass
        is_well(one)
        monkeypatch.setattr(psutil, "net_connections", denied)
        unseen = pytest.raises(UsageError, match="a process of another user listens there")
        with unseen, learner(port=one.port):
            pass
    with pytest.raises(UsageError, match="an address of this machine"), learner(host="192.0.2.1"):
        pass
