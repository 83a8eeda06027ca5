from __future__ import annotations

import contextlib
import gc
import logging
import os
import queue
import random
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np
import psutil
import pytest

import ds.server
from algorithm.core.errors import UsageError
from algorithm.core.spec import ActionSpec, AgentSpec, ObsSpec
from ds import connections, transport
from ds.protocol import Busy, LearnerRefused, Unreachable
from ds.protocol import Beat, Bye, Refused, TrajectoryChunk, WeightRequest
from ds.wire import encode
from tests.ds.samples import HELLO, JOIN, TAKEN, WELCOME, same, trajectory, transitions
from tests.ds.talking import HOST, MAX_MESSAGE, METHODS, Learner, actor, channel, learner, send

SPEC = AgentSpec(ObsSpec(("obs",), ((27,),), ("float32",)), ActionSpec(continuous=8))
TRAJECTORY = trajectory(TrajectoryChunk("default", 0, transitions(SPEC, 100)))
TOO_LARGE = trajectory(TrajectoryChunk("default", 0, transitions(SPEC, MAX_MESSAGE // 100)))
BEAT = Beat(actor="a", version=1, steps=2, waiting=3, dropped=4)
BYE = Bye(actor="a", reason="done")
WANTED = WeightRequest(actor="a", newer_than=3)


def until(condition: Callable[[], bool]) -> None:
    """Wait for something that comes about; the test's own time limit ends it otherwise."""
    while not condition():
        time.sleep(0.01)


def is_well(one: Learner) -> None:
    """It answers, and nothing has gone wrong in its loop."""
    with actor(one.port) as client:
        assert client.hello(HELLO) == WELCOME
    assert one.loop_errors == []


def test_every_message_arrives_and_is_answered() -> None:
    with learner() as one, actor(one.port) as client:
        assert client.hello(HELLO) == WELCOME
        assert client.join(JOIN).receipt == TAKEN
        assert client.deliver(TRAJECTORY) == TAKEN
        assert client.beat(BEAT) == TAKEN
        assert client.weights(WANTED) == []
        client.bye(BYE)
        assert all(map(same, one.notes.seen, [HELLO, JOIN, TRAJECTORY, BEAT, WANTED, BYE]))
        assert re.fullmatch(r"127\.0\.0\.1:\d+", one.notes.peers[0])
        assert one.faults == []


def test_a_refusal_says_why_and_what_to_do() -> None:
    refusal = Refused(why="differs", reason="other keys", differences=("seed: 1, 2",), fix="take the same")
    with learner() as one, actor(one.port) as client:
        one.notes.refusal = refusal
        for ask in (lambda: client.hello(HELLO), lambda: client.join(JOIN)):
            with pytest.raises(LearnerRefused) as caught:
                ask()
            assert caught.value.exit_code == 3
            assert caught.value.why == "other keys\nseed: 1, 2"
            assert caught.value.fix == "take the same"
            assert caught.value.where == f"{HOST}:{one.port}"


def test_weights_of_any_size_arrive_whole() -> None:
    chunks = [np.random.default_rng(i).bytes(transport.CHUNK) for i in range(20)]
    with learner() as one, actor(one.port) as client:
        one.notes.chunks = [*chunks, b"last"]
        assert client.weights(WANTED) == [*chunks, b"last"]


def test_many_threads_share_a_client() -> None:
    with learner() as one, actor(one.port) as client, ThreadPoolExecutor(8) as threads:
        trajectories = [trajectory(number=number) for number in range(64)]
        assert list(threads.map(client.deliver, trajectories)) == [TAKEN] * 64
        assert sorted(seen.number for seen in one.notes.seen) == list(range(64))


def test_an_answer_that_does_not_come_in_time_may_come_later() -> None:
    with learner() as one, actor(one.port, timeout=0.3) as client:
        one.notes.holding = True
        with pytest.raises(Unreachable, match="no answer within"):
            client.deliver(TRAJECTORY)
        assert client.beat(BEAT) == TAKEN
    assert one.loop_errors == []


def test_nobody_listening_may_pass() -> None:
    with learner() as one:
        pass
    with actor(one.port) as client, pytest.raises(Unreachable, match="nobody listens there"):
        client.hello(HELLO)


def test_a_learner_that_comes_back_is_found_again() -> None:
    with learner() as one, actor(one.port) as client:
        client.hello(HELLO)
        one.server.close(0)
        with pytest.raises(Unreachable):
            client.beat(BEAT)
        with learner(port=one.port) as other:
            while True:
                with contextlib.suppress(Unreachable):
                    client.beat(BEAT)
                    break
                time.sleep(0.05)
            assert other.notes.seen == [BEAT]


def test_closing_ends_calls_that_wait() -> None:
    ended: queue.Queue[Exception] = queue.Queue()
    with learner() as one, actor(one.port) as client:
        one.notes.holding = True

        def deliver() -> None:
            try:
                client.deliver(TRAJECTORY)
            except Unreachable as error:
                ended.put(error)

        thread = threading.Thread(target=deliver)
        thread.start()
        until(lambda: one.notes.held == 1)
        one.server.close(0)
        thread.join()
        assert isinstance(ended.get_nowait(), Unreachable)
    assert one.loop_errors == []


def test_a_closed_client_is_unreachable() -> None:
    with learner() as one:
        with actor(one.port) as client:
            client.hello(HELLO)
        for call in (lambda: client.beat(BEAT), lambda: client.weights(WANTED)):
            with pytest.raises(Unreachable, match="closed"):
                call()


def test_a_server_closes_more_than_once() -> None:
    with learner() as one, actor(one.port) as client:
        client.hello(HELLO)
        one.server.close(0)
        one.server.close(0)
        with pytest.raises(Unreachable):
            client.beat(BEAT)


@pytest.mark.fault("F17")
def test_a_trajectory_that_is_too_large_names_the_limit_and_the_key() -> None:
    with learner() as one, actor(one.port) as client:
        with pytest.raises(LearnerRefused) as caught:
            client.deliver(TOO_LARGE)
        assert str(MAX_MESSAGE) in caught.value.why
        assert "base_config.max_episode_length" in caught.value.fix
        until(lambda: one.kinds == ["incomplete"])
        assert f"larger than {MAX_MESSAGE} bytes" in one.faults[0][1]
        assert client.deliver(TRAJECTORY) == TAKEN
        assert one.loop_errors == []


def bodies(number: int, rng: random.Random) -> list[bytes]:
    """Random bytes, and good messages that are cut off or have flipped bits."""
    good = [encode(one) for one in (HELLO, JOIN, TRAJECTORY, BEAT, BYE, WANTED)]
    found = []
    for i in range(number):
        forged = bytearray(rng.choice(good))
        if i % 3 == 0:
            forged = bytearray(rng.randbytes(rng.randrange(2000)))
        elif i % 3 == 1:
            del forged[rng.randrange(len(forged)) :]
        else:
            forged[rng.randrange(8)] ^= 1 << rng.randrange(8)
        found.append(bytes(forged))
    return found


@pytest.mark.fault("F16")
def test_malformed_messages_are_refused_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    with learner() as one, channel(one.port) as bare:
        answers = [
            send(bare, METHODS[i % len(METHODS)], body)
            for i, body in enumerate(bodies(300, random.Random(0)))
        ]
        assert {answer[0] for answer in answers if answer} == {grpc.StatusCode.INVALID_ARGUMENT}
        refused = sum(answer is not None for answer in answers)
        assert refused > 250
        assert one.kinds == ["malformed"] * refused
        is_well(one)
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.mark.slow
@pytest.mark.fault("F16")
def test_a_hundred_thousand_malformed_messages_leave_the_memory_as_it_was() -> None:
    rng = random.Random(0)
    with learner() as one, channel(one.port) as bare:
        one.server._handlers._on_fault = lambda kind, what: None  # the test's own list would grow
        begun = time.monotonic()
        used = []
        for _ in range(20):
            for i, body in enumerate(bodies(5000, rng)):
                send(bare, METHODS[i % len(METHODS)], body)
            one.notes.seen.clear()
            gc.collect()
            used.append(psutil.Process().memory_info().rss >> 10)
        print(f"\n100,000 messages in {time.monotonic() - begun:.0f} s, KiB after each 5,000: {used}")
        assert used[-1] - used[3] < 4096
        is_well(one)


@pytest.mark.fault("F16")
def test_random_bytes_on_the_socket_do_no_harm() -> None:
    rng = random.Random(0)
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    with learner() as one:
        for i in range(100):
            with socket.create_connection((HOST, one.port)) as stranger, contextlib.suppress(OSError):
                stranger.sendall((preface if i % 2 else b"") + rng.randbytes(rng.randrange(1, 5000)))
        is_well(one)


@pytest.mark.fault("F16")
def test_an_endless_frame_is_cut_off_at_the_limit() -> None:
    """Its length says four gigabytes, and bytes keep coming."""
    with learner() as one, channel(one.port) as bare:
        before = psutil.Process().memory_info().rss
        answer = send(bare, "Deliver", bytes(64 * MAX_MESSAGE))
        assert answer is not None
        assert answer[0] is grpc.StatusCode.RESOURCE_EXHAUSTED
        until(lambda: one.kinds == ["incomplete"])
        assert psutil.Process().memory_info().rss - before < 200 * MAX_MESSAGE
        is_well(one)


@pytest.mark.fault("F16")
def test_what_is_compressed_is_not_expanded() -> None:
    with learner() as one, channel(one.port) as bare:
        answer = send(bare, "Deliver", bytes(64 * MAX_MESSAGE), compression=grpc.Compression.Gzip)
        assert answer is not None
        assert answer[0] is grpc.StatusCode.INVALID_ARGUMENT
        assert one.kinds == ["malformed"]
        is_well(one)


@pytest.mark.fault("F16")
def test_a_call_without_a_message_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ds.server, "BODY_S", 0.2)
    release = threading.Event()

    def nothing(wait: bool) -> object:
        if wait:
            release.wait()
        yield from ()

    with learner() as one, channel(one.port) as bare:
        call = bare.stream_unary(f"/{transport.SERVICE}/Beat")
        with pytest.raises(grpc.RpcError, match="no whole message"):
            call(nothing(wait=False))
        with pytest.raises(grpc.RpcError, match="no whole message in time"):
            call(nothing(wait=True))
        release.set()
        assert one.kinds == ["incomplete", "malformed"]
        is_well(one)


@pytest.mark.fault("F16")
def test_idle_connections_are_closed_and_keep_nobody_out() -> None:
    with learner(handshake_s=0.5) as one, contextlib.ExitStack() as stack:
        strangers = [stack.enter_context(socket.create_connection((HOST, one.port))) for _ in range(300)]
        is_well(one)
        for stranger in strangers:
            stranger.settimeout(5)  # one that is not closed fails here, and does not hang
            with contextlib.suppress(ConnectionResetError):
                while stranger.recv(4096):
                    pass
        is_well(one)


@pytest.mark.fault("F16")
def test_more_calls_than_are_served_are_sent_away_for_now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ds.server, "CONCURRENT", 4)
    with learner() as one, actor(one.port) as client, ThreadPoolExecutor(4) as threads:
        one.notes.holding = True
        waiting = [threads.submit(client.deliver, TRAJECTORY) for _ in range(4)]
        until(lambda: one.notes.held == 4)
        with pytest.raises(Busy, match="no hand free"):
            client.beat(BEAT)
        one.server.loop.call_soon_threadsafe(one.notes.release.set)
        assert [future.result() for future in waiting] == [TAKEN] * 4
        assert client.beat(BEAT) == TAKEN


@pytest.mark.fault("F32")
def test_a_large_message_of_somebody_unknown_is_not_read() -> None:
    large = trajectory(*(TrajectoryChunk("default", agent, None) for agent in range(4000)))
    with learner() as one, actor(one.port) as client:
        one.notes.strangers = True
        assert client.deliver(large).state == "unknown" and one.notes.seen == []
        assert client.deliver(TRAJECTORY) == TAKEN, "a small one is read, and its sender looked up then"
        one.notes.strangers = False
        assert client.deliver(large) == TAKEN
        with pytest.raises(LearnerRefused, match="only Join and TrajectoryMessage"):
            client.bye(Bye(actor="a", reason="x" * 20_000))
        assert one.kinds == ["malformed"]


@pytest.mark.fault("F32")
def test_messages_that_arrive_slowly_keep_nobody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "LEAST", 4)
    monkeypatch.setattr(connections, "MEMORY", 0)
    monkeypatch.setattr(connections, "GRACE_S", 0.2)
    release = threading.Event()

    def whole() -> Iterator[bytes]:
        release.wait()
        yield encode(TRAJECTORY)

    with learner() as one, channel(one.port) as bare, actor(one.port) as client:
        trajectories = one.server._handlers._trajectories
        deliver = bare.stream_unary(f"/{transport.SERVICE}/Deliver")
        slow = [deliver.future(whole()) for _ in range(4)]
        until(lambda: len(trajectories._arriving) == 4)
        assert client.beat(BEAT) == TAKEN, "other messages have room of their own"
        assert client.deliver(TRAJECTORY) == TAKEN, "one gave way"
        until(lambda: sum(call.done() for call in slow) == 1)
        assert [call.code() for call in slow if call.done()] == [grpc.StatusCode.RESOURCE_EXHAUSTED]
        release.set()
        until(lambda: all(call.done() for call in slow))
        assert sum(call.code() is grpc.StatusCode.OK for call in slow) == 3, "slow is not lost"
        assert one.kinds == ["crowded"] and one.loop_errors == []
        until(lambda: trajectories._free == 4)

        release.clear()
        monkeypatch.setattr(connections, "GRACE_S", 60.0)
        burst = [deliver.future(whole()) for _ in range(6)]
        until(lambda: len(trajectories._arriving) == 4 and len(trajectories._line) == 2)
        burst[-1].cancel()
        until(lambda: len(trajectories._line) == 1)
        release.set()
        assert all(one.result() for one in burst[:-1]), "who came in a burst waits for a moment"
        assert one.kinds == ["crowded"]
        until(lambda: trajectories._free == 4)


