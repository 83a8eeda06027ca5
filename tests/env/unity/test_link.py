"""The server that a player calls, driven by clients of this process."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from types import SimpleNamespace

import grpc
import pytest

from algorithm.core.errors import UsageError
from algorithm.env.unity.link import LinkError, PlayerLink
from algorithm.env.unity.package import load

load()

from mlagents_envs.communicator_objects.unity_input_pb2 import UnityInputProto  # noqa: E402
from mlagents_envs.communicator_objects.unity_message_pb2 import UnityMessageProto  # noqa: E402

METHOD = "/communicator_objects.UnityToExternalProto/Exchange"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def linked(port=None, *, fixed=False, listen="loopback", timeout=5.0, loss=lambda: None):
    link = PlayerLink(port or free_port(), fixed=fixed, listen=listen, timeout=timeout, loss=loss)
    try:
        yield link
    finally:
        link.close()


class Client:
    """One call at a time, as a player makes them."""

    def __init__(self, port, host="127.0.0.1"):
        options = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
        # Its own connection: clients of one process would share one.
        options += [("grpc.use_local_subchannel_pool", 1)]
        self.channel = grpc.insecure_channel(f"{host}:{port}", options)
        self.call = self.channel.unary_unary(METHOD)
        self.calls = []  # gRPC cancels a call that nobody holds

    def send(self, message):
        self.calls.append(self.call.future(message.SerializeToString(), timeout=20))
        return self.calls[-1]

    def hello(self, version="1.5.0"):
        message = UnityMessageProto(header={"status": 200})
        start = message.unity_output.rl_initialization_output
        start.communication_version, start.package_version = version, "2.3.0"
        return self.send(message)

    def output(self, size=0):
        message = UnityMessageProto(header={"status": 200})
        message.unity_output.rl_output.side_channel = bytes(size)
        return self.send(message)


def start_inputs():
    inputs = UnityInputProto()
    inputs.rl_initialization_input.communication_version = "1.5.0"
    return inputs


def shake_hands(link, client):
    first = client.hello()
    second = []
    thread = threading.Thread(target=lambda: (first.result(), second.append(client.output())))
    thread.start()
    output = link.initialize(start_inputs())
    thread.join()
    return output, second[0]


def answer_ended(link, add_callback):
    """Hand the first message of a player to the link, in a call that has ended."""
    hello = UnityMessageProto(header={"status": 200})
    hello.unity_output.rl_initialization_output.communication_version = "1.5.0"
    context = SimpleNamespace(peer=lambda: "a", is_active=lambda: False, add_callback=add_callback)
    link._answer(hello.SerializeToString(), context)


def status_of(future):
    return UnityMessageProto.FromString(future.result()).header.status


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
def test_the_handshake_and_messages_far_above_grpc_s_limit(host):
    with linked() as link:
        client = Client(link.port, host)
        output, waiting = shake_hands(link, client)
        assert output.rl_initialization_output.package_version == "2.3.0"
        for _ in range(2):
            after = []
            inputs = UnityInputProto()
            inputs.rl_input.side_channel = bytes(20_000_000)
            thread = threading.Thread(
                target=lambda call=waiting, done=after: done.extend(
                    [UnityMessageProto.FromString(call.result()), client.output(20_000_000)]
                )
            )
            thread.start()
            got = link.exchange(inputs)
            thread.join()
            assert len(got.rl_output.side_channel) == 20_000_000
            assert len(after[0].unity_input.rl_input.side_channel) == 20_000_000
            waiting = after[1]
        link.say_goodbye()
        assert status_of(waiting) == 400
        assert status_of(client.output()) == 400


def test_a_second_player_is_turned_away_and_disturbs_nobody():
    with linked() as link:
        client = Client(link.port)
        _, waiting = shake_hands(link, client)
        with pytest.raises(grpc.RpcError) as refused:
            Client(link.port).hello().result()
        assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
        assert not waiting.done()


def test_a_lost_connection_is_noticed_at_once():
    with linked() as link:
        client = Client(link.port)
        shake_hands(link, client)
        client.channel.close()
        time.sleep(0.3)  # an answer that crosses the cut is lost with it, which only the time-out can tell
        since = time.monotonic()
        with pytest.raises(LinkError, match="cut") as error:
            link.exchange(UnityInputProto())
        assert error.value.kind == "lost"
        assert time.monotonic() - since < 2


def test_a_lost_connection_is_noticed_whoever_sees_it_first():
    """gRPC ends a call first and reports that afterwards; the thread that waits may look in between."""
    reports = []
    with linked(timeout=0.5) as link:
        answer_ended(link, lambda call: reports.append(call) or True)
        reports[0]()
        with pytest.raises(LinkError) as error:
            link.initialize(start_inputs())
        assert error.value.kind == "lost"


def test_a_call_that_has_ended_before_it_is_read_is_lost():
    """gRPC takes no callback then, and returns False."""
    with linked(timeout=0.5) as link:
        answer_ended(link, lambda call: False)
        with pytest.raises(LinkError, match="cut") as error:
            link.initialize(start_inputs())
        assert error.value.kind == "lost"


def test_silence_ends_after_the_time_out():
    with linked(timeout=0.5) as link:
        since = time.monotonic()
        with pytest.raises(LinkError, match=r"no message for 0\.5 s") as error:
            link.initialize(start_inputs())
        assert error.value.kind == "hangs"
        assert 0.5 <= time.monotonic() - since < 3


def test_an_end_of_the_process_is_noticed_within_two_polls():
    ended = threading.Event()
    loss = LinkError("ended", "exit code 1")
    with linked(loss=lambda: loss if ended.is_set() else None) as link:
        client = Client(link.port)  # a client without a name would be cut off here
        shake_hands(link, client)
        timer = threading.Timer(0.3, ended.set)
        timer.start()
        since = time.monotonic()
        with pytest.raises(LinkError, match="exit code 1"):
            link.exchange(UnityInputProto())
        assert time.monotonic() - since < 1.5  # 0.3 + 0.2, on a loaded machine


def test_a_goodbye_gets_a_receipt():
    with linked() as link:
        client = Client(link.port)
        _, waiting = shake_hands(link, client)
        assert not waiting.done()
        receipt = client.send(UnityMessageProto(header={"status": 400}))
        assert status_of(receipt) == 400
        with pytest.raises(LinkError, match="status 400") as error:
            link.exchange(UnityInputProto())
        assert error.value.kind == "goodbye"


def test_garbage_is_no_player():
    with linked() as link:
        future = Client(link.port).call.future(b"\xff\xff\xff", timeout=20)
        with pytest.raises(LinkError, match="cannot be decoded") as error:
            link.initialize(start_inputs())
        assert error.value.kind == "garbled"
        with pytest.raises(grpc.RpcError):
            future.result()
    with linked() as link:
        client = Client(link.port)
        client.output()
        with pytest.raises(LinkError, match="not that of a Unity player"):
            link.initialize(start_inputs())


@pytest.mark.parametrize(
    "version, said", [("2.0.0", "2.0.0"), ("0.15.0", "0.15.0"), ("", "without a version")]
)
def test_another_protocol_is_refused_with_both_versions(version, said):
    with linked() as link:
        client = Client(link.port)
        client.hello(version)
        with pytest.raises(LinkError, match=f"protocol {said}.*2.3.0; this program speaks 1.5.0") as error:
            link.initialize(start_inputs())
        assert error.value.kind == "version"


def test_each_link_takes_the_next_free_port_and_gives_it_back():
    port = free_port()
    with linked(port) as one, linked(port) as two, linked(port, fixed=True) as three:
        assert port == one.port < two.port < three.port  # three: the port is our own, so the next one will do
    with linked(port, fixed=True) as again:
        assert again.port == port


def test_a_port_of_another_process_is_passed_over_or_refused_with_its_name():
    code = (
        "import socket, sys\ns = socket.socket()\ns.bind(('127.0.0.1', 0))\ns.listen()\n"
        "print(s.getsockname()[1], flush=True)\nsys.stdin.read()"
    )
    other = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        port = int(other.stdout.readline())
        with linked(port) as link:
            assert link.port > port
        with pytest.raises(UsageError, match=f"port {port} is taken") as error:
            PlayerLink(port, fixed=True, listen="loopback", timeout=1, loss=lambda: None)
        assert f"process {other.pid}" in str(error.value) and "python" in error.value.why
    finally:
        other.stdin.close()
        other.wait()


def test_a_port_that_only_ipv6_has_taken_is_taken():
    with socket.socket(socket.AF_INET6) as other:
        other.bind(("::1", 0))
        other.listen()
        port = other.getsockname()[1]
        with linked(port) as link:
            assert link.port > port


@pytest.mark.skipif(os.geteuid() == 0, reason="root may use every port")
def test_a_port_of_the_system_is_refused_as_such():
    with pytest.raises(UsageError, match="may not be used"):
        PlayerLink(80, fixed=True, listen="loopback", timeout=1, loss=lambda: None)


def listening_on(port):
    import psutil

    return {
        connection.laddr.ip.removeprefix("::ffff:")  # IPv4 on a socket of IPv6
        for connection in psutil.Process().net_connections(kind="tcp")
        if connection.laddr.port == port and connection.status == psutil.CONN_LISTEN
    }


def test_only_this_machine_can_connect_unless_all_may():
    with linked() as link:
        assert listening_on(link.port) == {"127.0.0.1", "::1"}
    with linked(listen="all") as link:
        assert listening_on(link.port) == {"::"}
        shake_hands(link, Client(link.port))


def test_the_interpreter_ends_while_a_player_waits():
    """A link that is never closed holds nothing up: its threads are daemons."""
    code = (
        "import sys, threading\n"
        "from tests.env.unity.test_link import *\n"
        "link = PlayerLink(free_port(), fixed=False, listen='loopback', timeout=5, loss=lambda: None)\n"
        "client = Client(link.port)\n"
        "shake_hands(link, client)\n"
        "sys.exit(7)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], timeout=60, check=False, capture_output=True, text=True
    )
    assert done.returncode == 7, done.stderr
