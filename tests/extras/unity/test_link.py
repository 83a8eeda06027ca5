"""The server that a player calls, driven by clients of this process."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import grpc
import psutil
import pytest

from algorithm.core.errors import UsageError
from algorithm.extras.unity.link import LinkError, PlayerLink
from algorithm.extras.unity.package import load

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


def hello_message(version: str = "1.5.0") -> Any:
    message = UnityMessageProto(header={"status": 200})
    start = message.unity_output.rl_initialization_output
    start.communication_version, start.package_version = version, "2.3.0"
    return message


class Client:
    """One call at a time, as a player makes them."""

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        options = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
        # Its own connection: clients of one process would share one.
        options += [("grpc.use_local_subchannel_pool", 1)]
        self.channel = grpc.insecure_channel(f"{host}:{port}", options)
        self.call = self.channel.unary_unary(METHOD)
        self.calls = []  # gRPC cancels a call that nobody holds

    def send(self, message: Any) -> Any:
        self.calls.append(self.call.future(message.SerializeToString(), timeout=20))
        return self.calls[-1]

    def output(self, size: int = 0) -> Any:
        message = UnityMessageProto(header={"status": 200})
        message.unity_output.rl_output.side_channel = bytes(size)
        return self.send(message)

    def answer(self, call: Any, run: Callable[[], Any], size: int = 0) -> tuple[Any, Any, Any]:
        """Send ``size`` bytes once ``call`` is answered; return what ``run`` gives, answer and next call."""
        found: list[Any] = []
        thread = threading.Thread(target=lambda: found.extend([call.result(), self.output(size)]))
        thread.start()
        got = run()
        thread.join()
        return got, UnityMessageProto.FromString(found[0]), found[1]


def start_inputs() -> Any:
    inputs = UnityInputProto()
    inputs.rl_initialization_input.communication_version = "1.5.0"
    return inputs


def shake_hands(link: PlayerLink, client: Client) -> Any:
    """Return the call that waits for the first actions."""
    hello = client.send(hello_message())
    output, _, waiting = client.answer(hello, lambda: link.initialize(start_inputs()))
    assert output.rl_initialization_output.package_version == "2.3.0"
    return waiting


def status_of(future: Any) -> int:
    return UnityMessageProto.FromString(future.result()).header.status


def test_the_handshake_and_messages_far_above_grpc_s_limit():
    inputs = UnityInputProto()
    inputs.rl_input.side_channel = bytes(20_000_000)
    with linked() as link:
        client = Client(link.port)
        waiting = shake_hands(link, client)
        got, answer, waiting = client.answer(waiting, lambda: link.exchange(inputs), 20_000_000)
        assert len(got.rl_output.side_channel) == 20_000_000
        assert len(answer.unity_input.rl_input.side_channel) == 20_000_000
        link.say_goodbye()
        assert [status_of(waiting), status_of(client.output())] == [400, 400]


def test_a_second_player_is_turned_away_and_disturbs_nobody():
    with linked() as link:
        client = Client(link.port)
        waiting = shake_hands(link, client)
        with pytest.raises(grpc.RpcError) as refused:
            Client(link.port).output().result()
        assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
        assert not waiting.done()


def test_a_connection_that_is_cut_is_noticed_at_once():
    with linked() as link:
        client = Client(link.port)
        shake_hands(link, client)
        client.channel.close()
        time.sleep(0.3)  # an answer that crosses the cut is lost with it, which only the time-out can tell
        since = time.monotonic()
        with pytest.raises(LinkError) as error:
            link.exchange(UnityInputProto())
        assert error.value.kind == "lost" and time.monotonic() - since < 2.0


@pytest.mark.parametrize("takes", [True, False])
def test_a_call_that_has_ended_before_it_is_read_is_lost(takes):
    """gRPC ends a call first and reports that afterwards, or takes no callback any more."""
    reports: list[Callable[[], None]] = []
    with linked(timeout=0.5) as link:
        context = SimpleNamespace(
            peer=lambda: "a",
            is_active=lambda: False,
            add_callback=lambda call: reports.append(call) or takes,
        )
        link._answer(hello_message().SerializeToString(), context)
        if takes:
            reports[0]()
        with pytest.raises(LinkError) as error:
            link.initialize(start_inputs())
    assert error.value.kind == "lost"


@pytest.mark.parametrize(("first", "kind", "why"), [
    (b"\xff\xff\xff", "garbled", "cannot be decoded"),
    (UnityMessageProto(header={"status": 200}).SerializeToString(), "garbled", "not that of a Unity player"),
    (hello_message("2.0.0").SerializeToString(), "version", "protocol 2.0.0"),
    (hello_message("").SerializeToString(), "version", "without a version"),
])  # fmt: skip
def test_what_is_no_player_of_this_protocol_is_refused(first, kind, why):
    with linked() as link:
        held = Client(link.port)
        future = held.call.future(first, timeout=20)
        with pytest.raises(LinkError, match=why) as error:
            link.initialize(start_inputs())
        assert error.value.kind == kind
    assert future is not None


def test_a_port_of_another_process_is_passed_over_or_refused_with_its_name():
    code = (
        "import socket, sys\ns = socket.socket()\ns.bind(('127.0.0.1', 0))\ns.listen()\n"
        "print(s.getsockname()[1], flush=True)\nsys.stdin.read()"
    )
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        port = int(other.stdout.readline())
        with linked(port) as link:
            assert link.port > port
        with pytest.raises(UsageError, match=f"port {port} is taken") as error, linked(port, fixed=True):
            pass
        assert f"process {other.pid}" in str(error.value)


@pytest.mark.parametrize(("listen", "hosts"), [("loopback", {"127.0.0.1"}), ("all", {"::"})])
def test_only_this_machine_can_connect_unless_all_may(listen, hosts):
    with linked(listen=listen) as link:
        found = psutil.Process().net_connections(kind="tcp")
        listening = [one.laddr for one in found if one.status == psutil.CONN_LISTEN]
        own = {address.ip for address in listening if address.port == link.port}
        assert {ip.removeprefix("::ffff:") for ip in own} == hosts  # IPv4 on a socket of IPv6
        shake_hands(link, Client(link.port))


def test_the_interpreter_ends_while_a_player_waits():
    """A link that is never closed holds nothing up: its threads are daemons."""
    code = (
        "import sys\nfrom tests.extras.unity.test_link import *\n"
        "link = PlayerLink(free_port(), fixed=False, listen='loopback', timeout=5, loss=lambda: None)\n"
        "client = Client(link.port)\nshake_hands(link, client)\nsys.exit(7)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], timeout=60, check=False, capture_output=True)
    assert done.returncode == 7, done.stderr