def test_an_error_of_the_service_is_logged_and_ends_one_call(caplog: pytest.LogCaptureFixture) -> None:
    with learner() as one, actor(one.port) as client:
        one.notes.error = ZeroDivisionError("by zero")
        with pytest.raises(Unreachable, match="unknown"):
            client.deliver(TRAJECTORY)
        is_well(one)
    assert "by zero" in caplog.text


@pytest.mark.fault("F20")
def test_a_port_that_is_taken_is_refused_and_its_process_named() -> None:
    with learner() as one:
        with pytest.raises(UsageError) as caught, learner(port=one.port):
            pass
        assert caught.value.exit_code == 2
        assert caught.value.where == f"{HOST}:{one.port}"
        assert f"process {os.getpid()} listens there: " in caught.value.why
        assert f"kill {os.getpid()}" in caught.value.fix
        assert "net_config.learner_port" in caught.value.fix
        is_well(one)


@pytest.mark.fault("F20")
def test_a_process_that_may_not_be_seen_is_not_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(kind: str) -> list[object]:
        raise psutil.AccessDenied

    monkeypatch.setattr(psutil, "net_connections", denied)
    with learner() as one, pytest.raises(UsageError, match="may not see which"), learner(port=one.port):
        pass


def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(UsageError, match="no network interface"), learner(host="192.0.2.1"):
        pass


def test_a_failed_start_leaves_no_thread() -> None:
    before = threading.active_count()
    with pytest.raises(UsageError), learner(host="192.0.2.1"):
        pass
    assert [one for one in threading.enumerate() if one.name == "learner-server"] == []
    assert threading.active_count() <= before + 1  # gRPC keeps one of its own


def test_another_server_at_that_port_is_no_learner() -> None:
    with ThreadPoolExecutor(2) as threads:
        other = grpc.server(threads)
        port = other.add_insecure_port(f"{HOST}:0")
        other.start()
        with actor(port) as client, pytest.raises(LearnerRefused, match="a learner listens there"):
            client.hello(HELLO)
        other.stop(0).wait()


def test_an_answer_that_makes_no_sense_is_refused() -> None:
    handler = grpc.unary_unary_rpc_method_handler(lambda body, context: b"rubbish")
    with ThreadPoolExecutor(2) as threads:
        other = grpc.server(threads)
        other.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(transport.SERVICE, {"Hello": handler}),)
        )
        port = other.add_insecure_port(f"{HOST}:0")
        other.start()
        with actor(port) as client, pytest.raises(LearnerRefused, match="its answer cannot be read"):
            client.hello(HELLO)
        other.stop(0).wait()


def test_an_ipv6_address_stands_in_brackets() -> None:
    assert transport.address("::1", 61001) == "[::1]:61001"
    assert transport.address("learner.example", 61001) == "learner.example:61001"
